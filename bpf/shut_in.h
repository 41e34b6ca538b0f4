/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What bpf/shut_in.bpf.c tells of a thread, and bpf/shut_in.cpp reads. */
#pragma once

#include <linux/types.h>

enum { SHUT_IN_WORDS = 16 };

struct shut_in_thread {
    __u32 process, thread; /* by their numbers in the machine's first namespace */
    __u32 set;             /* bit N: word N is not zero */
};
