// SPDX-License-Identifier: GPL-2.0-or-later
// Tells of each thread of this machine which of the first words that security modules keep with its
// credentials are set. One of them is Landlock's, set if the thread has shut itself in
// (shut_in.cpp finds out which); no file of /proc says that. It runs when it is read and at no
// other time, so no system call of anybody's takes longer for it.
//
// Needs: kernel 5.8, CONFIG_DEBUG_INFO_BTF.
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/shut_in.h"

#define RELOCATED __attribute__((preserve_access_index))

struct cred {
    void* security;
} RELOCATED;

struct task_struct {
    int pid, tgid;
    const struct cred* cred;
} RELOCATED;

struct seq_file;

struct bpf_iter_meta {
    struct seq_file* seq;
} RELOCATED;

struct bpf_iter__task {
    struct bpf_iter_meta* meta;
    struct task_struct* task;
} RELOCATED;

SEC("iter/task")
int on_thread(struct bpf_iter__task* of) {
    struct task_struct* const task = of->task;
    __u64 words[SHUT_IN_WORDS] = {};
    if (!task) return 0;
    struct shut_in_thread thread = {.process = task->tgid, .thread = task->pid};
    void* const kept = BPF_CORE_READ(task, cred, security);
    if (!kept || bpf_probe_read_kernel(words, sizeof words, kept) != 0) return 0;
    for (int i = 0; i < SHUT_IN_WORDS; ++i)
        if (words[i] != 0) thread.set |= 1U << i;
    bpf_seq_write(of->meta->seq, &thread, sizeof thread);
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
