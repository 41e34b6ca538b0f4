// SPDX-License-Identifier: GPL-2.0-or-later
// These programs sum up in the kernel who runs and who waits on this machine: each job of one node,
// the node's whole cgroup subtree, and everything else. That is the owner's own tasks, and apart
// from them threads of the kernel and the daemon.
//
// Techniques: BTF tracepoints (tp_btf, no kprobe); the few kernel fields that are read are declared
// here and relocated when loaded (CO-RE), so that no dump of the kernel's types is needed to build.
// A task belongs to a job by its ancestor on the cgroup v2 level of jobs, so groups that a job
// makes for itself count too. Needs: kernel 5.15, CONFIG_DEBUG_INFO_BTF, CONFIG_SCHED_INFO,
// CONFIG_FAIR_GROUP_SCHED. Load.cpp falls back to /proc where this does not load.
//
// Run time is the scheduler's own sum for the task (sum_exec_runtime: what a hypervisor stole is
// not in it). Waits are the scheduler's own too. A task that is switched in has been queued since
// sched_info.last_queued, by the clock of the run queue, which the scheduler has just set. To read
// another clock would cost half of a switch's time here, so what CLOCK_MONOTONIC says follows from
// that one: both are compared every 10 ms. sched_info.run_delay holds what the task waited on other
// CPUs before, if it was moved between them. The tracepoint comes before the scheduler adds the
// last stretch. So that earlier waits are not counted twice, what a task's sums were when it was
// last switched out stands in a table by its number. Two tasks may share a place there: then the
// one that comes back finds nothing, and of that wait only the last stretch counts.
//
// A task that nobody contends for its CPU is not switched out: where use by the owner is to be
// noticed, a clock of each CPU looks at the one that runs.
//
// There are kernels that hide the switches from some tasks of their own, so that a task runs and
// nobody has said that it was switched in: the same table tells what it ran and waited.
//
// docs/benchmarks.md says what a switch costs, and how exact the counts are.
//
// Bytes of the network are counted at the sockets of the node's group: packets with their IP
// headers, by the group in which the socket was made. Load.cpp leaves these two programs out where
// the kernel does not take them. Two more are at the root of all groups while it is to be noticed
// that the owner uses the network.
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/load.h"

typedef _Bool bool;

#define RELOCATED __attribute__((preserve_access_index))

struct kernfs_node {
    __u64 id;
} RELOCATED;

struct cgroup {
    int level;
    struct kernfs_node* kn;
    struct cgroup* ancestors[];
} RELOCATED;

struct cgroup___before_6_1 {
    int level;
    __u64 ancestor_ids[];
} RELOCATED;

struct css_set {
    struct cgroup* dfl_cgrp;
} RELOCATED;

struct cfs_rq {
    unsigned int h_nr_runnable, h_nr_idle;
    struct rq* rq;
} RELOCATED;

struct cfs_rq___before_6_14 {
    unsigned int h_nr_running, idle_h_nr_running;
} RELOCATED;

struct cfs_rq___of_6_12 {
    unsigned int h_nr_delayed;
} RELOCATED;

struct rq {
    __u64 clock;
    struct cfs_rq cfs;
} RELOCATED;

struct sched_entity {
    __u64 sum_exec_runtime;
    struct cfs_rq* cfs_rq;
} RELOCATED;

struct sched_info {
    unsigned long pcount;
    __u64 run_delay, last_queued;
} RELOCATED;

struct task_io_accounting {
    __u64 read_bytes, write_bytes;
} RELOCATED;

struct task_struct {
    unsigned int __state;
    unsigned int flags;
    int pid, tgid;
    struct task_struct* real_parent;
    struct sched_entity se;
    struct sched_info sched_info;
    unsigned long maj_flt;
    struct task_io_accounting ioac;
    struct css_set* cgroups;
    char comm[16];
} RELOCATED;

