// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: who has read a part of a file of /proc reads on in what that
// file says then.
//
// CRIU opens the file anew and sets the position (criu/files-reg.c). At that the kernel makes up
// the text and keeps the rest of it for the next read. Much of it is not the job's yet: the name of
// a process is CRIU's own. A read elsewhere in the file has the kernel make the text up again at
// the next read.
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool is_of_proc(int fd) {
    enum { proc = 0x9fa0 };  // linux/magic.h
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == proc;
}

off64_t lseek64(int fd, off64_t offset, int whence) {
    const off64_t at = syscall(SYS_lseek, fd, offset, whence);
    char byte;
    if (at > 0 && whence == SEEK_SET && getenv("SOUK_DUMP") == NULL && is_of_proc(fd))
        (void)!syscall(SYS_pread64, fd, &byte, sizeof byte, (off64_t)0);
    return at;
}

off_t lseek(int fd, off_t offset, int whence) { return lseek64(fd, offset, whence); }
