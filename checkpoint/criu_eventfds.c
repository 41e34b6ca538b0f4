// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into CRIU: an eventfd that counts as a semaphore (EFD_SEMAPHORE) is one after a
// restore. CRIU makes each without that flag (criu/eventfd.c).
//
// The flag goes along in the image as O_APPEND, which means nothing to an eventfd, and which a
// restore without this file sets to no effect. In a dump it is put into the text of
// /proc/PID/fdinfo/FD, from which CRIU takes the flags of a file. In a restore CRIU sets it on the
// eventfd that it has made just before: then a semaphore with the same count takes its place. CRIU
// asks for the flags once more, and hears of O_APPEND although it is not set (criu/files.c,
// set_fd_flags).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

static int newest = -1;
static unsigned newest_count;
static int semaphore = -1;

// CRIU makes an eventfd with 32 bits of its count.
static bool counts_too_far(const char* text, size_t length) {
    static const char count[] = "\neventfd-count:";
    enum { digits = 24 };
    char number[digits] = {};
    const char* const at = memmem(text, length, count, sizeof count - 1);
    if (at == NULL) return false;
    const size_t from = (size_t)(at - text) + sizeof count - 1, left = length - from;
    memcpy(number, text + from, left < digits - 1 ? left : digits - 1);
    return strtoull(number, NULL, 16) > UINT32_MAX;
}

// Text that CRIU has read. Returns how long it is now; it has room for more.
ssize_t mark_semaphore(char* text, ssize_t length, size_t room) {
    static const char begin[] = "pos:\t", flags[] = "\nflags:\t", mark[] = "\neventfd-semaphore: 1";
    enum { digits = 24 };
    if (length < (ssize_t)sizeof begin || (size_t)length + digits > room ||
        memcmp(text, begin, sizeof begin - 1) != 0)
        return length;
    if (counts_too_far(text, (size_t)length)) {
        refuse_of("an eventfd counts more than 4294967295", "when it has been read");
        errno = EPERM;
        return -1;
    }
    if (memmem(text, (size_t)length, mark, sizeof mark - 1) == NULL) return length;
    char* const line = memmem(text, (size_t)length, flags, sizeof flags - 1);
    if (line == NULL) return length;
    char* const from = line + sizeof flags - 1;
    char* const end = memchr(from, '\n', (size_t)(text + length - from));
    if (end == NULL) return length;
    unsigned long value = strtoul(from, NULL, 8) | O_APPEND;
    char number[digits] = {};
    int at = digits;
    for (; value != 0; value >>= 3) number[--at] = (char)('0' + (value & 7));
    number[--at] = '0';
    const size_t rest = (size_t)(text + length - end), size = (size_t)(digits - at);
    memmove(from + size, end, rest);
    memcpy(from, number + at, size);
    return from + size + rest - text;
}

int eventfd(unsigned count, int flags) {
    newest = (int)syscall(SYS_eventfd2, count, flags);
    newest_count = count;
    return newest;
}

// Tells whether CRIU restores a semaphore by these flags; then it is one, or errno says why not.
bool make_semaphore(int fd, long flags, int* done) {
    if (fd < 0 || fd != newest || (flags & O_APPEND) == 0) return false;
    newest = -1;
    const int made = (int)syscall(SYS_eventfd2, newest_count, EFD_SEMAPHORE | EFD_CLOEXEC);
    const int at = (int)syscall(SYS_fcntl, fd, F_GETFD, 0);
    *done = made < 0 || at < 0
                ? -1
                : (int)syscall(SYS_dup3, made, fd, (at & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
    if (made >= 0) syscall(SYS_close, made);
    if (*done >= 0) *done = (int)syscall(SYS_fcntl, fd, F_SETFL, flags & ~(long)O_APPEND);
    if (*done >= 0) semaphore = fd;
    return true;
}

long told_flags(int fd, long flags) {
    if (fd < 0 || fd != semaphore || flags < 0) return flags;
    semaphore = -1;
    return flags | O_APPEND;
}