// Set between open and load.
const volatile __u64 node_id = 0;
const volatile int node_level = 0;
const volatile int job_level = 0;
const volatile int daemon_tgid = 0;
const volatile __u64 daemon_id = 0;  // of its control group, on this level; 0: it has none
const volatile int daemon_level = 0;
#define WINDOW_NS 40000000ull
#define NOTICE_EVERY_NS 1000000000ull
#define COMPARE_EVERY_NS 10000000ull

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

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, LOAD_NAMES);
    __type(key, char[LOAD_NAME]);
    __type(value, __u32);
} names SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} notices SEC(".maps");

// An event of each CPU, on which a thread of that CPU waits (cpu_wakers.hpp).
struct {
    __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} wakers SEC(".maps");

// Each task has a row, by its number, with three words: its run_delay (WAITED) and its
// sum_exec_runtime (RAN) when it was last switched out, and the time when it left its CPU to wait
// for something (LEFT, in units of 1024 ns; 0: it could have gone on). The upper 24 bits of a word
// are the task's number, the lower 40 the value, which goes around in 18 minutes (LEFT: 13 days). A
// word is written at once, so that another CPU never reads half of it. The fourth word keeps a
// task's row in one cache line.
#define TASKS 8192
#define SUM_BITS 40
#define SUM_MASK ((1ull << SUM_BITS) - 1)
enum { WAITED, RAN, LEFT };
#define LEFT_SHIFT 10
__u64 sums[TASKS][4] __attribute__((aligned(64)));

#define KERNEL_THREAD 0x00200000  // PF_KTHREAD

static __always_inline __u64 kept_sum(__u32 pid, __u64 sum) {
    return (__u64)pid << SUM_BITS | (sum & SUM_MASK);
}

// Returns what was added to the sum since it was kept; 0 if that is not known.
static __always_inline __u64 added(__u64 kept, __u32 pid, __u64 sum) {
    return kept >> SUM_BITS == pid ? (sum - kept) & SUM_MASK : 0;
}

// Returns how long a task was off its CPU until `now` because it waited for something; 0 if that is
// not known. `other` is the part of this time that is accounted otherwise.
static __always_inline __u64 off_cpu(__u64 left, __u32 pid, __u64 now, __u64 other) {
    // The clock of this CPU may be behind that of the CPU which the task left.
    const __u64 passed = added(left, pid, now >> LEFT_SHIFT);
    const __u64 span = passed > SUM_MASK / 2 ? 0 : passed << LEFT_SHIFT;
    return span > other ? span - other : 0;
}

// Three reads each: what would cost a switch most, so see group_slot().
static __always_inline __u64 ancestor_id(struct cgroup* group, int level) {
    __u64 id = 0;
    struct cgroup* ancestor = 0;
    if (bpf_core_field_exists(group->ancestors)) {
        bpf_probe_read_kernel(&ancestor, sizeof ancestor, &group->ancestors[level]);
        return ancestor ? BPF_CORE_READ(ancestor, kn, id) : 0;
    }
    struct cgroup___before_6_1* old = (void*)group;
    bpf_probe_read_kernel(&id, sizeof id, &old->ancestor_ids[level]);
    return id;
}

// A server of files outlives the daemon that has started it, and the next one is not its parent.
static __always_inline bool serves_files(struct task_struct* task) {
    const char server[] = "souk-files";
#pragma unroll
    for (int i = 0; i < (int)sizeof server; ++i)
        if (task->comm[i] != server[i]) return 0;
    return 1;
}

// LOAD_OWNER: the group is not of the node.
static __always_inline __u32 look_up(struct cgroup* group) {
    const int level = group->level;
    if (level < node_level || ancestor_id(group, node_level) != node_id) return LOAD_OWNER;
    if (level < job_level) return 0;
    const __u64 job = ancestor_id(group, job_level);
    const __u32* slot = bpf_map_lookup_elem(&slots, &job);
    return slot ? *slot : 0;
}

