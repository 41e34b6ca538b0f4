/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A system call in the name of a thread that this process traces and that stands: for the code that
 * is loaded into CRIU, and for tools. Of x86-64. */
#pragma once

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__

static inline long traces(int request, pid_t thread, unsigned long address, void* data) {
    return syscall(SYS_ptrace, request, thread, address, data);
}

static inline int open_of(pid_t thread, const char* name, int flags) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/%s", thread, name);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC);
}

/* Finds where its vDSO begins; 0: nowhere. */
static inline unsigned long vdso_of(pid_t thread) {
    uint64_t pairs[128];
    const int fd = open_of(thread, "auxv", O_RDONLY);
    const ssize_t got = fd < 0 ? -1 : read(fd, pairs, sizeof pairs);
    if (fd >= 0) close(fd);
    for (ssize_t i = 0; i + 1 < got / (ssize_t)sizeof *pairs; i += 2)
        if (pairs[i] == AT_SYSINFO_EHDR) return pairs[i + 1];
    return 0;
}

/* The place where the thread finds an instruction for it; 0: there is none. In most threads it is
 * where it was in the last one's vDSO. */
static inline unsigned long place_of_call(pid_t thread) {
    static unsigned char code[8192];
    static ssize_t last;
    const unsigned long begin = vdso_of(thread);
    const int fd = begin == 0 ? -1 : open_of(thread, "mem", O_RDONLY);
    if (fd < 0) return 0;
    ssize_t got = pread(fd, code, 2, (off_t)begin + last), at = 0;
    const int same = got == 2 && code[0] == 0x0f && code[1] == 0x05;
    if (!same) got = pread(fd, code, sizeof code, (off_t)begin);
    close(fd);
    if (same) return begin + (unsigned long)last;
    while (at + 1 < got && (code[at] != 0x0f || code[at + 1] != 0x05)) ++at;
    if (at + 1 >= got) return 0;
    last = at;
    return begin + (unsigned long)at;
}

static inline long registers(int request, pid_t thread, struct user_regs_struct* r) {
    struct iovec area = {r, sizeof *r};
    if (traces(request, thread, NT_PRSTATUS, &area) != 0) return -errno;
    return area.iov_len == sizeof *r ? 0 : -ENOSYS;
}

/* One instruction further. A stop of another kind comes before it: then once more. */
static inline long step(pid_t thread) {
    for (int tries = 0; tries < 16; ++tries) {
        int status;
        if (traces(PTRACE_SINGLESTEP, thread, 0, NULL) != 0) return -errno;
        if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) return -ESRCH;
        if (WSTOPSIG(status) == SIGTRAP && status >> 16 == 0) return 0;
    }
    return -EAGAIN;
}

/* Number and arguments in `words`; what it says, or -errno. */
static inline long call_at(pid_t thread, unsigned long at, const long words[7]) {
    struct user_regs_struct before, during;
    uint64_t mask, all = ~(UINT64_C(1) << (SIGTRAP - 1));
    long done = registers(PTRACE_GETREGSET, thread, &before);
    if (done != 0) return done;
    if (traces(PTRACE_GETSIGMASK, thread, sizeof mask, &mask) != 0 ||
        traces(PTRACE_SETSIGMASK, thread, sizeof all, &all) != 0)
        return -errno;
    during = before;
    during.rip = at;
    during.rax = (unsigned long)words[0];
    during.orig_rax = (unsigned long)-1;
    during.rdi = (unsigned long)words[1];
    during.rsi = (unsigned long)words[2];
    during.rdx = (unsigned long)words[3];
    during.r10 = (unsigned long)words[4];
    during.r8 = (unsigned long)words[5];
    during.r9 = (unsigned long)words[6];
    done = registers(PTRACE_SETREGSET, thread, &during);
    if (done == 0) done = step(thread);
    if (done == 0) done = registers(PTRACE_GETREGSET, thread, &during);
    if (done == 0) done = during.rip == at + 2 ? (long)during.rax : -EIO;
    (void)registers(PTRACE_SETREGSET, thread, &before);
    (void)traces(PTRACE_SETSIGMASK, thread, sizeof mask, &mask);
    return done;
}
#endif
