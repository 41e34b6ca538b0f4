// SPDX-License-Identifier: GPL-2.0-or-later
// Loaded into a daemon that is measured (LD_PRELOAD): counts its fdatasync and fsync calls and the
// time in them, in the two 64-bit numbers of the file that SOUK_SYNC_COUNT names. Without that it
// only passes them on.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct { _Atomic uint64_t calls, ns; } * count;
static int (*real_fdatasync)(int);
static int (*real_fsync)(int);

__attribute__((constructor)) static void begin(void) {
    real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    const char* path = getenv("SOUK_SYNC_COUNT");
    const int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof *count) != 0) return;
    void* at = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) count = at;
    close(fd);
}

static int counted(int (*call)(int), int fd) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    const int result = call(fd);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (count) {
        ++count->calls;
        count->ns += (uint64_t)((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec);
    }
    return result;
}

int fdatasync(int fd) { return counted(real_fdatasync, fd); }
int fsync(int fd) { return counted(real_fsync, fd); }