// Finds the same from what this CPU has looked up before. That stays true, because groups keep
// their ancestors, and no number is given twice. When another group gets a slot, user space says so
// by `changes`. Only on_switch calls this, because nothing else may run on this CPU meanwhile.
static __always_inline __u32 group_slot(struct load_cpu* cpu, struct cgroup* group) {
    const __u64 id = group->kn->id;
    struct load_group* const known = &cpu->groups[id % LOAD_GROUPS];
    const __u32 changes = *(volatile __u32*)&cpu->changes;
    if (known->id == id && known->changes == changes) return known->slot;
    const __u32 slot = look_up(group);
    known->id = id;
    known->slot = slot;
    known->changes = changes;
    return slot;
}

// `cpu`: null where something else may run on this CPU meanwhile.
static __always_inline __u32 slot_of(struct load_cpu* cpu, struct task_struct* task) {
    if (task->pid == 0) return LOAD_NONE;
    if (task->flags & KERNEL_THREAD) return LOAD_SYSTEM;
    struct cgroup* group = task->cgroups->dfl_cgrp;
    const __u32 slot = cpu ? group_slot(cpu, group) : look_up(group);
    if (slot != LOAD_OWNER) return slot;
    const bool daemon = task->tgid == daemon_tgid || task->real_parent->tgid == daemon_tgid;
    return daemon || serves_files(task) ? LOAD_SYSTEM : LOAD_OWNER;
}

static __always_inline struct load_cpu* this_cpu(void) {
    const __u32 cpu = bpf_get_smp_processor_id();
    return bpf_map_lookup_elem(&cpus, &cpu);
}

// `slot` is below LOAD_COUNTERS; the mask, out of the compiler's sight, shows the verifier.
static __always_inline struct load_counter* counter_of(struct load_cpu* cpu, __u32 slot) {
    asm volatile("%0 &= %1" : "+r"(slot) : "i"(LOAD_COUNTERS - 1));
    return &cpu->counters[slot];
}

static __always_inline __u32 place_of(__u64 wait) {
    __u32 units = wait >> 10 > 0x7fffffff ? 0x7fffffff : wait >> 10, place = 0;
    if (units >= 1 << 16) units >>= 16, place += 16;
    if (units >= 1 << 8) units >>= 8, place += 8;
    if (units >= 1 << 4) units >>= 4, place += 4;
    if (units >= 1 << 2) units >>= 2, place += 2;
    if (units >= 1 << 1) units >>= 1, place += 1;
    place += units;
    asm volatile("%0 &= %1" : "+r"(place) : "i"(LOAD_WAITS - 1));
    return place;
}

static __always_inline void add_wait(struct load_cpu* cpu, __u32 slot, __u64 wait) {
    const __u32 place = place_of(wait);
    struct load_counter* c = counter_of(cpu, slot);
    c->wait_ns += wait;
    c->waits[place] += 1;
    if (slot == 0 || slot >= LOAD_SLOTS) return;
    cpu->counters[0].wait_ns += wait;
    cpu->counters[0].waits[place] += 1;
}

static __always_inline void add_off_cpu(struct load_cpu* cpu, __u32 slot, __u64 off) {
    counter_of(cpu, slot)->off_ns += off;
    if (slot != 0) cpu->counters[0].off_ns += off;
}

// Clocks that are compared anew may be some microseconds back.
static __always_inline __u64 passed(__u64 since, __u64 now) {
    return now > since ? now - since : 0;
}

// Gives a notice, at most one a second from each CPU.
static __always_inline void notice(struct load_cpu* cpu, __u32 kind, __u32 pid, __u64 ns,
                                   __u64 now) {
    if (passed(cpu->noticed_ns, now) < NOTICE_EVERY_NS) return;
    cpu->noticed_ns = now;
    struct load_notice n = {kind, pid, ns};
    bpf_ringbuf_output(&notices, &n, sizeof n, 0);
}

