// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that dumps, so that a move interrupts no poll(2) and no sleep(3); and into
// one that restores, so that a process may end at once.
//
// The kernel keeps what such a call waits for (its restart block), and CRIU cannot save that: a
// moved job would get EINTR without any signal (compel/arch/x86, get_task_regs), at which many
// programs end. A poll begins anew with its whole time limit instead. So does a sleep whose
// argument is where the kernel has written what is left of it, as sleep(3)'s is. Where the job goes
// on here its registers are put back as they were, and the kernel goes on with its restart block.
//
// A CRIU that restores lets go of one thread after another (criu/cr-restore.c,
// finalize_restore_detach). What it has let go of runs, and may end what it has not let go of yet:
// the other threads of a process that exits. To CRIU that is a restore that has failed, and it
// kills all, though some of it has run, and has been heard.
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

#ifdef __x86_64__
// include/linux/errno.h: with a restart block, and: begin anew unless there is a handler.
enum { with_block = -516, anew = -514 };

static bool can_begin_anew(const struct user_regs_struct* r) {
    switch (r->orig_rax) {
        case SYS_poll: return true;
        case SYS_nanosleep: return r->rdi == r->rsi;
        case SYS_clock_nanosleep: return r->rdx == r->r10 && !(r->rsi & 1);  // TIMER_ABSTIME
        default: return false;
    }
}

static bool change(struct user_regs_struct* r, long from, long to) {
    if ((long)r->rax != from || !can_begin_anew(r)) return false;
    r->rax = (unsigned long)to;
    return true;
}

static void after_read(const struct iovec* registers) {
    if (registers->iov_len == sizeof(struct user_regs_struct))
        change(registers->iov_base, with_block, anew);
}

// None of these calls ends with `anew` by itself, so that what was changed is known again. CRIU's
// copy stays as it is.
static long write_back(pid_t pid, struct iovec* registers) {
    struct user_regs_struct copy;
    struct iovec area = {&copy, sizeof copy};
    if (registers->iov_len == sizeof copy) {
        copy = *(const struct user_regs_struct*)registers->iov_base;
        if (change(&copy, anew, with_block)) registers = &area;
    }
    return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_PRSTATUS, registers);
}
#else
static void after_read(const struct iovec* registers) { (void)registers; }
static long write_back(pid_t pid, struct iovec* registers) {
    return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_PRSTATUS, registers);
}
#endif

long ptrace(enum __ptrace_request request, ...) {
    va_list rest;
    va_start(rest, request);
    const pid_t pid = va_arg(rest, pid_t);
    void* const address = va_arg(rest, void*);
    void* data = va_arg(rest, void*);
    va_end(rest);
    if (request == PTRACE_DETACH) before_all_go();
    if (before_ptrace((int)request, pid, &data) != 0) return -1;
    const bool registers = (long)address == NT_PRSTATUS;
    if (registers && request == PTRACE_SETREGSET) return write_back(pid, data);
    long word;
    const bool peeks =
        request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER;
    const long done = syscall(SYS_ptrace, request, pid, address, peeks ? (void*)&word : data);
    if (done < 0 && request == PTRACE_DETACH && errno == ESRCH && !getenv("SOUK_DUMP")) return 0;
    if (done < 0) return done;
    if (registers && request == PTRACE_GETREGSET) after_read(data);
    if (!peeks) return done;
    errno = 0;
    return word;
}
