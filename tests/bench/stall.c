// SPDX-License-Identifier: GPL-2.0-or-later
// stall MB FILE: holds so much memory, looks at the clock without a rest, and appends to FILE, in
// ms, each time for which it did not run that is longer than 3 ms: the pause of a move as the job
// has it, whoever moves it. The clock is that of the wall: the others are set by a restore to go on
// from where they stood.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gaps.h"

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const size_t bytes = strtoull(argv[1], NULL, 10) << 20;
    unsigned char* memory = malloc(bytes);
    const int file = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (!memory || bytes == 0 || file < 0) return 1;
    for (size_t i = 0; i < bytes; ++i) memory[i] = (unsigned char)(i * 2654435761U >> 13);
    double before = ms();
    for (size_t i = 0;; i = (i + 4096) % bytes) {
        ++memory[i];
        if (!note_gap(file, &before)) return 1;
    }
}
