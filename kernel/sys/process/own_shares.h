/* SPDX-License-Identifier: GPL-2.0-or-later
 * To CRIU all threads of a process share its directories and umask, its descriptors and its
 * namespaces, and no two processes share any. clone(2) and unshare(2) can make it otherwise. For C
 * and C++. */
#pragma once

#include <linux/kcmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SOUK_SHARED_FS "working directory and umask (CLONE_FS)"
#define SOUK_SHARED_FILES "descriptors (CLONE_FILES)"
#define SOUK_SHARED_VM "memory (CLONE_VM)"

/* As kcmp(2) says it: 0 if they share it, 1 if that of `a` is less. */
static inline long souk_compare_shares(pid_t a, pid_t b, int kind) {
    return syscall(SYS_kcmp, a, b, kind, 0UL, 0UL);
}

/* Says in words which of these the thread has for itself; NULL: none. */
static inline const char* souk_own_share(pid_t process, pid_t thread) {
    static const char* const spaces[][2] = {
        {"mnt", "a thread with a namespace of its own (mnt)"},
        {"net", "a thread with a namespace of its own (net)"},
        {"uts", "a thread with a namespace of its own (uts)"},
        {"ipc", "a thread with a namespace of its own (ipc)"},
        {"cgroup", "a thread with a namespace of its own (cgroup)"}};
    char path[64], of_all[64], own[64];
    if (souk_compare_shares(process, thread, KCMP_FS) > 0)
        return "a thread with its own " SOUK_SHARED_FS;
    if (souk_compare_shares(process, thread, KCMP_FILES) > 0)
        return "a thread with its own " SOUK_SHARED_FILES;
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; ++i) {
        snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)process, spaces[i][0]);
        const ssize_t n = readlink(path, of_all, sizeof of_all);
        snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)thread, spaces[i][0]);
        const ssize_t m = readlink(path, own, sizeof own);
        if (n > 0 && m > 0 && (m != n || memcmp(own, of_all, (size_t)n) != 0)) return spaces[i][1];
    }
    return NULL;
}
