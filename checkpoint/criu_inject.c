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
#include <stdlib.h>
#include <string.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/call_at.h"

#ifdef __x86_64__

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

long call_in(pid_t thread, const long words[7]) {
    static pid_t known;
    static unsigned long at;
    uint64_t sequence = 0;
    if (!is_thread_of(known, thread)) at = place_of_call(known = thread);
    if (at == 0) return -ENOSYS;
    // No thread that is restored has begun one.
    const unsigned long place = getenv("SOUK_DUMP") == NULL ? 0 : place_of_sequence(thread);
    if (place != 0) (void)traces(PTRACE_PEEKDATA, thread, place, &sequence);
    const long done = call_at(thread, at, words);
    if (sequence != 0) (void)traces(PTRACE_POKEDATA, thread, place, (void*)sequence);
    return done;
}

bool can_call(pid_t thread) {
    struct user_regs_struct r;
    return registers(PTRACE_GETREGSET, thread, &r) == 0 && place_of_call(thread) != 0;
}

// They stand on its stack, below what a function may use without saying so.
static long call_on_stack(pid_t thread, const long words[7], int at, const void* bytes, void* says,
                          size_t size) {
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
    if (done >= 0 && says != NULL && pread(memory, says, size, place) != (ssize_t)size)
        done = -EFAULT;
    (void)!pwrite(memory, before, size, place);
    close(memory);
    return done;
}

long call_with(pid_t thread, const long words[7], int at, const void* bytes, size_t size) {
    return call_on_stack(thread, words, at, bytes, NULL, size);
}

long call_and_read(pid_t thread, const long words[7], int at, void* bytes, size_t size) {
    return call_on_stack(thread, words, at, bytes, bytes, size);
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
long call_and_read(pid_t thread, const long words[7], int at, void* bytes, size_t size) {
    (void)at, (void)bytes, (void)size;
    return call_in(thread, words);
}
long call_in(pid_t thread, const long words[7]) {
    (void)thread, (void)words;
    return -ENOSYS;
}
#endif
