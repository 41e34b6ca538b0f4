// SPDX-License-Identifier: GPL-2.0-or-later
// The gates of a job's network interface: one XDP program for each way of its veth pair, one
// classifier where loopback sends. Each does with frames what its element of the map says
// (frame_gate.hpp). Plain kernel ABI, nothing relocated.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "kernel/sys/net/frame_gate.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __type(key, __u32);
    __type(value, __u64);
    __uint(max_entries, FRAME_ELEMENTS);
} gates SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(key_size, 0);
    __type(value, struct frame_kept);
    __uint(max_entries, FRAMES_KEPT);
} kept SEC(".maps");

// The first frame of a connection over TCP.
static __always_inline int begins(const void* at, const void* end) {
    const struct ethhdr* const frame = at;
    if ((const void*)(frame + 1) > end) return 0;
    const void* inner = frame + 1;
    if (frame->h_proto == bpf_htons(ETH_P_IP)) {
        const struct iphdr* const ip = inner;
        if ((const void*)(ip + 1) > end || ip->protocol != IPPROTO_TCP) return 0;
        inner += ip->ihl * 4;
    } else if (frame->h_proto == bpf_htons(ETH_P_IPV6)) {
        const struct ipv6hdr* const ip = inner;
        if ((const void*)(ip + 1) > end || ip->nexthdr != IPPROTO_TCP) return 0;
        inner += sizeof *ip;
    } else {
        return 0;
    }
    const struct tcphdr* const tcp = inner;
    return (const void*)(tcp + 1) <= end && tcp->syn && !tcp->ack;
}

static __always_inline void keep(__u32 way, const void* frame, const void* end, __u32 bytes) {
    struct frame_kept one = {.way = way, .bytes = bytes};
    if (bytes > FRAME_KEPT_BYTES) return;
#pragma unroll
    for (int i = 0; i < FRAME_KEPT_BYTES; ++i) {
        const __u8* const at = (const __u8*)frame + i;
        if ((const void*)(at + 1) > end) break;
        one.frame[i] = *at;
    }
    bpf_map_push_elem(&kept, &one, BPF_ANY);
}

static __always_inline int is_over(void) {
    const __u32 at = FRAME_UNTIL;
    const __u64* const until = bpf_map_lookup_elem(&gates, &at);
    return until && *until && bpf_ktime_get_boot_ns() >= *until;
}

// `bytes` of the frame in all; of a frame that begins something they are all there, or too many.
static __always_inline int stops(__u32 way, const void* frame, const void* end, __u32 bytes) {
    const __u64* const does = bpf_map_lookup_elem(&gates, &way);
    if (way != FRAME_WITHIN && is_over()) return 1;
    if (!does || *does == FRAME_PASSES) return 0;
    if (*does == FRAME_STOPS && way != FRAME_WITHIN) return 1;
    if (!begins(frame, end)) return *does == FRAME_STOPS;
    keep(way, frame, end, bytes);
    return 1;
}

static __always_inline int pass(__u32 way, const struct xdp_md* frame) {
    const void* const at = (const void*)(long)frame->data;
    const void* const end = (const void*)(long)frame->data_end;
    return stops(way, at, end, frame->data_end - frame->data) ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int souk_gate_in(struct xdp_md* frame) { return pass(FRAME_TO_JOB, frame); }

SEC("xdp")
int souk_gate_out(struct xdp_md* frame) { return pass(FRAME_FROM_JOB, frame); }

SEC("tc")
int souk_gate_lo(struct __sk_buff* frame) {
    if (frame->mark == FRAME_CRIU_MARK) return TC_ACT_UNSPEC;
    const void* const at = (const void*)(long)frame->data;
    const void* const end = (const void*)(long)frame->data_end;
    return stops(FRAME_WITHIN, at, end, frame->len) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
