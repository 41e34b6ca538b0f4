// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into CRIU: a process that has as many files open, or as much memory, as it
// may (ulimit -n, -v) can be dumped all the same. CRIU's code in it needs one file and some memory.
//
// The limits of a process are raised as long as CRIU holds it, but for the moment in which CRIU
// asks for them. If they cannot be raised (a hard limit, and CRIU without CAP_SYS_RESOURCE), the
// process is not taken. If CRIU is killed meanwhile, a process of its own lowers them again.
//
// A restore sets the limits before it gives a process its timers and the signals that wait, so that
// a process with more of these than it may have is not taken either.
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/own_signals.h"

enum { files_needed = 16, bytes_needed = 1 << 20, resources = 2 };
static const int kinds[resources] = {RLIMIT_NOFILE, RLIMIT_AS};

static struct lifted {
    pid_t process;
    int kind;
    struct rlimit was, is;
    bool hidden;  // for a moment it is as it was
} * lifted;
static size_t lifted_count;

static long limit_of(pid_t process, int kind, const struct rlimit* to, struct rlimit* from) {
    return syscall(SYS_prlimit64, process, kind, to, from);
}

// 0: not known.
static rlim_t in_use(pid_t process, int kind) {
    char path[32];
    struct stat st;
    unsigned long pages = 0;
    if (kind == RLIMIT_NOFILE) {
        snprintf(path, sizeof path, "/proc/%d/fd", process);
        return stat(path, &st) == 0 ? (rlim_t)st.st_size : 0;  // how many, from 6.2 on
    }
    snprintf(path, sizeof path, "/proc/%d/statm", process);
    FILE* const file = fopen(path, "re");
    if (file == NULL) return 0;
    if (fscanf(file, "%lu", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

// -------------------------------------------------------------------------------------------------
// if CRIU is killed

static int guard = -1;  // a socket to the process that hears of each limit, and of CRIU's end
static pid_t guard_process;

static bool add_lifted(const struct lifted* one) {
    struct lifted* const more = realloc(lifted, (lifted_count + 1) * sizeof *lifted);
    if (more == NULL) return false;
    lifted = more;
    lifted[lifted_count++] = *one;
    return true;
}

static void guard_limits(int from) {
    struct lifted one;
    if (from > 0) (void)syscall(SYS_close_range, 0U, (unsigned)from - 1, 0U);
    (void)syscall(SYS_close_range, (unsigned)from + 1, ~0U, 0U);
    while (syscall(SYS_read, from, &one, sizeof one) == (ssize_t)sizeof one)
        if (one.process == 0)
            lifted_count = 0;
        else
            (void)add_lifted(&one);
    put_limits_back(0);
    syscall(SYS_exit_group, 0);
}

// CRIU waits for any child when it has ended the processes (criu/cr-dump.c, pstree_wait): it would
// wait for this one for ever.
void end_guard(void) {
    if (guard < 0) return;
    close(guard);
    guard = -1;
    if (guard_process > 0) (void)waitpid(guard_process, NULL, __WALL);
}

static bool tell_guard(const struct lifted* one) {
    int pair[2];
    if (getenv("SOUK_DUMP") == NULL) return true;  // what is restored ends with its CRIU
    if (guard < 0) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return false;
        const long pid = syscall(SYS_clone, 0, 0, 0, 0, 0);  // it ends without a signal
        if (pid == 0) guard_limits(pair[1]);
        close(pair[1]);
        guard = pair[0];
        guard_process = (pid_t)pid;
        if (pid < 0) return false;
    }
    return syscall(SYS_sendto, guard, one, sizeof *one, MSG_NOSIGNAL, NULL, 0) == (long)sizeof *one;
}

// -------------------------------------------------------------------------------------------------

static bool lift(pid_t process, int kind) {
    const rlim_t needed = kind == RLIMIT_NOFILE ? files_needed : bytes_needed;
    struct rlimit was;
    if (limit_of(process, kind, NULL, &was) != 0 || was.rlim_cur == RLIM_INFINITY) return true;
    const rlim_t used = in_use(process, kind);
    if (used != 0 && used + needed < was.rlim_cur) return true;
    const rlim_t wanted = was.rlim_cur + needed;
    const struct rlimit soft = {wanted, was.rlim_max},
                        both = {wanted, was.rlim_max < wanted ? wanted : was.rlim_max};
    for (const struct rlimit* to = wanted <= was.rlim_max ? &soft : &both;; to = &both) {
        const struct lifted one = {process, kind, was, *to, false};
        if (!tell_guard(&one)) return false;  // beforehand: there is no moment without it
        if (limit_of(process, kind, to, NULL) == 0) return add_lifted(&one);
        if (to == &both) break;
    }
    if (used == 0) return true;  // CRIU finds out
    refuse("process %d %s, and CRIU needs %s more", process,
           kind == RLIMIT_NOFILE ? "has as many files open as it may (ulimit -n)"
                                 : "has as much memory as it may (ulimit -v)",
           kind == RLIMIT_NOFILE ? "a few" : "a megabyte");
    return false;
}

bool lift_limits(const pid_t* processes, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        for (int k = 0; k < resources; ++k)
            if (!lift(processes[i], kinds[k])) return false;
        if (getenv("SOUK_DUMP") == NULL || !souk_has_signals_above_limit(processes[i])) continue;
        refuse("process %d has " SOUK_SIGNALS_ABOVE_LIMIT, processes[i]);
        return false;
    }
    return true;
}

void put_limits_back(pid_t process) {
    for (size_t i = 0; i < lifted_count; ++i)
        if (process == 0 || process == lifted[i].process)
            (void)limit_of(lifted[i].process, lifted[i].kind, &lifted[i].was, NULL);
    if (process != 0) return;
    lifted_count = 0;
    const struct lifted none = {0};
    if (guard >= 0) (void)tell_guard(&none);
}

// CRIU's last file of a process before it asks for its limits (criu/cr-dump.c, dump_pid_misc).
int before_limits(int directory, const char* name, int fd) {
    if (lifted_count == 0 || strcmp(name, "oom_score_adj") != 0) return fd;
    const int error = errno;
    const pid_t process = process_at(directory);
    if (process > 0) put_limits_back(process);
    for (size_t i = 0; i < lifted_count; ++i) lifted[i].hidden |= lifted[i].process == process;
    errno = error;
    return fd;
}

// The next that it asks its code in a process to do.
ssize_t send(int socket, const void* bytes, size_t size, int flags) {
    for (size_t i = 0; i < lifted_count; ++i)
        if (lifted[i].hidden) {
            lifted[i].hidden = false;
            (void)limit_of(lifted[i].process, lifted[i].kind, &lifted[i].is, NULL);
        }
    return syscall(SYS_sendto, socket, bytes, size, flags, NULL, 0);
}
