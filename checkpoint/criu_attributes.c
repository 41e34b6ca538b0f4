// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: attributes of processes that CRIU does not carry are set
// before the first thread goes on. souk-init has written them beside the image
// (agentd/init/attributes.cpp).
//
// A process sets its personality itself, as soon as it is born: what it does then is CRIU's code.
// The bits of a personality that would change the mappings which CRIU is about to make stay unset.
//
// This also treats the signal that a process gets when its parent ends. The parent of a job's root
// is CRIU, which ends, and then souk-init, as it was before. The root loses that signal here, since
// its parent never ends before it (CRIU would send it at once).
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/init_protocol.h"

// -------------------------------------------------------------------------------------------------
// by the process itself

static pid_t criu;
static bool restores;

__attribute__((constructor)) static void loaded(void) {
    criu = (pid_t)syscall(SYS_getpid);
    restores = getenv("SOUK_DUMP") == NULL;
}

// The attributes of each process. The first process that CRIU makes reads them, and those that come
// from it have them in their memory: CRIU closes the image in the first one before it makes others.
static struct souk_attributes* noted;
static size_t noted_count;

static void read_attributes(void) {
    enum { bytes_max = 16 << 20 };
    const int fd = open_image(SOUK_ATTRIBUTES_NAME, O_RDONLY);
    if (fd < 0) return;
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size <= bytes_max &&
        (noted = malloc((size_t)st.st_size)) != NULL) {
        const ssize_t n = syscall(SYS_read, fd, noted, (size_t)st.st_size);
        noted_count = n > 0 ? (size_t)n / sizeof *noted : 0;
    }
    close(fd);
}

static void take_personality(pid_t own) {
    const int error = errno;
    if ((pid_t)syscall(SYS_getppid) == criu) read_attributes();
    unsigned long wanted = 0;
    for (size_t i = 0; i < noted_count; ++i)
        if (noted[i].pid == own) wanted = noted[i].personality;
    wanted &= ~(unsigned long)(READ_IMPLIES_EXEC | ADDR_LIMIT_32BIT | ADDR_LIMIT_3GB);
    // Until now the process has the personality of its parent.
    if (noted_count > 0) personality(wanted);
    errno = error;
}

// CRIU's first call in each process that it has made (criu/cr-restore.c,
// restore_task_with_children).
pid_t getpid(void) {
    static pid_t known;
    const pid_t own = (pid_t)syscall(SYS_getpid);
    if (restores && own != criu && own != known) {
        if (!can_seal()) _exit(1);
        take_personality(known = own);
        locks_of_process();
        if ((pid_t)syscall(SYS_getppid) == criu) know_files(), know_notices(), make_files_again();
    }
    return own;
}

// CRIU has the end of each process that it makes told by SIGCHLD (criu/clone-noasan.c).
void keep_exit_signal(struct clone_args* how) {
    if (!restores || how->set_tid_size == 0 || how->exit_signal != SIGCHLD) return;
    const pid_t made = *(const pid_t*)(uintptr_t)how->set_tid;
    for (size_t i = 0; i < noted_count; ++i)
        if (noted[i].pid == made && noted[i].exit_signal != 0)
            how->exit_signal = noted[i].exit_signal < 0 ? 0 : (uint64_t)noted[i].exit_signal;
}

// CRIU leaves the highest bit out of what a zombie has ended with (criu/cr-restore.c,
// restore_one_zombie).
void exit(int status) {
    const int told = status & 0x7f;
    if (restores && status == told)
        for (size_t i = 0; i < noted_count; ++i)
            if (noted[i].exit_status != 0 && (noted[i].exit_status & 0x7f) == told &&
                noted[i].pid == (pid_t)syscall(SYS_getpid))
                status = noted[i].exit_status;
    void (*const real)(int) = (void (*)(int))dlsym(RTLD_NEXT, "exit");
    real(status);
    _exit(status);
}