static __always_inline void notice_run(struct load_cpu* cpu, __u32 pid, __u64 ran, __u64 now) {
    if (passed(cpu->window_ns, now) > WINDOW_NS) {
        cpu->window_ns = now;
        cpu->window_run_ns = 0;
    }
    cpu->window_run_ns += ran;
    if (cpu->window_run_ns >= cpu->notice_run_ns)
        notice(cpu, LOAD_NOTICE_RUN, pid, cpu->window_run_ns, now);
}

// Adds what the running task has run since it was switched in, which is in no sum yet. A clock of
// the CPU calls this, at moments at which on_switch does not run there.
SEC("perf_event")
int on_look(void* context) {
    struct load_cpu* cpu = this_cpu();
    if (!cpu || !cpu->notice_run_ns || cpu->slot != LOAD_OWNER) return 0;
    struct task_struct* task = (void*)bpf_get_current_task();
    const __u32 pid = BPF_CORE_READ(task, pid);
    if (pid != cpu->pid) return 0;
    const __u64 now = bpf_ktime_get_ns();
    __u64 ran = BPF_CORE_READ(task, se.sum_exec_runtime) - cpu->run_ns;
    if (passed(cpu->window_ns, now) <= WINDOW_NS) ran += cpu->window_run_ns;
    if (ran >= cpu->notice_run_ns) notice(cpu, LOAD_NOTICE_RUN, pid, ran, now);
    return 0;
}

struct stretch {
    __u64 run_ns, major_faults, read_bytes, write_bytes;
    bool preempted;
};

static __always_inline void add_stretch(struct load_counter* c, const struct stretch* s) {
    c->run_ns += s->run_ns;
    if (s->preempted)
        c->preempted += 1;
    else
        c->gave_up += 1;
    if (s->major_faults) c->major_faults += s->major_faults;
    if (s->read_bytes) c->read_bytes += s->read_bytes;
    if (s->write_bytes) c->write_bytes += s->write_bytes;
}

static __always_inline void switched_out(struct load_cpu* cpu, __u32 slot, bool seen,
                                         struct task_struct* task, bool preempted, __u64 now) {
    const __u32 pid = task->pid;
    const __u64 ran = task->se.sum_exec_runtime, waited = task->sched_info.run_delay;
    __u64* const kept = sums[pid % TASKS];
    struct stretch s = {0, 0, 0, 0, preempted};
    if (seen) {
        s.run_ns = ran - cpu->run_ns;
        if (slot < LOAD_SLOTS) {
            s.major_faults = task->maj_flt - cpu->major_faults;
            if (bpf_core_field_exists(task->ioac.read_bytes)) {
                s.read_bytes = task->ioac.read_bytes - cpu->read_bytes;
                s.write_bytes = task->ioac.write_bytes - cpu->write_bytes;
            }
        }
    } else {
        s.run_ns = added(kept[RAN], pid, ran);
        cpu->unseen += 1;
        const __u64 wait = added(kept[WAITED], pid, waited);
        if (wait) add_wait(cpu, slot, wait);
    }
    if (slot < LOAD_SLOTS) kept[LEFT] = preempted ? 0 : kept_sum(pid, now >> LEFT_SHIFT);
    kept[WAITED] = kept_sum(pid, waited);
    kept[RAN] = kept_sum(pid, ran);
    if (cpu->notice_run_ns && slot == LOAD_OWNER) notice_run(cpu, pid, s.run_ns, now);
    add_stretch(counter_of(cpu, slot), &s);
    if (slot != 0 && slot < LOAD_SLOTS) add_stretch(&cpu->counters[0], &s);
}

