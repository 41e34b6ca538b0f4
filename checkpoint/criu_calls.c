// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that dumps, so that a move interrupts few calls; and into one that
// restores, so that a process may end at once.
//
// CRIU stops a thread, at which the call that it waits in comes back. Of most calls the kernel says
// that they are to begin anew, and CRIU has them do so; of two kinds it does not:
// - What waits for a time has a restart block in the kernel, which CRIU cannot save: a moved job
//   would get EINTR without any signal (compel/arch/x86, get_task_regs), at which many programs
//   end. It begins anew, until the same moment or with what is left of its span (criu_waits.c).
//   Where that is not known, a sleep does whose argument is where the kernel has written what is
//   left of it, as sleep(3)'s is, and a poll with its whole span. Where the job goes on here the
//   registers of these are put back as they were, and the kernel goes on with its restart block.
// - Others just say EINTR (signal(7) lists them). Those without a time limit begin anew, also where
//   the job goes on here, unless a signal with a handler waits for the thread. So do those with a
//   span, or of a socket with a time limit (criu_waits.c).
//
// A process that its terminal has stopped for reading or writing (SIGTTIN, SIGTTOU) CRIU does not
// dump (compel/src/lib/infect.c, compel_wait_task), though it would carry any signal that stops. So
// it is told of SIGSTOP at first, and of the signal itself when it asks for what the image is to
// say. That process is stopped by the same signal again, here and elsewhere.
//
// A CRIU that restores lets go of one thread after another (criu/cr-restore.c,
// finalize_restore_detach). What it has let go of runs, and may end what it has not let go of yet:
// the other threads of a process that exits. To CRIU that is a restore that has failed, and it
// kills all, though some of it has run, and has been heard.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

#ifdef __x86_64__
// include/linux/errno.h: with a restart block, and: begin anew unless there is a handler.
enum { with_block = -516, anew = -514 };

static bool has_block(const struct user_regs_struct* r) {
    enum { wait_bitset = 9, command = 0x7f };  // linux/futex.h
    switch (r->orig_rax) {
        case SYS_poll: return true;
        case SYS_nanosleep: return r->rdi == r->rsi;
        case SYS_clock_nanosleep: return r->rdx == r->r10 && !(r->rsi & 1);  // TIMER_ABSTIME
        case SYS_futex: return (r->rsi & command) == wait_bitset;            // until a moment
        default: return false;
    }
}

// They say EINTR of themselves, having done nothing. A span of their own is not begun anew here: a
// job that is written down again and again would wait for ever.
static bool says_interrupted(const struct user_regs_struct* r) {
    switch (r->orig_rax) {
        case SYS_epoll_wait:
        case SYS_epoll_pwait: return (int)r->r10 < 0;
        case SYS_epoll_pwait2: return r->r10 == 0;
        case SYS_semop: return true;
        case SYS_semtimedop: return r->r10 == 0;
        case SYS_rt_sigtimedwait: return r->rdx == 0;
        case SYS_io_getevents: return r->r8 == 0;
        default: return false;
    }
}

// The registers of a program of 32 bits, as the kernel says them (asm/user_32.h).
struct registers_32 {
    uint32_t bx, cx, dx, si, di, bp, ax, ds, es, fs, gs, orig_ax, ip, cs, flags, sp, ss;
};

// Its sleep begins anew with the rest that the kernel has written for it, else as a whole.
static void after_read_32(struct registers_32* r) {
    enum { nanosleep = 162, poll = 168, futex = 240, clock_nanosleep = 267 };  // asm/unistd_32.h
    enum { clock_nanosleep_64 = 407, futex_64 = 422 };
    if ((int32_t)r->ax != with_block) return;
    switch (r->orig_ax) {
        case nanosleep:
            if (r->cx != 0) r->bx = r->cx;
            break;
        case clock_nanosleep:
        case clock_nanosleep_64:
            if (r->si != 0) r->dx = r->si;
            break;
        case poll:
        case futex:
        case futex_64: break;
        default: return;
    }
    r->ax = (uint32_t)anew;
}

static unsigned long mask_in(const char* status, const char* name) {
    const char* const at = strstr(status, name);
    return at == NULL ? 0 : strtoul(at + strlen(name), NULL, 16);
}

// Tells whether a handler is to run before the thread goes on: then its program sees the call
// interrupted.
bool handler_waits(pid_t thread) {
    const char* const status = text_of(thread, "status");
    return status == NULL || ((mask_in(status, "\nSigPnd:") | mask_in(status, "\nShdPnd:")) &
                              ~mask_in(status, "\nSigBlk:") & mask_in(status, "\nSigCgt:")) != 0;
}

