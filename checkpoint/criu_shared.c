// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that dumps. A thread that has things of its own which threads share with
// their process (own_shares.h) would have those of its process elsewhere, so the job does not move.
#define _GNU_SOURCE
#include <stdbool.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/own_shares.h"

bool shares_as_usual(const pid_t* threads, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const pid_t process = process_of(threads[i]);
        const char* const own =
            process != 0 && process != threads[i] ? souk_own_share(process, threads[i]) : NULL;
        if (own == NULL) continue;
        refuse("process %d has %s", process, own);
        return false;
    }
    return true;
}
