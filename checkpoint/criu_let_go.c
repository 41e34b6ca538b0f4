// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: the last word before a job of a plain user runs is the
// kernel's, and it is asked here, by the process that lets the job go. So it holds whatever an
// image says, and whoever speaks with CRIU over its socket (an agentd that was taken over).
//
// CRIU seizes each thread before it gives up root's rights, and lets all go at the end
// (criu/cr-restore.c: attach_to_tasks, finalize_restore_detach). In between the thread dies with
// CRIU (PTRACE_O_EXITKILL), or it would run on unseen. Before the first one goes, each of them must
// be the user's: his ids and groups, no capability and none to gain, and in CRIU's own namespaces
// of mounts, of the network and of users, which are the capsule's; and kept from the system calls
// that the node wants no job to make (criu_filters.c).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

static pid_t* seized;
static size_t seized_count, seized_room;
static bool gone;  // they were let go

static bool remember(pid_t thread) {
    if (seized_count == seized_room) {
        const size_t room = seized_room == 0 ? 64 : 2 * seized_room;
        pid_t* const more = realloc(seized, room * sizeof *seized);
        if (more == NULL) return false;
        seized = more;
        seized_room = room;
    }
    seized[seized_count++] = thread;
    return true;
}

const pid_t* held_threads(size_t* count) {
    *count = seized_count;
    return seized;
}

// -------------------------------------------------------------------------------------------------
// what the kernel says of a thread

const char* text_of(pid_t thread, const char* name) {
    static char text[8192];
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/%s", thread, name);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : syscall(SYS_read, fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return NULL;
    text[n] = 0;
    return text;
}

static char status[256 * 1024];  // with room for the groups of whoever has most

static bool read_status(pid_t thread) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    for (ssize_t got = 1; fd >= 0 && got > 0 && n < sizeof status - 1; n += (size_t)got) {
        got = read(fd, status + n, sizeof status - 1 - n);
        if (got < 0) got = 0;
    }
    if (fd >= 0) close(fd);
    status[n] = 0;
    return n > 0 && n < sizeof status - 1;
}

// Returns what stands behind "\nNAME:". The newline keeps it from matching the first line, which
// holds the program's name, and the program chooses that.
static const char* line_of(const char* name) {
    char key[24];
    snprintf(key, sizeof key, "\n%s:", name);
    const char* const at = strstr(status, key);
    return at == NULL ? NULL : at + strlen(key);
}

// Tells whether each number of the line passes, and there are `count` of them (-1: any number).
static bool all_pass(const char* name, bool (*passes)(unsigned long), int base, int count) {
    const char* at = line_of(name);
    if (at == NULL) return false;
    for (int found = 0;; ++found) {
        while (*at == ' ' || *at == '\t') ++at;
        if (*at == '\n' || *at == 0) return count < 0 || found == count;
        char* end;
        const unsigned long number = strtoul(at, &end, base);
        if (end == at || !passes(number)) return false;
        at = end;
    }
}

bool is_thread_of(pid_t process, pid_t thread) {
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/task/%d", process, thread);
    return process == thread || (process > 0 && access(path, F_OK) == 0);
}

pid_t process_of(pid_t thread) {
    const char* const line = read_status(thread) ? line_of("Tgid") : NULL;
    return line == NULL ? 0 : (pid_t)strtol(line, NULL, 10);
}

bool ids_of(pid_t thread, uid_t* uid, gid_t* gid) {
    if (!read_status(thread)) return false;
    const char *const user = line_of("Uid"), *const group = line_of("Gid");
    if (user == NULL || group == NULL) return false;
    *uid = (uid_t)strtoul(user, NULL, 10);
    *gid = (gid_t)strtoul(group, NULL, 10);
    return true;
}

static bool is_uid(unsigned long number) { return number == user_id(); }
static bool is_none(unsigned long number) { return number == 0; }
static bool is_one(unsigned long number) { return number == 1; }
static bool is_group(unsigned long number) { return is_users_group((gid_t)number); }

static bool same_namespace(pid_t thread, const char* name) {
    char path[40];
    struct stat its, own;
    snprintf(path, sizeof path, "/proc/%d/ns/%s", thread, name);
    if (syscall(SYS_newfstatat, AT_FDCWD, path, &its, 0) != 0) return false;
    snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    return syscall(SYS_newfstatat, AT_FDCWD, path, &own, 0) == 0 && its.st_ino == own.st_ino;
}

