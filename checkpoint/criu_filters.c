// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: on a node that limits the system calls of jobs, each thread
// must have filters that refuse the calls of the node's list
// (kernel/sys/process/syscall_filter.hpp). An image says which filters its threads get, and a
// hostile node can leave them out or put others there. So the kernel is asked for the filters of
// the threads that CRIU holds, and each of the calls is tried on them. What a filter may look at
// besides (arguments, the address of the call) counts as unknown: then both ways of a comparison
// are gone, and each end must refuse.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

// A call of the list: number and architecture, and the bits of the first argument that are set.
struct refused_call {
    uint32_t arch, number, flags;
};
enum { calls_max = 512, steps_max = 4000000, depth_max = 64 };
static struct refused_call calls[calls_max];
static size_t call_count;
static long steps;  // that may be gone yet; so a filter of a job cannot keep CRIU

// A value of which the bits of `known` are known.
struct half_known {
    uint32_t value, known;
};
struct machine {
    struct half_known a, x, memory[BPF_MEMWORDS];
};
static const struct half_known unknown;

static struct half_known exactly(uint32_t value) { return (struct half_known){value, UINT32_MAX}; }

static struct half_known loaded(const struct refused_call* call, uint32_t at) {
    switch (at) {
        case offsetof(struct seccomp_data, nr): return exactly(call->number);
        case offsetof(struct seccomp_data, arch): return exactly(call->arch);
        // This is the lower half: both architectures are little-endian.
        case offsetof(struct seccomp_data, args):
            return (struct half_known){call->flags, call->flags};
        default: return unknown;
    }
}

// A mask leaves something known of what is known in part; the other operations leave nothing.
static struct half_known computed(unsigned op, struct half_known a, struct half_known b) {
    const bool both = a.known == UINT32_MAX && b.known == UINT32_MAX;
    switch (op) {
        case BPF_AND:
            return (struct half_known){a.value & b.value, (a.known & b.known) |
                                                              (a.known & ~a.value) |
                                                              (b.known & ~b.value)};
        case BPF_ADD: return both ? exactly(a.value + b.value) : unknown;
        case BPF_SUB: return both ? exactly(a.value - b.value) : unknown;
        case BPF_OR: return both ? exactly(a.value | b.value) : unknown;
        case BPF_XOR: return both ? exactly(a.value ^ b.value) : unknown;
        case BPF_LSH: return both && b.value < 32 ? exactly(a.value << b.value) : unknown;
        case BPF_RSH: return both && b.value < 32 ? exactly(a.value >> b.value) : unknown;
        default: return unknown;
    }
}

// 1: it holds, 0: it does not, -1: that depends on what is not known.
static int holds(unsigned op, struct half_known a, struct half_known b) {
    const uint32_t known = a.known & b.known, both = a.value & b.value & known;
    switch (op) {
        case BPF_JEQ:
            if (((a.value ^ b.value) & known) != 0) return 0;
            return known == UINT32_MAX ? 1 : -1;
        case BPF_JSET: {
            if (both != 0) return 1;
            const uint32_t zero = (a.known & ~a.value) | (b.known & ~b.value);
            return zero == UINT32_MAX ? 0 : -1;
        }
        case BPF_JGT: return known == UINT32_MAX ? a.value > b.value : -1;
        case BPF_JGE: return known == UINT32_MAX ? a.value >= b.value : -1;
        default: return -1;
    }
}

static bool is_refusal(uint32_t answer) {
    const uint32_t action = answer & SECCOMP_RET_ACTION_FULL;
    return action == SECCOMP_RET_KILL_PROCESS || action == SECCOMP_RET_KILL_THREAD ||
           action == SECCOMP_RET_TRAP || action == SECCOMP_RET_ERRNO;
}

static void step(struct machine* m, const struct sock_filter* i, const struct refused_call* call) {
    const bool is_x = BPF_SRC(i->code) == BPF_X;
    switch (BPF_CLASS(i->code)) {
        case BPF_LD:
            m->a = BPF_MODE(i->code) == BPF_ABS   ? loaded(call, i->k)
                   : BPF_MODE(i->code) == BPF_IMM ? exactly(i->k)
                   : BPF_MODE(i->code) == BPF_MEM ? m->memory[i->k % BPF_MEMWORDS]
                                                  : exactly(sizeof(struct seccomp_data));
            break;
        case BPF_LDX:
            m->x = BPF_MODE(i->code) == BPF_IMM   ? exactly(i->k)
                   : BPF_MODE(i->code) == BPF_MEM ? m->memory[i->k % BPF_MEMWORDS]
                                                  : exactly(sizeof(struct seccomp_data));
            break;
        case BPF_ST: m->memory[i->k % BPF_MEMWORDS] = m->a; break;
        case BPF_STX: m->memory[i->k % BPF_MEMWORDS] = m->x; break;
        case BPF_ALU: m->a = computed(BPF_OP(i->code), m->a, is_x ? m->x : exactly(i->k)); break;
        case BPF_MISC:
            if (BPF_MISCOP(i->code) == BPF_TAX)
                m->x = m->a;
            else
                m->a = m->x;
            break;
        default: break;
    }
}

