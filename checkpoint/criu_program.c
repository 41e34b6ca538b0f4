// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that dumps: a program that runs from a file in memory (memfd_create(2))
// goes along.
//
// CRIU carries such files where they are open or mapped, and does not find them again as that from
// which a process runs (criu/cr-dump.c, dump_task_exe_link). It is given a copy of the file
// instead, which has no name, in the capsule's own /dev/shm; that is a deleted file, and such it
// carries. So /proc/self/exe leads to the same program, by another name.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

static bool is_in_memory(int fd) {
    static const char memory[] = "/memfd:";
    char link[32], path[sizeof memory];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path) >= (ssize_t)sizeof memory - 1 &&
           memcmp(path, memory, sizeof memory - 1) == 0;
}

static int copy_of(int file) {
    struct stat st;
    const int copy = (int)syscall(SYS_openat, AT_FDCWD, "/dev/shm", O_TMPFILE | O_RDWR, 0700);
    bool good = copy >= 0 && fstat(file, &st) == 0;
    for (off_t left = good ? st.st_size : 0; good && left > 0;) {
        const ssize_t n = sendfile(copy, file, NULL, (size_t)left);
        good = n > 0;
        left -= n;
    }
    good = good && fchown(copy, st.st_uid, st.st_gid) == 0 && fchmod(copy, st.st_mode & 0777) == 0;
    if (!good && copy >= 0) close(copy);
    return good ? copy : -1;
}

int program_with_path(int directory, const char* name, int fd) {
    if (fd < 0 || strcmp(name, "exe") != 0 || getenv("SOUK_DUMP") == NULL || !is_in_memory(fd))
        return fd;
    const int file = (int)syscall(SYS_openat, directory, name, O_RDONLY | O_CLOEXEC);
    const int copy = file < 0 ? -1 : copy_of(file);
    if (copy < 0)
        refuse("its program is a file in memory, of which no copy can be made: %s",
               strerror(errno));
    if (file >= 0) close(file);
    close(fd);
    return copy;
}
