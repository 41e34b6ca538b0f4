// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU, so that it asks whoever serves the files of a job once what is to be said
// of their file system, and not of each open file, one after the other, while the job stands. Of
// what it hears it uses the type, which is that of the device.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

static dev_t served;  // the device of the last one; 0: none
static struct statfs64 is;

// Whoever serves it is not asked.
static dev_t device_of(int fd) {
    struct statx st;
    const bool known = statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0;
    return known ? makedev(st.stx_dev_major, st.stx_dev_minor) : 0;
}

int fstatfs64(int fd, struct statfs64* says) {
    const dev_t device = device_of(fd);
    if (device != 0 && device == served) {
        *says = is;
        return 0;
    }
    const int done = (int)syscall(SYS_fstatfs, fd, says);
    if (done == 0 && says->f_type == FUSE_SUPER_MAGIC) {
        served = device;
        is = *says;
    }
    return done;
}
