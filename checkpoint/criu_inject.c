// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into CRIU: a system call in the name of a thread that CRIU holds.
//
// Some of what the kernel keeps of a thread can be asked and set by that thread alone. The call is
// made where the thread finds a `syscall` instruction, which is in its vDSO, with all signals
// blocked but the one by which it stops again (the kernel would drop a handler of that); then its
// registers and its mask are as before. A thread without such a place (a program of 32 bits, one
// that has unmapped its vDSO) makes no calls. The thread's filter of system calls (seccomp) is
// suspended as long as CRIU holds it.
//
// A thread that stands in a sequence which it begins anew when it is interrupted (rseq(2)) says so
// in its memory, and the kernel takes that away when the thread runs elsewhere: it is put back.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
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

static int open_of(pid_t thread, const char* name, int flags) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/%s", thread, name);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC);
}

// Finds where its vDSO begins; 0: nowhere.
static unsigned long vdso_of(pid_t thread) {
    uint64_t pairs[128];
    const int fd = open_of(thread, "auxv", O_RDONLY);
    const ssize_t got = fd < 0 ? -1 : read(fd, pairs, sizeof pairs);
    if (fd >= 0) close(fd);
    for (ssize_t i = 0; i + 1 < got / (ssize_t)sizeof *pairs; i += 2)
        if (pairs[i] == AT_SYSINFO_EHDR) return pairs[i + 1];
    return 0;
}

static unsigned long place_of_call(pid_t thread) {
    static unsigned char code[8192];
    const unsigned long begin = vdso_of(thread);
    const int fd = begin == 0 ? -1 : open_of(thread, "mem", O_RDONLY);
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

// The place where it says in which sequence it is; 0: it does not.
static unsigned long place_of_sequence(pid_t thread) {
    enum { get_rseq = 0x420f, sequence_at = 8 };  // linux/ptrace.h, rseq.h
    struct {
        uint64_t area;
        uint32_t size, signature, flags, pad;
    } rseq = {0};
    const long got = traces(get_rseq, thread, sizeof rseq, &rseq);
    return got < 0 || rseq.area == 0 ? 0 : rseq.area + sequence_at;
}

static long call_at(pid_t thread, unsigned long at, const long words[7]) {
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

long call_in(pid_t thread, const long words[7]) {
    static pid_t known;
    static unsigned long at;
    uint64_t sequence = 0;
    if (thread != known) at = place_of_call(known = thread);
    if (at == 0) return -ENOSYS;
    // No thread that is restored has begun one.
    const unsigned long place = getenv("SOUK_DUMP") == NULL ? 0 : place_of_sequence(thread);
    const int memory = place == 0 ? -1 : open_of(thread, "mem", O_RDWR);
    if (memory >= 0) (void)!pread(memory, &sequence, sizeof sequence, (off_t)place);
    const long done = call_at(thread, at, words);
    if (sequence != 0) (void)!pwrite(memory, &sequence, sizeof sequence, (off_t)place);
    if (memory >= 0) close(memory);
    return done;
}

bool can_call(pid_t thread) {
    struct user_regs_struct r;
    return registers(PTRACE_GETREGSET, thread, &r) == 0 && place_of_call(thread) != 0;
}

// They stand on its stack, below what a function may use without saying so.
long call_with(pid_t thread, const long words[7], int at, const void* bytes, size_t size) {
    enum { red_zone = 256, room = 256 };
    char before[room];
    long with[7];
    struct user_regs_struct r;
    long done = size > room ? -E2BIG : registers(PTRACE_GETREGSET, thread, &r);
    if (done != 0) return done;
    const off_t place = (off_t)((r.rsp - red_zone - room) & ~15UL);
    const int memory = open_of(thread, "mem", O_RDWR);
    if (memory < 0) return -errno;
    if (pread(memory, before, size, place) != (ssize_t)size ||
        pwrite(memory, bytes, size, place) != (ssize_t)size) {
        close(memory);
        return -EFAULT;
    }
    memcpy(with, words, sizeof with);
    with[at] = place;
    done = call_in(thread, with);
    (void)!pwrite(memory, before, size, place);
    close(memory);
    return done;
}

#else
bool can_call(pid_t thread) {
    (void)thread;
    return false;
}
long call_with(pid_t thread, const long words[7], int at, const void* bytes, size_t size) {
    (void)at, (void)bytes, (void)size;
    return call_in(thread, words);
}
long call_in(pid_t thread, const long words[7]) {
    (void)thread, (void)words;
    return -ENOSYS;
}
#endif
