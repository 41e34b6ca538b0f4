// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU, so that what goes through a FIFO arrives once.
//
// A dump copies it into the image and leaves it where it is; a restore opens the FIFO by its name
// and puts the copy in (criu/fifo.c, do_open_fifo). Where source and destination see the same file
// system of one kernel, that is the very pipe that the frozen source, or a process outside of the
// job, still holds, with all that waits in it. Nothing that is restored has run yet: so a pipe that
// has bytes is that one.
//
// A job that is frozen to disk has nothing open: who writes to it from outside gets SIGPIPE, and
// who reads from it takes that for the end. So a job with a FIFO that others have open as well is
// not frozen to disk.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "checkpoint/kept_files.h"

struct fifo {
    dev_t device;
    ino_t inode;
    bool reads, writes;           // the job does
    bool has_reader, has_writer;  // somebody is
    pid_t process;
};
static struct fifo* fifos;
static size_t fifo_count;

static struct fifo* fifo_of(const struct stat* st) {
    for (size_t i = 0; i < fifo_count; ++i)
        if (fifos[i].device == st->st_dev && fifos[i].inode == st->st_ino) return &fifos[i];
    struct fifo* const more = realloc(fifos, (fifo_count + 1) * sizeof *more);
    if (more == NULL) return NULL;
    fifos = more;
    fifos[fifo_count] = (struct fifo){.device = st->st_dev, .inode = st->st_ino};
    return &fifos[fifo_count++];
}

// Nothing is taken out, whoever writes meanwhile. To a reader that has never had a writer the
// kernel tells of none by poll(2).
static bool has_writer(int fd) {
    struct pollfd look = {.fd = fd, .events = POLLIN};
    int copy[2];
    if (poll(&look, 1, 0) == 1 && (look.revents & POLLHUP) != 0) return false;
    if (pipe2(copy, O_CLOEXEC) != 0) return true;
    const ssize_t n = tee(fd, copy[1], 1, SPLICE_F_NONBLOCK);
    close(copy[0]), close(copy[1]);
    return n != 0;
}

static void note_fifo(pid_t process, int number) {
    struct stat st;
    const int fd = file_of(process, number);
    struct fifo* const fifo = fd < 0 || fstat(fd, &st) != 0 ? NULL : fifo_of(&st);
    const int way = fd < 0 ? 0 : fcntl(fd, F_GETFL) & O_ACCMODE;
    struct pollfd look = {.fd = fd, .events = POLLOUT};
    if (fifo != NULL) {
        fifo->process = process;
        fifo->reads |= way != O_WRONLY, fifo->writes |= way != O_RDONLY;
        if (way == O_RDONLY) fifo->has_writer |= has_writer(fd);
        if (way == O_WRONLY)
            fifo->has_reader |= poll(&look, 1, 0) < 1 || (look.revents & POLLERR) == 0;
    }
    if (fd >= 0) close(fd);
}

bool has_no_fifo_of_others(const pid_t* processes, size_t count) {
    char path[64], link[2];
    struct stat st;
    if (syscall(SYS_faccessat, images_fd, SOUK_TO_DISK_NAME, F_OK) != 0) return true;
    (void)unlinkat(images_fd, SOUK_TO_DISK_NAME, 0);
    for (size_t i = 0; i < count; ++i) {
        snprintf(path, sizeof path, "/proc/%d/fd", processes[i]);
        DIR* const files = opendir(path);
        for (struct dirent* one; files != NULL && (one = readdir(files)) != NULL;)
            if (fstatat(dirfd(files), one->d_name, &st, 0) == 0 && S_ISFIFO(st.st_mode) &&
                readlinkat(dirfd(files), one->d_name, link, 1) == 1 && *link == '/')
                note_fifo(processes[i], atoi(one->d_name));
        if (files != NULL) closedir(files);
    }
    const struct fifo* found = NULL;
    for (size_t i = 0; i < fifo_count && found == NULL; ++i)
        if ((fifos[i].has_writer && !fifos[i].writes) || (fifos[i].has_reader && !fifos[i].reads))
            found = &fifos[i];
    if (found != NULL)
        refuse("process %d has a FIFO open that a process outside of the job has open too",
               found->process);
    return found == NULL;
}

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
