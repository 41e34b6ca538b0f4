// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that dumps. To CRIU all threads of a process share its directories and
// umask, its descriptors and its namespaces. A thread that has its own (unshare(2)) would have
// those of its process elsewhere, so the job does not move.
#define _GNU_SOURCE
#include <linux/kcmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

static const struct {
    int number;
    const char* name;
} kinds[] = {{KCMP_FS, "working directory and umask (CLONE_FS)"},
             {KCMP_FILES, "descriptors (CLONE_FILES)"}};

// The kind of namespace that the thread has for itself; NULL: none.
static const char* own_space(pid_t process, pid_t thread) {
    static const char* const spaces[] = {"mnt", "net", "uts", "ipc", "cgroup"};
    char path[64], of_all[64], own[64];
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; ++i) {
        snprintf(path, sizeof path, "/proc/%d/ns/%s", process, spaces[i]);
        const ssize_t n = readlink(path, of_all, sizeof of_all);
        snprintf(path, sizeof path, "/proc/%d/ns/%s", thread, spaces[i]);
        if (n > 0 && (readlink(path, own, sizeof own) != n || memcmp(own, of_all, (size_t)n) != 0))
            return spaces[i];
    }
    return NULL;
}

static bool is_like_its_process(pid_t process, pid_t thread) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        const long said = syscall(SYS_kcmp, process, thread, kinds[i].number, 0UL, 0UL);
        if (said <= 0) continue;
        refuse("process %d has a thread with its own %s", process, kinds[i].name);
        return false;
    }
    const char* const space = own_space(process, thread);
    if (space != NULL)
        refuse("process %d has a thread with a namespace of its own (%s)", process, space);
    return space == NULL;
}

bool shares_as_usual(const pid_t* threads, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const pid_t process = process_of(threads[i]);
        if (process != 0 && process != threads[i] && !is_like_its_process(process, threads[i]))
            return false;
    }
    return true;
}
