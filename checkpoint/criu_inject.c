// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: a system call in the name of a thread that CRIU holds.
//
// Some of what the kernel keeps of a thread can be set by that thread alone. The call is made where
// the thread finds a `syscall` instruction, which is in its vDSO, with all signals blocked; then
// its registers and its mask are as before. A thread without such a place (a program of 32 bits,
// one that has unmapped its vDSO) makes no calls. The thread's filter of system calls (seccomp) is
// suspended as long as CRIU holds it.
#define _GNU_SOURCE
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

#include "checkpoint/criu_user.h"

#ifdef __x86_64__

static long traces(int request, pid_t thread, unsigned long address, void* data) {
    return syscall(SYS_ptrace, request, thread, address, data);
}

static int open_of(pid_t thread, const char* name) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/%s", thread, name);
    return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
}

// Finds where its vDSO begins; 0: nowhere.
static unsigned long vdso_of(pid_t thread) {
    uint64_t pairs[128];
    const int fd = open_of(thread, "auxv");
    const ssize_t got = fd < 0 ? -1 : read(fd, pairs, sizeof pairs);
    if (fd >= 0) close(fd);
    for (ssize_t i = 0; i + 1 < got / (ssize_t)sizeof *pairs; i += 2)
        if (pairs[i] == AT_SYSINFO_EHDR) return pairs[i + 1];
    return 0;
}

static unsigned long place_of_call(pid_t thread) {
    static unsigned char code[8192];
    const unsigned long begin = vdso_of(thread);
    const int fd = begin == 0 ? -1 : open_of(thread, "mem");
    const ssize_t got = fd < 0 ? -1 : pread(fd, code, sizeof code, (off_t)begin);
    if (fd >= 0) close(fd);
    for (ssize_t i = 0; i + 1 < got; ++i)
        if (code[i] == 0x0f && code[i + 1] == 0x05) return begin + (unsigned long)i;
    return 0;
}

static long registers(int request, pid_t thread, struct user_regs_struct* r) {
    struct iovec area = {r, sizeof *r};
    if (traces(request, thread, NT_PRSTATUS, &area) != 0) return -errno;
    return area.iov_len == sizeof *r ? 0 : -ENOSYS;
}

// One instruction further. A stop of another kind comes before it: then once more.
static long step(pid_t thread) {
    for (int tries = 0; tries < 16; ++tries) {
        int status;
        if (traces(PTRACE_SINGLESTEP, thread, 0, NULL) != 0) return -errno;
        if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) return -ESRCH;
        if (WSTOPSIG(status) == SIGTRAP && status >> 16 == 0) return 0;
    }
    return -EAGAIN;
}

long call_in(pid_t thread, long number, long first, long second) {
    struct user_regs_struct before, during;
    uint64_t mask, all = ~UINT64_C(0);
    long done = registers(PTRACE_GETREGSET, thread, &before);
    if (done != 0) return done;
    const unsigned long at = place_of_call(thread);
    if (at == 0) return -ENOSYS;
    if (traces(PTRACE_GETSIGMASK, thread, sizeof mask, &mask) != 0 ||
        traces(PTRACE_SETSIGMASK, thread, sizeof all, &all) != 0)
        return -errno;
    during = before;
    during.rip = at;
    during.rax = (unsigned long)number;
    during.orig_rax = (unsigned long)-1;
    during.rdi = (unsigned long)first;
    during.rsi = (unsigned long)second;
    during.rdx = during.r10 = during.r8 = during.r9 = 0;
    done = registers(PTRACE_SETREGSET, thread, &during);
    if (done == 0) done = step(thread);
    if (done == 0) done = registers(PTRACE_GETREGSET, thread, &during);
    if (done == 0) done = during.rip == at + 2 ? (long)during.rax : -EIO;
    (void)registers(PTRACE_SETREGSET, thread, &before);
    (void)traces(PTRACE_SETSIGMASK, thread, sizeof mask, &mask);
    return done;
}

#else
long call_in(pid_t thread, long number, long first, long second) {
    (void)thread, (void)number, (void)first, (void)second;
    return -ENOSYS;
}
#endif
