// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that dumps: a call that waits for a span of time, and is interrupted by the
// stop, begins anew with the time that is left of its span.
//
// No kernel tells how long a call has waited. A thread that waits has been off the processor since
// then, and the scheduler says since when (/proc/PID/sched, `se.exec_start`). The stop itself wakes
// the thread, so that CRIU looks at all threads of the capsule before it stops the first one. If a
// thread has been off the processor once more by the stop alone (its count of voluntary switches
// has grown by one), it still waits in the same call. Else the call has only just begun. Each
// processor has a clock of its own for that, so it is read on that processor.
//
// Some calls take their span in a register. Others point to it: the new span is written where
// nothing of the program can lie, in a page of the first thread's stack that has never been touched
// and is below all that this thread has there. The program's own memory stays as it is, since it
// may use the span again. The register is another one after the call, which no caller in C sees. A
// thread that goes on here, and still has its restart block, goes on by that: each but the first
// one of a process, in which CRIU's own code ends with rt_sigreturn(2), and that drops the block.
//
// A thread that something else has stopped before (a signal, its control group) waits in
// restart_syscall(2): the functions in its kernel stack say what it began with.
//
// A call of a socket with a time limit (SO_RCVTIMEO) has its span in the socket, and begins anew
// with the whole of it. If the job goes on here, the page also keeps how much is left of it, or a
// job that is saved again and again would wait for ever.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/call_at.h"

#ifdef __x86_64__

enum { ns_per_s = 1000000000, ns_per_ms = 1000000 };

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)ns_per_s + t.tv_nsec;
}

// -------------------------------------------------------------------------------------------------
// the calls

// A call that waits for a span: in a register in milliseconds, or at an address as a timespec.
struct span {
    unsigned long long* at;   // the register that has the span or its address
    unsigned long long left;  // the address where the kernel has written what is left; 0: nowhere
    bool is_ms;
    bool is_cpu_time;  // of which nobody but the kernel knows how much is left
};

static bool by_wall(unsigned long clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME ||
           clock == CLOCK_TAI;
}

static bool span_of(struct user_regs_struct* r, struct span* s) {
    enum { command = 0x7f, wait = 0, code_of_64_bits = 0x33 };  // linux/futex.h
    *s = (struct span){NULL, 0, false, false};
    if (r->cs != code_of_64_bits) return false;
    switch (r->orig_rax) {
        case SYS_nanosleep: *s = (struct span){&r->rdi, r->rsi, false, false}; break;
        case SYS_clock_nanosleep:
            if (r->rsi & TIMER_ABSTIME) return false;
            *s = (struct span){&r->rdx, r->r10, false, !by_wall(r->rdi)};
            break;
        case SYS_futex:
            if ((r->rsi & command) == wait) s->at = &r->r10;
            break;
        case SYS_poll: *s = (struct span){&r->rdx, 0, true, false}; break;
        case SYS_epoll_wait:
        case SYS_epoll_pwait: *s = (struct span){&r->r10, 0, true, false}; break;
        case SYS_epoll_pwait2:
        case SYS_semtimedop: s->at = &r->r10; break;
        case SYS_rt_sigtimedwait: s->at = &r->rdx; break;
        case SYS_io_getevents: s->at = &r->r8; break;
        default: return false;
    }
    return s->at != NULL && (s->is_ms ? (int)*s->at > 0 : *s->at != 0);
}

// The option that limits the call's wait; 0: it is no call of a socket.
static int option_of(unsigned long long call) {
    switch (call) {
        case SYS_read:
        case SYS_readv:
        case SYS_recvfrom:
        case SYS_recvmsg:
        case SYS_recvmmsg:
        case SYS_accept:
        case SYS_accept4: return SO_RCVTIMEO;
        case SYS_write:
        case SYS_writev:
        case SYS_sendto:
        case SYS_sendmsg:
        case SYS_sendmmsg:
        case SYS_connect: return SO_SNDTIMEO;
        default: return 0;
    }
}

static bool may_have_span(long number) {
    struct user_regs_struct r = {.cs = 0x33, .orig_rax = (unsigned long)number};
    struct span s;
    if (option_of((unsigned long)number) != 0 || number == SYS_restart_syscall) return true;
    r.rdi = number == SYS_clock_nanosleep ? CLOCK_MONOTONIC : 1;
    r.rdx = r.r10 = r.r8 = 1;
    return span_of(&r, &s);
}

// -------------------------------------------------------------------------------------------------
// since when a thread waits

