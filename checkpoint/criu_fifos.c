// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores, so that what waits in a FIFO is there once.
//
// A dump copies it into the image and leaves it where it is; a restore opens the FIFO by its name
// and puts the copy in (criu/fifo.c, do_open_fifo). Where source and destination see the same file
// system of one kernel, that is the very pipe that the frozen source, or a process outside of the
// job, still holds, with all that waits in it. Nothing that is restored has run yet: so a pipe that
// has bytes is that one.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

// CRIU asks again for what did not go in at once (criu/pipes.c, restore_pipe_data): here all of it
// goes in, or nothing.
ssize_t vmsplice(int fd, const struct iovec* parts, size_t count, unsigned flags) {
    int waiting = 0;
    if (is_trial()) return parts->iov_len;  // a FIFO may be others' as well
    if (count != 1) return syscall(SYS_vmsplice, fd, parts, count, flags);
    if (syscall(SYS_ioctl, fd, FIONREAD, &waiting) == 0 && waiting > 0)
        return (ssize_t)parts->iov_len;
    struct iovec left = *parts;
    while (left.iov_len > 0) {
        const long n = syscall(SYS_vmsplice, fd, &left, 1UL, flags);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n;
        left.iov_base = (char*)left.iov_base + n;
        left.iov_len -= (size_t)n;
    }
    return (ssize_t)parts->iov_len;
}
