// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: who watches files hears that some notices are lost
// (IN_Q_OVERFLOW), as the kernel says it when too many wait.
//
// Notices that wait in an inotify at a dump go with it, and what happens to the files while the job
// is moved or frozen nobody tells it. CRIU only makes the watches again. A program that hears of an
// overflow looks for itself what has changed.
//
// The kernel says so when as many notices wait as may (fs.inotify.max_queued_events), and nobody
// can have it say so otherwise. So here that many come of a file without a name, and are read
// again, all but the last, which says it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/init_protocol.h"

#ifndef INOTIFY_IOC_SETNEXTWD
#define INOTIFY_IOC_SETNEXTWD _IOW('I', 0, int32_t)
#endif

#define DIRECTORY "/run/souk-inotify" /* the capsule's own */

static long most_waiting(void) {
    char text[24] = "";
    const int fd =
        (int)syscall(SYS_openat, AT_FDCWD, "/proc/sys/fs/inotify/max_queued_events", O_RDONLY);
    if (fd >= 0) (void)!syscall(SYS_read, fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    return atol(text);
}

static void leave_last(int inotify) {
    const int last = sizeof(struct inotify_event);
    int waiting = 0;
    if (syscall(SYS_ioctl, inotify, FIONREAD, &waiting) != 0 || waiting <= last) return;
    char* const room = malloc((size_t)waiting);
    if (room == NULL) return;
    (void)!syscall(SYS_read, inotify, room, waiting - last);
    free(room);
}

// One write is told of the file and of its directory: of two notices that are the same the kernel
// keeps one.
static void fill(int inotify, int file) {
    const int above = inotify_add_watch(inotify, DIRECTORY, IN_MODIFY);
    const int own = inotify_add_watch(inotify, DIRECTORY "/file", IN_MODIFY);
    for (long n = most_waiting(); n >= 0; n -= 2) (void)!pwrite(file, "", 1, 0);
    // Nobody is told of that: there is no room.
    inotify_rm_watch(inotify, own);
    inotify_rm_watch(inotify, above);
    leave_last(inotify);
    // The next one has the number that it would have had.
    if (above > 0) syscall(SYS_ioctl, inotify, INOTIFY_IOC_SETNEXTWD, above);
}

static void tell_lost(int inotify) {
    syscall(SYS_mkdirat, AT_FDCWD, DIRECTORY, 0700);
    const int file = (int)syscall(SYS_openat, AT_FDCWD, DIRECTORY "/file",
                                  O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0) fill(inotify, file);
    if (file >= 0) close(file);
    syscall(SYS_unlinkat, AT_FDCWD, DIRECTORY "/file", 0);
    syscall(SYS_unlinkat, AT_FDCWD, DIRECTORY, AT_REMOVEDIR);
}

static bool is_one_of(int fd, const int* all, size_t count) {
    const long own = syscall(SYS_getpid);
    for (size_t i = 0; i < count; ++i)
        if (syscall(SYS_kcmp, own, own, KCMP_FILE, (long)fd, (long)all[i]) == 0) return true;
    return false;
}

void tell_of_lost_notices(void) {
    struct souk_notified one;
    int* told = NULL;
    size_t count = 0;
    const int list = open_image(SOUK_NOTIFIED_NAME);
    while (list >= 0 && syscall(SYS_read, list, &one, sizeof one) == sizeof one) {
        int* const more = realloc(told, (count + 1) * sizeof *told);
        const int inotify = more == NULL ? -1 : file_of(one.pid, one.fd);
        if (more != NULL) told = more;
        if (inotify < 0) continue;
        // Several processes may have it open.
        if (!is_one_of(inotify, told, count)) tell_lost(inotify);
        told[count++] = inotify;
    }
    while (count > 0) close(told[--count]);
    free(told);
    if (list >= 0) close(list);
}