struct wait {
    pid_t thread;
    int cpu;
    long call;  // that it began with
    unsigned long switches;
    int64_t began_ns;  // by the clock of its processor, then CLOCK_MONOTONIC; < 0: not known
};

static struct wait* waits;
static size_t wait_count, wait_room;
static bool looked;  // the kernel says since when a thread waits

// Finds a number in /proc/PID/sched: a name and a colon stand before a number, or before
// milliseconds with six digits behind the point, which come as nanoseconds.
static bool number_after(const char* text, const char* name, int64_t* value) {
    const char* at = text == NULL ? NULL : strstr(text, name);
    at = at == NULL ? NULL : strchr(at, ':');
    if (at == NULL) return false;
    char* end;
    *value = strtoll(at + 1, &end, 10);
    if (end == at + 1) return false;
    if (*end != '.') return true;
    int64_t part = 0;
    int digits = 0;
    for (++end; digits < 6 && *end >= '0' && *end <= '9'; ++digits, ++end)
        part = part * 10 + (*end - '0');
    *value = *value * ns_per_ms + part;
    return digits == 6;
}

// Field 39 of /proc/PID/stat; -1: not known. The name in field 2 may have any bytes.
static int processor_of(pid_t thread) {
    const char* at = text_of(thread, "stat");
    at = at == NULL ? NULL : strrchr(at, ')');
    for (int field = 2; at != NULL && field < 39; ++field) {
        at = strchr(at, ' ');
        if (at != NULL) ++at;
    }
    return at == NULL ? -1 : atoi(at);
}

// The call that a thread in restart_syscall(2) began with; SYS_restart_syscall: not known. `first`:
// its first argument. The function that sleeps on is often not in the stack.
static long begun_with(pid_t thread, unsigned long first) {
    const unsigned long clocks = 64, pages = 65536;
    const char* const stack = text_of(thread, "stack");
    if (stack == NULL) return SYS_restart_syscall;
    if (strstr(stack, "posix_cpu") != NULL) return SYS_clock_nanosleep;
    if (strstr(stack, "do_restart_poll") != NULL) return SYS_poll;
    if (strstr(stack, "futex_wait_restart") != NULL) return SYS_futex;
    return first < clocks   ? SYS_clock_nanosleep
           : first >= pages ? SYS_nanosleep
                            : SYS_restart_syscall;
}

static void look_at(pid_t thread) {
    const char* const text_of_call = text_of(thread, "syscall");
    if (text_of_call == NULL || *text_of_call < '0' || *text_of_call > '9') return;
    char* end;
    long call = strtol(text_of_call, &end, 10);
    if (!may_have_span(call)) return;
    if (call == SYS_restart_syscall) call = begun_with(thread, strtoul(end, NULL, 16));
    if (wait_count == wait_room) {
        const size_t room = wait_room == 0 ? 64 : 2 * wait_room;
        struct wait* const more = realloc(waits, room * sizeof *waits);
        if (more == NULL) return;
        waits = more;
        wait_room = room;
    }
    const int cpu = processor_of(thread);
    const char* const text = text_of(thread, "sched");
    int64_t began, switches;
    if (cpu < 0 || !number_after(text, "\nse.exec_start", &began) || began == 0 ||
        !number_after(text, "\nnr_voluntary_switches", &switches))
        return;
    waits[wait_count++] = (struct wait){thread, cpu, call, (unsigned long)switches, began};
}

static void look_at_all(const char* directory) {
    const bool threads = strcmp(directory, "/proc") != 0;
    DIR* const all = opendir(directory);
    for (const struct dirent* e = NULL; all != NULL && (e = readdir(all)) != NULL;) {
        const pid_t pid = (pid_t)atol(e->d_name);
        if (pid <= 0 || pid == getpid()) continue;
        if (threads) {
            look_at(pid);
            continue;
        }
        char path[40];
        snprintf(path, sizeof path, "/proc/%d/task", pid);
        look_at_all(path);
    }
    if (all != NULL) closedir(all);
}

// Finds the offset from the clock of a processor to CLOCK_MONOTONIC, in ns, by reading both there.
// False: it cannot be found.
static bool offset_of(int cpu, int64_t* offset) {
    cpu_set_t one;
    CPU_ZERO(&one);
    if (cpu >= CPU_SETSIZE) return false;
    CPU_SET(cpu, &one);
    int64_t own;
    if (sched_setaffinity(0, sizeof one, &one) != 0) return false;
    sched_yield();  // which brings the clock up to date
    if (!number_after(text_of(getpid(), "sched"), "\nse.exec_start", &own)) return false;
    *offset = now_ns() - own;
    return true;
}