static bool is_the_users(pid_t thread) {
    return read_status(thread) && all_pass("Uid", is_uid, 10, 4) &&
           all_pass("Gid", is_group, 10, 4) && all_pass("Groups", is_group, 10, -1) &&
           all_pass("CapInh", is_none, 16, 1) && all_pass("CapPrm", is_none, 16, 1) &&
           all_pass("CapEff", is_none, 16, 1) && all_pass("CapAmb", is_none, 16, 1) &&
           all_pass("NoNewPrivs", is_one, 10, 1) && same_namespace(thread, "mnt") &&
           same_namespace(thread, "net") && same_namespace(thread, "user");
}

// -------------------------------------------------------------------------------------------------

static long end_all(void) {
    for (size_t i = 0; i < seized_count; ++i) kill(seized[i], SIGKILL);
    errno = EPERM;
    return -1;
}

static long let_go(void) {
    for (size_t i = 0; i < seized_count; ++i)
        if (!is_the_users(seized[i])) return end_all();
    if (!are_calls_limited(seized, seized_count)) return end_all();
    for (size_t i = 0; i < seized_count; ++i)
        if (syscall(SYS_ptrace, PTRACE_SETOPTIONS, seized[i], NULL, NULL) != 0 && errno != ESRCH)
            return -1;
    gone = true;
    return 0;
}

void die_with_criu(void) {
    const long all = PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD,
               with_filters = all | PTRACE_O_SUSPEND_SECCOMP;
    for (size_t i = 0; i < seized_count; ++i)
        if (syscall(SYS_ptrace, PTRACE_SETOPTIONS, seized[i], NULL, with_filters) != 0)
            (void)syscall(SYS_ptrace, PTRACE_SETOPTIONS, seized[i], NULL, all);
}

// The first thread of each process. CRIU seizes the others of a process right after it, so that one
// cheap question tells them: /proc/PID/status takes the kernel ten times as long.
static size_t first_threads(pid_t* firsts) {
    size_t count = 0;
    for (size_t i = 0; i < seized_count; ++i)
        if ((count == 0 || !is_thread_of(firsts[count - 1], seized[i])) &&
            process_of(seized[i]) == seized[i])
            firsts[count++] = seized[i];
    return count;
}

// A program may have its own code make its system calls (PR_SET_SYSCALL_USER_DISPATCH). CRIU knows
// nothing of that, and elsewhere the kernel would make them. A kernel before 6.4 does not tell.
static bool makes_calls_itself(void) {
    enum { get_config = 0x4211 };  // PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG
    struct {
        uint64_t mode, selector, offset, length;
    } config;
    for (size_t i = 0; i < seized_count; ++i) {
        if (syscall(SYS_ptrace, get_config, seized[i], sizeof config, &config) != 0 ||
            config.mode == 0)
            continue;
        refuse(
            "the code of process %d makes its system calls (PR_SET_SYSCALL_USER_DISPATCH), "
            "which nobody could tell a kernel elsewhere",
            process_of(seized[i]));
        return true;
    }
    return false;
}

// CRIU's first question of the kind comes when all threads stand, and it has changed nothing of
// them yet (criu/cr-dump.c, dump_one_task).
static long before_dump(void) {
    static bool asked;
    if (asked) return 0;
    asked = true;
    pid_t* const firsts = malloc((seized_count + 1) * sizeof *firsts);
    const size_t processes = firsts == NULL ? 0 : first_threads(firsts);
    const bool good = firsts != NULL && shares_as_usual(seized, seized_count) &&
                      has_no_fifo_of_others(firsts, processes) && lift_limits(firsts, processes) &&
                      has_usual_mappings(firsts, processes) && note_tiles(seized, seized_count) &&
                      is_free_of_landlock(seized, seized_count) && !makes_calls_itself() &&
                      dump_semaphores(seized, seized_count);
    if (good) note_memory(firsts, processes);
    free(firsts);
    if (good) return 0;
    errno = EPERM;
    return -1;
}

long before_ptrace(int request, pid_t thread, void** data) {
    const bool dumps = getenv("SOUK_DUMP") != NULL;
    if (dumps && request == PTRACE_PEEKSIGINFO) return before_dump();
    if (dumps && request == PTRACE_DETACH) put_limits_back(0);
    if (dumps && request == PTRACE_SEIZE) (void)remember(thread);
    if (!must_be_users() || gone) return 0;
    if (request == PTRACE_SETOPTIONS || request == PTRACE_SEIZE)
        *data = (void*)((long)*data | PTRACE_O_EXITKILL);
    if (request == PTRACE_SEIZE && !remember(thread)) {
        errno = ENOMEM;
        return -1;
    }
    return request == PTRACE_DETACH ? let_go() : 0;
}
