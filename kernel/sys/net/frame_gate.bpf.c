// SPDX-License-Identifier: GPL-2.0-or-later
// The gates of a job's network interface: one XDP program for each way of its veth pair, one
// classifier where loopback sends. Each drops frames while its element of the map is not 0
// (frame_gate.hpp). Plain kernel ABI, nothing relocated.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "kernel/sys/net/frame_gate.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __type(key, __u32);
    __type(value, __u32);
    __uint(max_entries, FRAME_WAYS);
} shut SEC(".maps");

static __always_inline int is_shut(__u32 way) {
    const __u32* value = bpf_map_lookup_elem(&shut, &way);
    return value && *value != 0;
}

SEC("xdp")
int souk_gate_in(struct xdp_md* frame) { return is_shut(FRAME_TO_JOB) ? XDP_DROP : XDP_PASS; }

SEC("xdp")
int souk_gate_out(struct xdp_md* frame) { return is_shut(FRAME_FROM_JOB) ? XDP_DROP : XDP_PASS; }

SEC("tc")
int souk_gate_lo(struct __sk_buff* frame) {
    return frame->mark != FRAME_CRIU_MARK && is_shut(FRAME_WITHIN) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