void look_at_waits(void) {
    static bool done;
    int64_t own, offset = 0;
    cpu_set_t before;
    if (done) return;
    done = true;
    looked = number_after(text_of(getpid(), "sched"), "\nse.exec_start", &own) &&
             sched_getaffinity(0, sizeof before, &before) == 0;
    if (!looked) return;
    look_at_all("/proc");
    for (size_t i = 0; i < wait_count; ++i) {
        const int cpu = waits[i].cpu;
        bool first = true;
        for (size_t k = 0; k < i && first; ++k) first = waits[k].cpu != cpu;
        if (!first) continue;
        const bool known = offset_of(cpu, &offset);
        for (size_t k = i; k < wait_count; ++k)
            if (waits[k].cpu == cpu)
                waits[k].began_ns = known ? waits[k].began_ns + offset : INT64_MIN;
    }
    if (wait_count > 0) (void)sched_setaffinity(0, sizeof before, &before);
}

static const struct wait* wait_of(pid_t thread) {
    for (size_t i = 0; i < wait_count; ++i)
        if (waits[i].thread == thread) return &waits[i];
    return NULL;
}

// Returns how long the thread has waited in its call; 0 if that is not known, so that a call may
// come back late and never early. (The scheduler's clock may be faster than CLOCK_MONOTONIC, by as
// much as NTP may slow that: 500 of a million.)
static int64_t waited_ns(pid_t thread, int64_t now) {
    int64_t switches;
    const struct wait* const w = wait_of(thread);
    const bool same =
        w != NULL && w->began_ns > 0 && w->began_ns < now &&
        number_after(text_of(thread, "status"), "\nvoluntary_ctxt_switches", &switches) &&
        (unsigned long)switches == w->switches + 1;
    return same ? (now - w->began_ns) / 2000 * 1999 : 0;
}

// -------------------------------------------------------------------------------------------------
// where a new span stands

enum { page = 4096, spans_max = 189, limits_max = 43 };
static const char mark[8] = {'S', 'o', 'u', 'k', 's', 'p', 'a', 'n'};

// A thread that waits for a socket with a time limit, when it was let go.
struct limit {
    pid_t thread;  // 0: this place is free
    int fd;
    uint64_t switches;
    int64_t left_ns;
};

// A page of spans in a process. One that is there from an earlier stop has the mark, and zeros
// behind the spans that were ever used, and its sum is right: whatever has been written there
// since, it is not ours any more.
struct page_of_spans {
    char mark[sizeof mark];
    uint64_t sum;  // of all that follows
    uint64_t used;
    struct timespec spans[spans_max];
    struct limit limits[limits_max];
};
_Static_assert(sizeof(struct page_of_spans) <= page, "it fits in a page");

static uint64_t sum_of(const struct page_of_spans* p) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);  // FNV-1a
    for (const uint64_t* at = &p->used; at < (const uint64_t*)(p + 1); ++at)
        sum = (sum ^ *at) * UINT64_C(0x100000001b3);
    return sum;
}

static bool is_ours(const struct page_of_spans* p) {
    return memcmp(p->mark, mark, sizeof mark) == 0 && p->used <= spans_max && p->sum == sum_of(p);
}

// The lowest page of the stack that is ours or was never touched, and is below all that the first
// thread has there; 0: there is none. `memory` and `map` are its mem and pagemap.
static unsigned long find_page(pid_t process, int memory, int map, struct page_of_spans* p) {
    char path[40], line[512];
    unsigned long from = 0, to = 0;
    const unsigned long red_zone = 128;
    struct user_regs_struct first;
    if (registers(PTRACE_GETREGSET, process, &first) != 0) return 0;
    snprintf(path, sizeof path, "/proc/%d/maps", process);
    FILE* const maps = fopen(path, "re");
    while (maps != NULL && from == 0 && fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, "[stack]\n") != NULL && strstr(line, " rw") != NULL &&
            sscanf(line, "%lx-%lx", &from, &to) != 2)
            from = 0;
    if (maps != NULL) fclose(maps);
    if (first.rsp < from || first.rsp >= to) return 0;
    for (; from != 0 && from + 2 * page + red_zone <= first.rsp; from += page) {
        uint64_t there;
        const uint64_t present = UINT64_C(1) << 63, swapped = UINT64_C(1) << 62;
        if (pread(map, &there, sizeof there, (off_t)(from / page * sizeof there)) != sizeof there)
            return 0;
        memset(p, 0, sizeof *p);
        if ((there & (present | swapped)) == 0) return from;
        if (pread(memory, p, sizeof *p, (off_t)from) == (ssize_t)sizeof *p && is_ours(p))
            return from;
    }
    return 0;
}