static __always_inline void switched_in(struct load_cpu* cpu, __u32 slot, struct task_struct* task,
                                        __u64 now, __u64 clock) {
    const __u64 queued = task->sched_info.last_queued;
    const __u64 elsewhere = task->sched_info.run_delay;
    __u64 wait = queued && clock > queued ? clock - queued : 0;
    const __u32 pid = task->pid;
    const __u64* const kept = sums[pid % TASKS];
    wait += task->sched_info.pcount ? added(kept[WAITED], pid, elsewhere) : elsewhere;
    add_wait(cpu, slot, wait);
    if (cpu->notice_wait_ns && slot == LOAD_OWNER && wait >= cpu->notice_wait_ns)
        notice(cpu, LOAD_NOTICE_WAIT, pid, wait, now);
    cpu->run_ns = task->se.sum_exec_runtime;
    if (slot >= LOAD_SLOTS) return;
    // One that has never run may have the number of one that has ended.
    const __u64 off = task->sched_info.pcount ? off_cpu(kept[LEFT], pid, now, wait) : 0;
    if (off) add_off_cpu(cpu, slot, off);
    cpu->major_faults = task->maj_flt;
    if (bpf_core_field_exists(task->ioac.read_bytes)) {
        cpu->read_bytes = task->ioac.read_bytes;
        cpu->write_bytes = task->ioac.write_bytes;
    }
}

// Tells whether a task that is not lowered is queued on this CPU, as a guest gets it.
static __always_inline bool others_wait(struct rq* rq) {
    struct cfs_rq* queue = &rq->cfs;
    if (bpf_core_field_exists(queue->h_nr_runnable))
        return (int)(BPF_CORE_READ(queue, h_nr_runnable) - BPF_CORE_READ(queue, h_nr_idle)) > 0;
    struct cfs_rq___before_6_14* old = (void*)queue;
    struct cfs_rq___of_6_12* delaying = (void*)queue;
    unsigned int runnable = BPF_CORE_READ(old, h_nr_running);
    if (bpf_core_field_exists(delaying->h_nr_delayed))
        runnable -= BPF_CORE_READ(delaying, h_nr_delayed);
    return (int)(runnable - BPF_CORE_READ(old, idle_h_nr_running)) > 0;
}

// A guest that is lowered may still be picked while another task could go on: fair scheduling owes
// it its part, small as that is, and it then has the CPU until the next tick, 1 to 10 ms later.
// What wakes on this CPU takes it from the guest at once, and when that sleeps again the guest has
// had its part, so the task goes on that had to wait.
static __always_inline void give_way(void* context, struct load_cpu* cpu) {
    const __u8 nothing = 0;
    cpu->gave_way += 1;
    bpf_perf_event_output(context, &wakers, BPF_F_CURRENT_CPU, (void*)&nothing, sizeof nothing);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct* prev, struct task_struct* next) {
    struct load_cpu* cpu = this_cpu();
    if (!cpu) return 0;
    struct rq* const rq = next->se.cfs_rq->rq;
    const __u64 clock = rq->clock;
    if (clock - cpu->compared_ns > COMPARE_EVERY_NS) {
        cpu->compared_ns = clock;
        cpu->ahead_ns = bpf_ktime_get_ns() - clock;
    }
    const __u64 now = clock + cpu->ahead_ns;
    const bool seen = cpu->pid == prev->pid && cpu->slot != LOAD_NONE;
    const __u32 before = seen ? cpu->slot : slot_of(cpu, prev);
    const __u32 after = slot_of(cpu, next);
    const bool could_go_on = preempt || prev->__state == 0;

    volatile __u32* const writing = &cpu->writing;
    ++*writing;
    barrier();
    if (before != LOAD_NONE) switched_out(cpu, before, seen, prev, could_go_on, now);
    if (after != LOAD_NONE) switched_in(cpu, after, next, now, clock);
    cpu->since_ns = now;
    cpu->slot = after;
    cpu->pid = next->pid;
    barrier();
    ++*writing;
    if (cpu->give_way && after < LOAD_SLOTS && before != LOAD_NONE && others_wait(rq))
        give_way(ctx, cpu);
    return 0;
}

