/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The ABI between load.bpf.c and load.cpp: one load_cpu per CPU, in a memory-mapped array. Only its
 * own CPU writes it, so nothing is locked; user space reads it without a system call. */
#ifndef SOUK_BPF_LOAD_H
#define SOUK_BPF_LOAD_H

#define LOAD_SLOTS 256 /* slot 0 is the node's whole subtree, the others are its jobs */
#define LOAD_NONE 0xffffffffu

struct load_counter {
    unsigned long long run_ns;  /* on a CPU */
    unsigned long long wait_ns; /* runnable, on a run queue */
};

struct load_cpu {
    unsigned long long since_ns; /* CLOCK_MONOTONIC when the running task was switched in */
    unsigned int slot;    /* its slot; LOAD_NONE: not of this node; 0: of the node, of no job */
    unsigned int writing; /* odd while the CPU changes this struct: a reader looks again */
    unsigned long long dropped; /* updates that found no memory */
    struct load_counter counters[LOAD_SLOTS];
};

#endif