// Tells whether each way of the filter from `at` on ends in a refusal. The kernel has checked the
// filter: its jumps go forward, within it. `depth` says how many ways are open.
static bool always_refuses(const struct sock_filter* filter, size_t count, size_t at,
                           struct machine m, const struct refused_call* call, int depth) {
    while (at < count && --steps > 0) {
        const struct sock_filter* const i = &filter[at];
        const bool is_x = BPF_SRC(i->code) == BPF_X;
        if (BPF_CLASS(i->code) == BPF_RET) {
            const struct half_known answer = BPF_RVAL(i->code) == BPF_A ? m.a : exactly(i->k);
            return answer.known == UINT32_MAX && is_refusal(answer.value);
        }
        if (BPF_CLASS(i->code) != BPF_JMP) {
            step(&m, i, call);
            ++at;
        } else if (BPF_OP(i->code) == BPF_JA) {
            at += 1 + (size_t)i->k;
        } else {
            const int way = holds(BPF_OP(i->code), m.a, is_x ? m.x : exactly(i->k));
            if (way < 0 && (depth == depth_max ||
                            !always_refuses(filter, count, at + 1 + i->jt, m, call, depth + 1)))
                return false;
            at += 1U + (way > 0 ? i->jt : i->jf);
        }
    }
    return false;
}

// "ARCHITECTURE.NUMBER.FLAGS ...", in hexadecimal digits. False: it is not such a list.
static bool read_list(const char* at) {
    while (*at != 0 && call_count < calls_max) {
        struct refused_call* const call = &calls[call_count++];
        int n = 0;
        if (sscanf(at, "%x.%x.%x%n", &call->arch, &call->number, &call->flags, &n) != 3 || n == 0)
            return false;
        at += n + (at[n] == ' ');
    }
    return *at == 0 && call_count > 0;
}

// A container's own limits are on CRIU too: it may not ask then, and what it makes has them.
static bool is_limited_itself(void) { return prctl(PR_GET_SECCOMP) == SECCOMP_MODE_FILTER; }

// The first call that none of the thread's filters refuses; calls_max: there is none. Threads
// mostly have the same filters, so one that refuses all is looked through once.
static size_t unrefused(pid_t thread) {
    static struct sock_filter filter[BPF_MAXINSNS], good[BPF_MAXINSNS];
    static long good_count;
    bool refused[calls_max] = {false};
    const struct machine start = {exactly(0), exactly(0), {{0, 0}}};
    size_t first = 0;
    for (long which = 0; first < call_count; ++which) {  // the oldest first: of its first node
        const long count = syscall(SYS_ptrace, PTRACE_SECCOMP_GET_FILTER, thread, which, NULL);
        if (count < 0 && errno == EACCES && is_limited_itself()) return calls_max;
        if (count <= 0 || count > BPF_MAXINSNS ||
            syscall(SYS_ptrace, PTRACE_SECCOMP_GET_FILTER, thread, which, filter) != count)
            return first;
        const size_t bytes = (size_t)count * sizeof *filter;
        if (count == good_count && memcmp(filter, good, bytes) == 0) return calls_max;
        for (size_t k = 0; k < call_count; ++k)
            if (!refused[k])
                refused[k] = always_refuses(filter, (size_t)count, 0, start, &calls[k], 0);
        while (first < call_count && refused[first]) ++first;
        if (which > 0 || first < call_count) continue;
        memcpy(good, filter, bytes);
        good_count = count;
    }
    return calls_max;
}

bool are_calls_limited(const pid_t* threads, size_t count) {
    const char* const list = getenv("SOUK_CALLS");
    if (list == NULL) return true;
    if (call_count == 0 && !read_list(list)) return false;
    for (size_t i = 0; i < count; ++i) {
        steps = steps_max;
        const size_t open = unrefused(threads[i]);
        if (open == calls_max) continue;
        refuse(
            "process %d has no filter that keeps it from system call %u, which the owner of "
            "this node wants of all jobs (system_calls)",
            process_of(threads[i]), calls[open].number);
        return false;
    }
    return true;
}
