// SPDX-License-Identifier: GPL-2.0-or-later
// many KIND:COUNT FILE: has so many processes, a chain of so many, threads, mappings, sockets or
// descriptors, all of which wait. Its first process looks at the clock without a rest, and appends
// to FILE, in ms, each time for which it did not run that is longer than 3 ms, as stall.c does.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gaps.h"

static void* wait_for_ever(void* none) {
    for (;;) pause();
    return none;
}

static void chain(int count) {
    for (int i = 0; i < count; ++i) {
        const pid_t child = fork();
        if (child > 0 && i > 0) wait_for_ever(NULL);
        if (child != 0) return;
    }
    wait_for_ever(NULL);
}

static int make(const char* kind, int count) {
    pthread_attr_t small;
    pthread_t thread;
    int pair[2], failed = 0;
    const struct rlimit files = {65536, 65536};
    (void)setrlimit(RLIMIT_NOFILE, &files);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    if (strcmp(kind, "chain") == 0) return chain(count), 0;
    for (int i = 0; i < count && failed == 0; ++i) {
        if (strcmp(kind, "processes") == 0) {
            const pid_t child = fork();
            if (child == 0) wait_for_ever(NULL);
            failed = child < 0;
        } else if (strcmp(kind, "threads") == 0) {
            failed = pthread_create(&thread, &small, wait_for_ever, NULL);
        } else if (strcmp(kind, "mappings") == 0) {  // two rights in turn, or they would be one
            char* const at = mmap(NULL, 8192, PROT_READ | PROT_WRITE | (i % 2 ? PROT_EXEC : 0),
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            failed = at == MAP_FAILED;
            if (!failed) *at = (char)i;
        } else if (strcmp(kind, "sockets") == 0) {
            failed = socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || write(pair[0], "x", 1) != 1;
        } else if (strcmp(kind, "descriptors") == 0) {
            failed = pipe(pair) != 0 || open("/dev/null", O_RDWR) < 0;
        } else {
            return 1;
        }
    }
    return failed;
}

int main(int argc, char** argv) {
    char kind[32];
    int count;
    if (argc != 3 || sscanf(argv[1], "%31[a-z]:%d", kind, &count) != 2) return 2;
    if (make(kind, count) != 0) return 1;
    const int file = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file < 0) return 1;
    for (double before = ms();;) {
        if (!note_gap(file, &before)) return 1;
    }
}
