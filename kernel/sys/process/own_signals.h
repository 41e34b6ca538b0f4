/* SPDX-License-Identifier: GPL-2.0-or-later
 * A process may have as many signals that wait, and timers, as RLIMIT_SIGPENDING says when they
 * come. One whose limit was lowered since then cannot be made again. For C and C++. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Whether the process has more of them than it may. Those of all processes of its user count. */
static inline int souk_has_signals_above_limit(pid_t process) {
    enum { few = 4096 };
    char path[40], line[256];
    struct rlimit may;
    unsigned long used = 0;
    int has = 0;
    if (syscall(SYS_prlimit64, process, RLIMIT_SIGPENDING, NULL, &may) != 0 || may.rlim_cur >= few)
        return 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    FILE* const status = fopen(path, "re");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, "SigQ:", 5) == 0) used = strtoul(line + 5, NULL, 10);
        if (strncmp(line, "SigPnd:", 7) == 0 || strncmp(line, "ShdPnd:", 7) == 0)
            has |= strtoul(line + 7, NULL, 16) != 0;
    }
    if (status != NULL) fclose(status);
    if (used <= may.rlim_cur) return 0;
    snprintf(path, sizeof path, "/proc/%d/timers", (int)process);
    FILE* const timers = has ? NULL : fopen(path, "re");
    if (timers != NULL) has = fgetc(timers) != EOF;
    if (timers != NULL) fclose(timers);
    return has;
}

#define SOUK_SIGNALS_ABOVE_LIMIT                                                                   \
    "more signals that wait, or timers, than it may (RLIMIT_SIGPENDING); it can move when it has " \
    "none, or may have more (ulimit -i)"
