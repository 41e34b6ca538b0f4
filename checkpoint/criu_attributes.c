// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: attributes of processes that CRIU does not carry are set
// while it still holds all threads, so that the job never runs without them. souk-init has written
// them beside the image (agentd/init/attributes.cpp).
//
// Also, the signal that a process gets when its parent ends: the parent of a job's root is CRIU,
// which ends, and then souk-init, as it was before. The root loses that signal here, since its
// parent never ends before it (CRIU would send it at once).
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/init_protocol.h"

enum { images_fd = 200 };  // checkpoint/launch.hpp

static void write_text(pid_t process, const char* name, const char* format, unsigned long value) {
    char path[48], text[24];
    snprintf(path, sizeof path, "/proc/%d/%s", process, name);
    const int n = snprintf(text, sizeof text, format, value);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!write(fd, text, (size_t)n);
    close(fd);
}

static void each_thread(pid_t process, void (*visit)(pid_t, const struct souk_attributes*),
                        const struct souk_attributes* what) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR* const threads = opendir(path);
    if (threads == NULL) return;
    for (struct dirent* one; (one = readdir(threads)) != NULL;)
        if (atoi(one->d_name) > 0) visit(atoi(one->d_name), what);
    closedir(threads);
}

static void set_of_thread(pid_t thread, const struct souk_attributes* a) {
    enum { of_process = 1 };  // IOPRIO_WHO_PROCESS: of a thread, in fact
    if (a->personality != 0) call_in(thread, SYS_personality, (long)a->personality, 0);
    if (a->io_priority != 0) syscall(SYS_ioprio_set, of_process, thread, a->io_priority);
    if (a->timer_slack != 0) write_text(thread, "timerslack_ns", "%lu", a->timer_slack);
}

static void set_of_process(const struct souk_attributes* a) {
    each_thread(a->pid, set_of_thread, a);
    if (a->has_core_filter) write_text(a->pid, "coredump_filter", "0x%lx", a->core_filter);
    const struct rlimit limit = {a->cpu_soft, a->cpu_hard};
    if (a->cpu_soft != 0) prlimit(a->pid, RLIMIT_CPU, &limit, NULL);
}

static void no_signal_of_parent(pid_t thread, const struct souk_attributes* none) {
    (void)none;
    call_in(thread, SYS_prctl, PR_SET_PDEATHSIG, 0);
}

static void spare_roots(void) {
    char path[48], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n < 0 ? 0 : n] = 0;
    char* end;
    for (const char* at = text;; at = end) {
        const long child = strtol(at, &end, 10);
        if (end == at) return;
        each_thread((pid_t)child, no_signal_of_parent, NULL);
    }
}

void before_all_go(void) {
    static bool done;
    if (done || getenv("SOUK_DUMP") != NULL) return;
    done = true;
    spare_roots();
    const int fd = (int)syscall(SYS_openat, images_fd, SOUK_ATTRIBUTES_NAME,
                                O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct souk_attributes one;
    while (fd >= 0 && read(fd, &one, sizeof one) == (ssize_t)sizeof one) set_of_process(&one);
    if (fd >= 0) close(fd);
}
