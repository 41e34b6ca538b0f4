// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that dumps: a thread that has shut itself in with Landlock is not taken. No
// kernel says what such a thread may do, so that nothing could shut it in again.
//
// Nor does one say that it is shut in. But such a thread may not look into a process that is not
// shut in with it, and may otherwise, if that one has its ids and no more rights than it. Here is
// such a process; the thread asks for the list of its robust futexes, with no place for the answer.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

static void end_other(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, __WALL);
}

// A process with these ids and without rights. Others of the same user may look into it: it holds
// nothing of CRIU's open, and as it stands and is traced it never does what they might write there.
// Returns its number when it is so, or -1.
static pid_t begin_other(uid_t uid, gid_t gid) {
    int status;
    const pid_t pid = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);  // it ends without a signal
    if (pid == 0) {
        struct __user_cap_header_struct of = {_LINUX_CAPABILITY_VERSION_3, 0};
        const struct __user_cap_data_struct none[2] = {{0}};
        if (syscall(SYS_close_range, 0U, ~0U, 0U) == 0 &&
            syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0) == 0 &&
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
            syscall(SYS_setresgid, gid, gid, gid) == 0 &&
            syscall(SYS_setresuid, uid, uid, uid) == 0 && syscall(SYS_capset, &of, none) == 0 &&
            prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0)
            syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP);
        syscall(SYS_exit_group, 1);
    }
    const bool is_ready = pid > 0 && waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status);
    return is_ready ? pid : -1;
}

// Another security module may forbid it as well, and then it is not known which of the two did.
// Returns the label by which it confines the thread; "": none does.
static const char* label_of(pid_t thread) {
    static char label[128];
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/attr/current", thread);
    FILE* const file = fopen(path, "re");
    const size_t n = file == NULL ? 0 : fread(label, 1, sizeof label - 1, file);
    if (file != NULL) fclose(file);
    label[n] = 0;
    label[strcspn(label, "\n")] = 0;
    return strcmp(label, "unconfined") == 0 ? "" : label;
}

static void refuse_shut_in(pid_t thread) {
    const char* const label = label_of(thread);
    if (*label == 0)
        refuse("process %d has shut itself in with Landlock, which would be open elsewhere",
               process_of(thread));
    else
        refuse(
            "process %d is shut in with Landlock, which would be open elsewhere, or confined "
            "by its security label (%s) in a way that hides whether it is",
            process_of(thread), label);
}

bool is_free_of_landlock(const pid_t* threads, size_t count) {
    pid_t other = 0, found = 0, first = 0;
    uid_t uid, of = 0;
    gid_t gid, with = 0;
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 0)
        return true;
    for (size_t i = 0; i < count && found == 0; ++i) {
        // Most threads have the ids of the one before, with which they may look at it.
        const long ask[7] = {SYS_get_robust_list, other};
        if (i > 0 && other > 0 && is_thread_of(first, threads[i]) &&
            call_in(threads[i], ask) != -EPERM)
            continue;
        if (!ids_of(threads[i], &uid, &gid)) continue;  // it has ended
        if (!is_thread_of(first, threads[i])) first = threads[i];
        if (other <= 0 || uid != of || gid != with) {
            if (other > 0) end_other(other);
            other = begin_other(of = uid, with = gid);
            if (other < 0) break;
        }
        if (call_in(threads[i], (const long[7]){SYS_get_robust_list, other}) == -EPERM)
            found = threads[i];
    }
    if (other > 0) end_other(other);
    if (other < 0) refuse("cannot learn whether it is shut in with Landlock");
    if (found != 0) refuse_shut_in(found);
    return found == 0 && other >= 0;
}
