// SPDX-License-Identifier: GPL-2.0-or-later
// Run time and run-queue wait of one node's cgroup subtree and of each job in it, summed up in the
// kernel.
//
// Techniques: BTF tracepoints (tp_btf, no kprobe); the few kernel fields that are read are declared
// here and relocated when loaded (CO-RE), so that no dump of the kernel's types is needed to build.
// A task belongs to a job by its ancestor on the cgroup v2 level of jobs, so groups that a job
// makes for itself count too. Needs: kernel 6.1 (array cgroup.ancestors), CONFIG_DEBUG_INFO_BTF.
// Load.cpp falls back to /proc where this does not load.
//
// Run time is the scheduler's own sum for the task (sum_exec_runtime: what a hypervisor stole is
// not in it), taken at each switch out. There are kernels that hide the switches from some tasks of
// their own, so that a task of a job runs and nobody has said that it was switched in: the sum
// tells how long it ran, and so how long it had waited before.
//
// Cost per context switch between tasks outside the node: for both a cgroup's level, three reads
// and a comparison.
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_TASK_STORAGE = 29 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1024, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/load.h"

#define RELOCATED __attribute__((preserve_access_index))

struct kernfs_node {
    __u64 id;
} RELOCATED;

struct cgroup {
    int level;
    struct kernfs_node* kn;
    struct cgroup* ancestors[];
} RELOCATED;

struct css_set {
    struct cgroup* dfl_cgrp;
} RELOCATED;

struct sched_entity {
    __u64 sum_exec_runtime;
} RELOCATED;

struct task_struct {
    unsigned int __state;
    struct sched_entity se;
    struct css_set* cgroups;
} RELOCATED;

// Set between open and load.
const volatile __u64 node_id = 0;
const volatile int node_level = 0;
const volatile int job_level = 0;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);  // as many as CPUs, set before load
    __type(key, __u32);
    __type(value, struct load_cpu);
} cpus SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, LOAD_SLOTS);
    __type(key, __u64);  // id of a job's cgroup
    __type(value, __u32);
} slots SEC(".maps");

struct task_load {
    __u64 queued_ns;  // when it became runnable; 0 while it runs or sleeps
    // its sum_exec_runtime when it was last switched in or out: what comes on top is not charged
    // yet
    __u64 run_ns;
};

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct task_load);
} tasks SEC(".maps");

static __always_inline __u64 ancestor_id(struct cgroup* group, int level) {
    struct cgroup* ancestor = 0;
    bpf_probe_read_kernel(&ancestor, sizeof ancestor, &group->ancestors[level]);
    return ancestor ? BPF_CORE_READ(ancestor, kn, id) : 0;
}

static __always_inline __u32 slot_of(struct task_struct* task) {
    struct cgroup* group = task->cgroups->dfl_cgrp;
    const int level = group->level;
    if (level < node_level || ancestor_id(group, node_level) != node_id) return LOAD_NONE;
    if (level < job_level) return 0;
    const __u64 job = ancestor_id(group, job_level);
    const __u32* slot = bpf_map_lookup_elem(&slots, &job);
    return slot ? *slot : 0;
}

static __always_inline struct load_cpu* this_cpu(void) {
    const __u32 cpu = bpf_get_smp_processor_id();
    return bpf_map_lookup_elem(&cpus, &cpu);
}

// What is known of a task of this node. A new entry begins with what the task has run so far. Null:
// no memory.
static __always_inline struct task_load* load_of(struct task_struct* task, struct load_cpu* cpu) {
    struct task_load begin = {0, task->se.sum_exec_runtime};
    struct task_load* load =
        bpf_task_storage_get(&tasks, task, &begin, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!load) __sync_fetch_and_add(&cpu->dropped, 1);
    return load;
}

// `slot` is below LOAD_SLOTS; the mask, out of the compiler's sight, shows the verifier.
static __always_inline void charge(struct load_cpu* cpu, __u32 slot, __u64 ran, __u64 waited) {
    asm volatile("%0 &= %1" : "+r"(slot) : "i"(LOAD_SLOTS - 1));
    cpu->counters[0].run_ns += ran;
    cpu->counters[0].wait_ns += waited;
    if (slot == 0) return;
    cpu->counters[slot].run_ns += ran;
    cpu->counters[slot].wait_ns += waited;
}

static __always_inline int woken(struct task_struct* task) {
    if (slot_of(task) == LOAD_NONE) return 0;
    struct load_cpu* cpu = this_cpu();
    struct task_load* load = cpu ? load_of(task, cpu) : 0;
    if (load) load->queued_ns = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct* task) { return woken(task); }

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct* task) { return woken(task); }

// `seen`: its switch in was seen.
static __always_inline void switched_out(struct load_cpu* cpu, __u32 slot, bool seen,
                                         struct task_struct* task, bool runnable, __u64 now) {
    struct task_load* load = load_of(task, cpu);
    if (!load) return;
    const __u64 run_ns = task->se.sum_exec_runtime;
    __u64 ran = run_ns - load->run_ns, waited = 0;
    if (!seen) {
        // One that is not queued has run since before it came to this node.
        const __u64 passed = load->queued_ns ? now - load->queued_ns : 0;
        if (ran > passed) ran = passed;
        waited = passed - ran;
    }
    charge(cpu, slot, ran, waited);
    load->run_ns = run_ns;
    load->queued_ns = runnable ? now : 0;
}

static __always_inline void switched_in(struct load_cpu* cpu, __u32 slot, struct task_struct* task,
                                        __u64 now) {
    struct task_load* load = load_of(task, cpu);
    if (!load) return;
    if (load->queued_ns) charge(cpu, slot, 0, now - load->queued_ns);
    load->queued_ns = 0;
    load->run_ns = task->se.sum_exec_runtime;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct* prev, struct task_struct* next) {
    struct load_cpu* cpu = this_cpu();
    if (!cpu) return 0;
    const bool seen = cpu->slot != LOAD_NONE;
    const __u32 before = seen ? cpu->slot : slot_of(prev);
    const __u32 after = slot_of(next);
    if (before == LOAD_NONE && after == LOAD_NONE) return 0;

    const __u64 now = bpf_ktime_get_ns();
    volatile __u32* const writing = &cpu->writing;
    ++*writing;
    barrier();
    if (before != LOAD_NONE)
        switched_out(cpu, before, seen, prev, preempt || prev->__state == 0, now);
    if (after != LOAD_NONE) switched_in(cpu, after, next, now);
    cpu->since_ns = now;
    cpu->slot = after;
    barrier();
    ++*writing;
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
