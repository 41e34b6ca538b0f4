// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into CRIU: memory that a process has sealed (mseal(2)) is sealed again before it runs.
//
// The kernel says it among the flags of each mapping, which CRIU reads when it dumps, and CRIU does
// not know that one. So it is looked for in what CRIU reads: to read it once more would cost as
// much again, and the job stands. The kernel seals mappings of its own (the vDSO) by itself.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

#define IMAGE "souk-seals"
enum { mseal = 462 };  // asm/unistd_64.h, of 6.10

struct seal {
    int64_t pid;
    uint64_t begin, end;
};

// -------------------------------------------------------------------------------------------------
// a dump

static struct {
    int fd;  // the file smaps of a process, as long as CRIU reads it; else -1
    struct seal mapping;
    bool of_kernel;
    char line[192];  // cut off there
    size_t length;
} smaps = {.fd = -1};

// The number in the link of a directory /proc/PID, 0 of any other.
pid_t process_at(int directory) {
    char link[32], path[32];
    int pid = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return sscanf(path, "/proc/%d", &pid) == 1 ? pid : 0;
}

int watch_smaps(int directory, const char* name, int fd) {
    if (fd < 0 || strcmp(name, "smaps") != 0 || getenv("SOUK_DUMP") == NULL) return fd;
    const int error = errno;
    smaps.mapping.pid = process_at(directory);
    smaps.fd = smaps.mapping.pid > 0 ? fd : -1;
    smaps.length = 0;
    errno = error;
    return fd;
}

static void note(void) {
    const int fd = (int)syscall(SYS_openat, images_fd, IMAGE,
                                O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool good = fd >= 0 && syscall(SYS_write, fd, &smaps.mapping, sizeof smaps.mapping) ==
                                     (ssize_t)sizeof smaps.mapping;
    if (fd >= 0) close(fd);
    if (good) return;
    refuse("cannot write which memory is sealed: %s", strerror(errno));
    _exit(1);  // the job goes on
}

static void end_line(void) {
    static const char flags[] = "VmFlags:";
    unsigned long begin, end;
    smaps.line[smaps.length] = 0;
    smaps.length = 0;
    if (strncmp(smaps.line, flags, sizeof flags - 1) == 0) {
        if (strstr(smaps.line, " sl") != NULL && !smaps.of_kernel) note();
    } else if (sscanf(smaps.line, "%lx-%lx ", &begin, &end) == 2) {
        smaps.mapping.begin = begin;
        smaps.mapping.end = end;
        smaps.of_kernel = strstr(smaps.line, " [v") != NULL || strstr(smaps.line, " [uprobes]");
    }
}

static void look_at(const char* text, ssize_t size) {
    for (ssize_t i = 0; i < size; ++i) {
        if (text[i] == '\n')
            end_line();
        else if (smaps.length < sizeof smaps.line - 1)
            smaps.line[smaps.length++] = text[i];
    }
}

ssize_t look_at_read(int fd, const void* bytes, ssize_t n) {
    if (fd != smaps.fd || fd < 0) return n;
    look_at(bytes, n);
    if (n <= 0) smaps.fd = -1;
    return n;
}

// -------------------------------------------------------------------------------------------------
// a restore

static int open_seals(void) {
    return (int)syscall(SYS_openat, images_fd, IMAGE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

bool can_seal(void) {
    const int error = errno;
    const int fd = open_seals();
    if (fd >= 0) close(fd);
    const bool can = fd < 0 || syscall(mseal, 0, 0, 0) == 0;
    if (!can)
        refuse(
            "cannot go on: it has sealed memory (mseal), and the kernel of this node seals none");
    errno = error;
    return can;
}

bool restore_seals(void) {
    struct seal one;
    long failed = 0;
    const int fd = open_seals();
    while (fd >= 0 && failed == 0 && read(fd, &one, sizeof one) == (ssize_t)sizeof one)
        failed = call_in((pid_t)one.pid,
                         (const long[7]){mseal, (long)one.begin, (long)(one.end - one.begin)});
    if (failed != 0)
        refuse("cannot seal memory of process %ld again: %s", (long)one.pid,
               strerror((int)-failed));
    if (fd >= 0) close(fd);
    return failed == 0;
}
