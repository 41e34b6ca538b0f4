/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The ABI between load.bpf.c and load.cpp: one load_cpu per CPU, in a memory-mapped array. Only its
 * own CPU writes it, so nothing is locked; user space reads it without a system call. */
#ifndef SOUK_BPF_LOAD_H
#define SOUK_BPF_LOAD_H

#define LOAD_SLOTS 254    /* slot 0 is the node's whole subtree, those that follow are its jobs */
#define LOAD_OWNER 254    /* tasks outside of the node that are neither of these: */
#define LOAD_SYSTEM 255   /* threads of the kernel, agentd and its children */
#define LOAD_COUNTERS 256 /* a power of two, as the next one */
#define LOAD_NONE 0xffffffffu /* the idle task */

#define LOAD_WAITS 32 /* of a histogram: in its i-th place are waits below 1024 << i ns */

struct load_counter {
    unsigned long long run_ns;    /* on a CPU */
    unsigned long long wait_ns;   /* runnable, on a run queue */
    unsigned long long gave_up;   /* switched out because they had to wait for something */
    unsigned long long preempted; /* switched out while they could have gone on */
    unsigned long long births;    /* processes, not threads */
    unsigned long long deaths;
    unsigned long long major_faults; /* of guests alone, as what follows */
    unsigned long long off_ns;       /* not runnable: until they could go on again */
    unsigned long long read_bytes;   /* fetched from storage for them */
    unsigned long long write_bytes;
    unsigned long long received_bytes; /* packets at their sockets, with IP headers */
    unsigned long long sent_bytes;
    unsigned int waits[LOAD_WAITS]; /* how long each wait was */
};

/* Keeps the slot that was found for a control group, or LOAD_OWNER. It is good as long as
 * `changes` is that of the CPU. */
#define LOAD_GROUPS 64
struct load_group {
    unsigned long long id;
    unsigned int slot, changes;
};

struct load_cpu {
    unsigned long long since_ns; /* CLOCK_MONOTONIC when the running task was switched in */
    /* what that clock is ahead of the run queue's, and when they were compared, by the latter */
    unsigned long long ahead_ns, compared_ns;
    unsigned int slot;    /* of the running task; LOAD_NONE: idle; 0: of the node, of no job */
    unsigned int pid;     /* of the running task */
    unsigned int writing; /* odd while the CPU changes this struct: a reader looks again */
    /* since when the owner's tasks are counted for a notice, what they have run, and when the last
     * one was given */
    unsigned long long window_ns, window_run_ns, noticed_ns;
    /* what is noticed of the owner's tasks here: that they ran so long within a window, that one
     * waited so long; 0: nothing is. Written by user space alone. */
    unsigned long long notice_run_ns, notice_wait_ns;
    unsigned long long notice_bytes; /* the same for packets within a window, on all CPUs */
    unsigned int unseen;             /* switches out of tasks whose switch in was not seen */
    unsigned int changes; /* how often a group has got a slot or lost it; written by user space */
    /* guests give way here to all others; written by user space alone. And how often one got the
     * CPU while another task was queued here. */
    unsigned int give_way;
    unsigned long long gave_way;
    /* of the running task, when it was switched in */
    unsigned long long run_ns, major_faults, read_bytes, write_bytes;
    struct load_group groups[LOAD_GROUPS];
    struct load_counter counters[LOAD_COUNTERS];
};

/* A notice says at once that the owner's tasks use this CPU, or wait for it, or begin a program. */
enum load_notice_kind {
    LOAD_NOTICE_RUN = 1,
    LOAD_NOTICE_WAIT = 2,
    LOAD_NOTICE_PROGRAM = 3, /* one of the programs that are named begins; ns is 0 */
    LOAD_NOTICE_NETWORK = 4  /* their sockets; ns is how many bytes */
};
#define LOAD_NAME 16 /* of a program, as the kernel keeps it, filled with zeros */
#define LOAD_NAMES 64
struct load_notice {
    unsigned int kind;
    unsigned int pid;
    unsigned long long ns; /* that it ran or waited */
};

#endif