// No thread's registers point to it: one that was stopped before it could begin its call anew still
// needs its span.
static bool is_free(unsigned long place, pid_t process) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR* const all = opendir(path);
    bool free = all != NULL;
    for (const struct dirent* e = NULL; free && (e = readdir(all)) != NULL;) {
        struct user_regs_struct r;
        const pid_t thread = (pid_t)atol(e->d_name);
        if (thread <= 0 || registers(PTRACE_GETREGSET, thread, &r) != 0) continue;
        free =
            r.rdi != place && r.rsi != place && r.rdx != place && r.r10 != place && r.r8 != place;
    }
    if (all != NULL) closedir(all);
    return free;
}

// The page of the process that was asked for last, which is read once and written when it changes.
static struct {
    struct page_of_spans spans;
    pid_t process;
    unsigned long at;  // 0: the process has no place for one
    size_t next;
} now_in;

static void take_page(pid_t process) {
    if (now_in.process == process) return;
    const int memory = open_of(process, "mem", O_RDONLY),
              map = open_of(process, "pagemap", O_RDONLY);
    now_in.at = memory < 0 || map < 0 ? 0 : find_page(process, memory, map, &now_in.spans);
    if (memory >= 0) close(memory);
    if (map >= 0) close(map);
    now_in.process = process;
    now_in.next = 0;
}

static bool write_page(void) {
    memcpy(now_in.spans.mark, mark, sizeof mark);
    now_in.spans.sum = sum_of(&now_in.spans);
    const int memory = open_of(now_in.process, "mem", O_WRONLY);
    const ssize_t done = pwrite(memory, &now_in.spans, sizeof now_in.spans, (off_t)now_in.at);
    if (memory >= 0) close(memory);
    return done == (ssize_t)sizeof now_in.spans;
}

// The address of a timespec with this span, in the memory of that process; 0: it has no place.
static unsigned long write_span(pid_t process, int64_t ns) {
    take_page(process);
    while (now_in.at != 0 && now_in.next < spans_max) {
        const size_t at = now_in.next++;
        const unsigned long place =
            now_in.at + offsetof(struct page_of_spans, spans) + at * sizeof(struct timespec);
        if (at < now_in.spans.used && !is_free(place, process)) continue;
        now_in.spans.spans[at] = (struct timespec){ns / ns_per_s, ns % ns_per_s};
        if (at >= now_in.spans.used) now_in.spans.used = at + 1;
        return write_page() ? place : 0;
    }
    return 0;
}

// -------------------------------------------------------------------------------------------------
// the calls that begin anew

struct anew {
    pid_t thread;
    struct user_regs_struct before, after;
    int fd;           // of a socket with a time limit; -1: it is no such call
    int64_t left_ns;  // of that limit
};

static struct anew* shortened;
static size_t shortened_count;

static bool shorten_span(pid_t thread, struct anew* a, int64_t now) {
    enum { with_block = -516 };  // include/linux/errno.h
    struct span s;
    if (!span_of(&a->after, &s)) return false;
    const int64_t waited = waited_ns(thread, now);
    if (s.is_ms) {
        const int64_t left = (int64_t)(int)*s.at * ns_per_ms - waited;
        *s.at = left <= 0 ? 0 : (unsigned long)((left + ns_per_ms - 1) / ns_per_ms);
        return true;
    }
    if (s.left != 0 && (long)a->before.rax == with_block) {
        *s.at = s.left;
        return true;
    }
    if (s.is_cpu_time) return true;  // it begins anew
    struct timespec span;
    const pid_t process = process_of(thread);
    struct iovec here = {&span, sizeof span}, there = {(void*)*s.at, sizeof span};
    if (waited == 0 || process <= 0 ||
        process_vm_readv(process, &here, 1, &there, 1, 0) != (ssize_t)sizeof span ||
        span.tv_sec < 0 || span.tv_sec > INT64_MAX / ns_per_s - 1 || span.tv_nsec < 0 ||
        span.tv_nsec >= ns_per_s)
        return true;
    const int64_t left = span.tv_sec * (int64_t)ns_per_s + span.tv_nsec - waited;
    const unsigned long place = write_span(process, left < 0 ? 0 : left);
    if (place != 0) *s.at = place;
    return true;
}

