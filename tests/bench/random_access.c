// SPDX-License-Identifier: GPL-2.0-or-later
// random_access MB STEPS: fills its memory, says "ready", waits for a line, changes STEPS random
// words of it, says how many ms that took and a checksum. What it is measured with is its own
// clock, which a move does not stop.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t next(uint64_t* s) {  // xorshift64*
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 2685821657736338717ULL;
}

static double ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const uint64_t words = strtoull(argv[1], NULL, 10) << 17, steps = strtoull(argv[2], NULL, 10);
    uint64_t* memory = malloc(words * 8);
    if (!memory || words == 0) return 1;
    uint64_t seed = 1, sum = 0;
    for (uint64_t i = 0; i < words; ++i) memory[i] = next(&seed);
    for (;;) {
        puts("ready");
        fflush(stdout);
        if (getchar() == EOF) return 0;
        const double start = ms();
        for (uint64_t i = 0; i < steps; ++i) sum += memory[next(&seed) % words]++;
        printf("%.3f %016llx\n", ms() - start, (unsigned long long)sum);
    }
}