// -------------------------------------------------------------------------------------------------
// from outside, while all threads stand

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
    // IOPRIO_WHO_PROCESS: of a thread, in fact; IOPRIO_CLASS_RT, which root alone may give.
    enum { of_process = 1, real_time = 1 };
    const bool may = !must_be_users() || (a->io_priority >> 13 & 7) != real_time;
    if (a->io_priority != 0 && may) syscall(SYS_ioprio_set, of_process, thread, a->io_priority);
    if (a->timer_slack != 0) write_text(thread, "timerslack_ns", "%lu", a->timer_slack);
}

static void set_of_process(const struct souk_attributes* a) {
    set_of_thread(a->pid, a);
    if (a->has_core_filter) write_text(a->pid, "coredump_filter", "0x%lx", a->core_filter);
    const struct rlimit limit = {a->cpu_soft, a->cpu_hard};
    if (a->cpu_soft != 0) prlimit(a->pid, RLIMIT_CPU, &limit, NULL);
}

// A field of a message: its number if it is one, its bytes if it is a message. False: it is not
// there.
static bool find_field(struct bytes b, uint64_t tag, struct bytes* inner, uint64_t* value) {
    struct member m;
    while (next_member(&b, &m)) {
        *inner = m.inner;
        *value = m.value;
        if (m.number == tag) return true;
    }
    return false;
}

// Tells whether the image of the process has such a signal (images/core.proto: thread_core 5, in it
// pdeath_sig 8).
static bool has_signal_of_parent(pid_t process) {
    enum { head = 12, thread_core = 5, pdeath_sig = 8 };  // two magic numbers and its size
    static unsigned char image[64 * 1024];
    char name[32];
    struct bytes core, none;
    uint64_t value;
    snprintf(name, sizeof name, "core-%d.img", process);
    const int fd = open_image(name, O_RDONLY);
    const ssize_t n = fd < 0 ? -1 : read(fd, image, sizeof image);
    if (fd >= 0) close(fd);
    return n > head &&
           find_field((struct bytes){image + head, image + n}, thread_core, &core, &value) &&
           find_field(core, pdeath_sig, &none, &value) && value != 0;
}

static void no_signal_of_parent(pid_t thread, const struct souk_attributes* none) {
    (void)none;
    call_in(thread, (const long[7]){SYS_prctl, PR_SET_PDEATHSIG});
}

// Returns the first one.
static pid_t spare_roots(void) {
    pid_t first = 0;
    char path[48], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", criu);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n < 0 ? 0 : n] = 0;
    char* end;
    for (const char* at = text;; at = end) {
        const long child = strtol(at, &end, 10);
        if (end == at) return first;
        if (first == 0) first = (pid_t)child;
        if (has_signal_of_parent((pid_t)child))
            each_thread((pid_t)child, no_signal_of_parent, NULL);
    }
}

// A file that the image has not means that there is nothing to do. So the image must be there.
static bool image_is_there(void) {
    struct stat st;
    return fstat(images_fd, &st) == 0 && st.st_nlink > 0;
}

static bool make_ready(void) {
    const pid_t root = spare_roots();
    if (!image_is_there()) return false;
    const int fd = open_image(SOUK_ATTRIBUTES_NAME, O_RDONLY);
    struct souk_attributes one;
    while (fd >= 0 && read(fd, &one, sizeof one) == (ssize_t)sizeof one)
        if (is_held(one.pid)) set_of_process(&one);
    if (fd >= 0) close(fd);
    set_sockets();
    watch_again();
    tell_of_lost_notices();
    return give_tiles() && restore_semaphores(root) && restore_seals() && hand_over_locks();
}

bool before_all_go(void) {
    static enum { unknown, ready, refused } state;
    if (!restores) return true;
    if (is_trial()) {  // also if whoever asked for it says that it is to go on
        refuse("it is restored for trial alone");
        errno = EPERM;
        return false;
    }
    if (state == unknown) state = make_ready() ? ready : refused;
    if (state == refused) errno = EPERM;
    return state == ready;
}
