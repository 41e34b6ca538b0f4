/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A job notes for how long it did not run: the pause of a move as the job has it, whoever moves it.
 * The clock is that of the wall: the others are set by a restore to go on from where they stood. */
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Appends to `file`, in ms, the time since `before`, which becomes now, if it is longer than 3 ms.
 * False: it cannot be written. */
static bool note_gap(int file, double* before) {
    const double now = ms(), gap = now - *before;
    char line[32];
    *before = now;
    return gap <= 3 || write(file, line, (size_t)snprintf(line, sizeof line, "%.3f\n", gap)) >= 0;
}