static bool dumps(void) {
    static int known;  // 1: yes, 2: no
    if (known == 0) known = getenv("SOUK_DUMP") != NULL ? 1 : 2;
    return known == 1;
}

static void after_read(pid_t thread, const struct iovec* registers) {
    struct user_regs_struct* const r = registers->iov_base;
    if (registers->iov_len == sizeof(struct registers_32) && dumps())
        after_read_32(registers->iov_base);
    if (registers->iov_len != sizeof *r || !dumps() || begins_with_rest(thread, r)) return;
    const bool begins_anew = (long)r->rax == with_block ? has_block(r)
                             : (long)r->rax == -EINTR && says_interrupted(r)
                                 ? !handler_waits(thread)
                                 : false;
    if (begins_anew) r->rax = (unsigned long)anew;
}

// No call with a restart block ends with `anew` by itself, so that what was changed is known again.
// CRIU's copy stays as it is.
static long write_back(pid_t pid, struct iovec* registers) {
    struct user_regs_struct copy;
    struct iovec area = {&copy, sizeof copy};
    if (registers->iov_len == sizeof copy) {
        copy = *(const struct user_regs_struct*)registers->iov_base;
        if (goes_on_with_rest(pid, &copy)) {
            registers = &area;
        } else if ((long)copy.rax == anew && has_block(&copy)) {
            copy.rax = (unsigned long)with_block;
            registers = &area;
        }
    }
    return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_PRSTATUS, registers);
}
#else
static void after_read(pid_t thread, const struct iovec* registers) {
    (void)thread, (void)registers;
}
static long write_back(pid_t pid, struct iovec* registers) {
    return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_PRSTATUS, registers);
}
#endif

struct stopped {
    pid_t process;
    int signal;
    bool may_be_told;  // CRIU has let it go once (skip_sigstop), and asks again
};
static struct stopped* by_terminal;
static size_t by_terminal_count;

static struct stopped* stopped_by_terminal(pid_t process) {
    for (size_t i = 0; i < by_terminal_count; ++i)
        if (by_terminal[i].process == process) return &by_terminal[i];
    return NULL;
}

// CRIU is told the truth if there is no memory to note it, and refuses.
static void after_stop(pid_t process, siginfo_t* info) {
    const bool reads_or_writes = info->si_signo == SIGTTIN || info->si_signo == SIGTTOU;
    if (!reads_or_writes || info->si_code >> 8 != PTRACE_EVENT_STOP) return;
    struct stopped* known = stopped_by_terminal(process);
    if (known != NULL && known->may_be_told) return;
    if (known == NULL) {
        struct stopped* const more = realloc(by_terminal, (by_terminal_count + 1) * sizeof *more);
        if (more == NULL) return;
        by_terminal = more;
        known = &more[by_terminal_count++];
    }
    *known = (struct stopped){process, info->si_signo, false};
    info->si_signo = SIGSTOP;
}

int kill(pid_t process, int signal) {
    const struct stopped* const known = signal == SIGSTOP ? stopped_by_terminal(process) : NULL;
    return (int)syscall(SYS_kill, process, known != NULL ? known->signal : signal);
}

long ptrace(enum __ptrace_request request, ...) {
    va_list rest;
    va_start(rest, request);
    const pid_t pid = va_arg(rest, pid_t);
    void* const address = va_arg(rest, void*);
    void* data = va_arg(rest, void*);
    va_end(rest);
    if (request == PTRACE_SEIZE && dumps()) look_at_waits();
    if ((request == PTRACE_DETACH && !before_all_go()) ||
        before_ptrace((int)request, pid, &data) != 0)
        return -1;
    if (request == PTRACE_DETACH) {
        if (dumps()) keep_limits();
        speak_to_others();
    }
    const bool registers = (long)address == NT_PRSTATUS;
    if (registers && request == PTRACE_SETREGSET) return write_back(pid, data);
    long word;
    const bool peeks =
        request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER;
    const long done = syscall(SYS_ptrace, request, pid, address, peeks ? (void*)&word : data);
    if (done < 0 && request == PTRACE_DETACH && errno == ESRCH && !getenv("SOUK_DUMP")) return 0;
    if (done < 0) return done;
    if (registers && request == PTRACE_GETREGSET) after_read(pid, data);
    if (request == PTRACE_GETSIGINFO && dumps()) after_stop(pid, data);
    struct stopped* const stopped =
        request == PTRACE_CONT && data == NULL ? stopped_by_terminal(pid) : NULL;
    if (stopped != NULL) stopped->may_be_told = true;
    if (!peeks) return done;
    errno = 0;
    return word;
}