// The time limit of a socket; 0: it is no socket, or has none.
static int64_t limit_of(pid_t process, int fd, int option) {
    struct timeval t = {0, 0};
    socklen_t size = sizeof t;
    const int copy = process <= 0 || option == 0 ? -1 : file_of(process, fd);
    if (copy < 0) return 0;
    const bool got = getsockopt(copy, SOL_SOCKET, option, &t, &size) == 0;
    close(copy);
    return got ? t.tv_sec * (int64_t)ns_per_s + t.tv_usec * 1000 : 0;
}

// A thread that has slept once since it was let go at the last stop is in the same call since then.
static bool shorten_limit(pid_t thread, struct anew* a, int64_t now) {
    const pid_t process = process_of(thread);
    const int64_t limit = limit_of(process, a->fd, option_of(a->before.orig_rax));
    if (limit <= 0) return false;
    const struct wait* const w = wait_of(thread);
    a->left_ns = limit;
    take_page(process);
    for (size_t i = 0; w != NULL && now_in.at != 0 && i < limits_max; ++i) {
        const struct limit* const l = &now_in.spans.limits[i];
        if (l->thread == thread && l->fd == a->fd && l->switches + 1 == w->switches &&
            l->left_ns < limit)
            a->left_ns = l->left_ns;
    }
    a->left_ns -= waited_ns(thread, now);
    const bool is_connect = a->before.orig_rax == SYS_connect;
    if (a->left_ns <= 0) a->after.rax = (unsigned long)(is_connect ? -EINPROGRESS : -EAGAIN);
    return true;
}

static bool shorten(pid_t thread, int64_t now, struct anew* a) {
    enum { with_block = -516, begin_anew = -514 };  // include/linux/errno.h
    if (registers(PTRACE_GETREGSET, thread, &a->before) != 0) return false;
    const long says = (long)a->before.rax;
    if ((says != with_block && says != -EINTR) || handler_waits(thread)) return false;
    a->thread = thread;
    a->after = a->before;
    a->after.rax = (unsigned long)begin_anew;
    const struct wait* const w = wait_of(thread);
    if (a->before.orig_rax == SYS_restart_syscall && w != NULL)
        a->after.orig_rax = (unsigned long)w->call;
    a->fd = says == -EINTR && option_of(a->before.orig_rax) != 0 ? (int)a->before.rdi : -1;
    return a->fd < 0 ? shorten_span(thread, a, now) : shorten_limit(thread, a, now);
}

void shorten_waits(void) {
    size_t count;
    const pid_t* const threads = held_threads(&count);
    if (!looked || (shortened = calloc(count, sizeof *shortened)) == NULL) return;
    const int64_t now = now_ns();
    for (size_t i = 0; i < count; ++i)
        if (shorten(threads[i], now, &shortened[shortened_count])) ++shortened_count;
    now_in.process = 0;  // more is written there when they go on
}

static void keep_limit(const struct anew* a) {
    int64_t switches;
    if (a->fd < 0 || a->left_ns <= 0 ||
        !number_after(text_of(a->thread, "status"), "\nvoluntary_ctxt_switches", &switches))
        return;
    take_page(process_of(a->thread));
    struct limit* place = NULL;
    for (size_t k = 0; now_in.at != 0 && k < limits_max; ++k) {
        struct limit* const l = &now_in.spans.limits[k];
        if (l->thread == a->thread || (place == NULL && !is_held(l->thread))) place = l;
    }
    if (place == NULL) return;
    *place = (struct limit){a->thread, a->fd, (uint64_t)switches, a->left_ns};
    (void)write_page();
}

// Call it while all processes stand, because a stack may grow into a page that is being written.
void keep_limits(void) {
    static bool kept;
    for (size_t i = 0; i < shortened_count && !kept; ++i) keep_limit(&shortened[i]);
    kept = true;
}

static const struct anew* anew_of(pid_t thread) {
    for (size_t i = 0; i < shortened_count; ++i)
        if (shortened[i].thread == thread) return &shortened[i];
    return NULL;
}

bool begins_with_rest(pid_t thread, struct user_regs_struct* r) {
    const struct anew* const a = anew_of(thread);
    if (a == NULL || memcmp(r, &a->before, sizeof *r) != 0) return false;
    *r = a->after;
    return true;
}

bool goes_on_with_rest(pid_t thread, struct user_regs_struct* r) {
    enum { with_block = -516 };
    const struct anew* const a = anew_of(thread);
    if (a == NULL || r->rip != a->after.rip || r->rsp != a->after.rsp || r->rax != a->after.rax)
        return false;
    const bool has_block = (long)a->before.rax == with_block && process_of(thread) != thread;
    *r = has_block ? a->before : a->after;
    return true;
}
#else
void look_at_waits(void) {}
void shorten_waits(void) {}
void keep_limits(void) {}
#endif