static __always_inline void add_life(struct task_struct* task, bool born) {
    struct load_cpu* cpu = this_cpu();
    if (!cpu || task->pid != task->tgid) return;
    const __u32 slot = slot_of(0, task);
    struct load_counter* c = counter_of(cpu, slot);
    __sync_fetch_and_add(born ? &c->births : &c->deaths, 1);
    if (slot == 0 || slot >= LOAD_SLOTS) return;
    c = &cpu->counters[0];
    __sync_fetch_and_add(born ? &c->births : &c->deaths, 1);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct* parent, struct task_struct* child) {
    add_life(child, 1);
    return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct* task) {
    char name[LOAD_NAME] = {};
    bpf_probe_read_kernel_str(name, sizeof name, task->comm);
    // bpf_probe_read_kernel_str leaves what follows the end as it was: zeros
    if (!bpf_map_lookup_elem(&names, name) || slot_of(0, task) != LOAD_OWNER) return 0;
    struct load_notice n = {LOAD_NOTICE_PROGRAM, task->tgid, 0};
    bpf_ringbuf_output(&notices, &n, sizeof n, 0);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct* task) {
    add_life(task, 0);
    return 0;
}

// Packets come in interrupts, which may come in the middle of a packet that goes.
static __always_inline int add_packet(struct __sk_buff* packet, bool sent) {
    struct bpf_sock* sock = packet->sk;
    struct load_cpu* cpu = this_cpu();
    if (!sock || !cpu) return 1;
    const __u64 job = bpf_sk_ancestor_cgroup_id(sock, job_level);
    const __u32* found = job ? bpf_map_lookup_elem(&slots, &job) : 0;
    const __u32 slot = found ? *found : 0;
    struct load_counter* c = counter_of(cpu, slot);
    __sync_fetch_and_add(sent ? &c->sent_bytes : &c->received_bytes, packet->len);
    if (slot == 0) return 1;
    c = &cpu->counters[0];
    __sync_fetch_and_add(sent ? &c->sent_bytes : &c->received_bytes, packet->len);
    return 1;
}

// Counts the packets of all sockets of the machine but those in the node's and the daemon's groups.
// Packets that never leave the machine are no use of the network. There is one sum for all CPUs,
// because a connection's packets come on many.
#define LOOPBACK 1
struct {
    __u64 window_ns, bytes;
} owner_packets;

static __always_inline int owner_packet(struct __sk_buff* packet) {
    struct bpf_sock* sock = packet->sk;
    struct load_cpu* cpu = this_cpu();
    if (!sock || !cpu || packet->ifindex == LOOPBACK || !cpu->notice_bytes) return 1;
    if (bpf_sk_ancestor_cgroup_id(sock, node_level) == node_id) return 1;
    if (daemon_id && bpf_sk_ancestor_cgroup_id(sock, daemon_level) == daemon_id) return 1;
    const __u64 now = bpf_ktime_get_ns();
    if (now - owner_packets.window_ns > WINDOW_NS) {
        owner_packets.window_ns = now;
        owner_packets.bytes = 0;
    }
    __sync_fetch_and_add(&owner_packets.bytes, packet->len);
    if (owner_packets.bytes >= cpu->notice_bytes)
        notice(cpu, LOAD_NOTICE_NETWORK, 0, owner_packets.bytes, now);
    return 1;
}

SEC("cgroup_skb/ingress")
int on_owner_received(struct __sk_buff* packet) { return owner_packet(packet); }

SEC("cgroup_skb/egress")
int on_owner_sent(struct __sk_buff* packet) { return owner_packet(packet); }

SEC("cgroup_skb/ingress")
int on_received(struct __sk_buff* packet) { return add_packet(packet, 0); }

SEC("cgroup_skb/egress")
int on_sent(struct __sk_buff* packet) { return add_packet(packet, 1); }

char LICENSE[] SEC("license") = "GPL";
