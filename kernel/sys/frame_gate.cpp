// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/frame_gate.hpp"

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <iterator>

namespace souk {
namespace {

int bpf(bpf_cmd command, bpf_attr& attr) { return static_cast<int>(::syscall(SYS_bpf, command, &attr, sizeof attr)); }

constexpr bpf_insn insn(int code, int dst, int src, int off, int imm) {
    bpf_insn i{};
    i.code = static_cast<uint8_t>(code);
    i.dst_reg = static_cast<uint8_t>(dst) & 15;
    i.src_reg = static_cast<uint8_t>(src) & 15;
    i.off = static_cast<int16_t>(off);
    i.imm = imm;
    return i;
}

// Drops while map[way] is not 0; within: not what has CRIU's mark.
Result<Fd> load(int map, FrameWay way) {
    const bool within = way == FrameWay::within;
    const int drop = within ? TC_ACT_SHOT : XDP_DROP, pass = within ? TC_ACT_UNSPEC : XDP_PASS;
    const bpf_insn code[] = {
        // Both kinds of context have 4 bytes there, and only the classifier's are a mark.
        insn(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_6, BPF_REG_1, within ? offsetof(__sk_buff, mark) : offsetof(xdp_md, rx_queue_index), 0),
        insn(BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, -4, static_cast<int>(way)),
        insn(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0),
        insn(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4),
        insn(BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map),
        insn(0, 0, 0, 0, 0),  // the upper half of that
        insn(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem),
        insn(BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 5, 0),
        insn(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_1, BPF_REG_0, 0, 0),
        insn(BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_1, 0, 3, 0),
        insn(BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_6, 0, 2, within ? static_cast<int>(criu_mark) : -1),
        insn(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, drop),
        insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        insn(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, pass),
        insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    };
    static constexpr char license[] = "GPL";
    bpf_attr attr{};
    attr.prog_type = within ? BPF_PROG_TYPE_SCHED_CLS : BPF_PROG_TYPE_XDP;
    attr.insns = reinterpret_cast<uint64_t>(code);
    attr.insn_cnt = std::size(code);
    attr.license = reinterpret_cast<uint64_t>(license);
    std::strcpy(attr.prog_name, "souk_gate");
    Fd fd(bpf(BPF_PROG_LOAD, attr));
    if (!fd) return fail_errno("load a BPF program that stops frames", errno);
    return fd;
}

}  // namespace

Result<FrameGate> FrameGate::create() {
    FrameGate g;
    bpf_attr attr{};
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = attr.value_size = sizeof(uint32_t);
    attr.max_entries = std::size(g.programs_);
    g.map_ = Fd(bpf(BPF_MAP_CREATE, attr));
    if (!g.map_) return fail_errno("make a BPF map", errno);
    for (const FrameWay way : all_ways) {
        TRY_ASSIGN(g.programs_[static_cast<size_t>(way)], load(g.map_.get(), way));
    }
    return g;
}

Status FrameGate::set(FrameWay way, bool shut) const {
    const uint32_t key = static_cast<uint32_t>(way), value = shut;
    bpf_attr attr{};
    attr.map_fd = static_cast<uint32_t>(map_.get());
    attr.key = reinterpret_cast<uint64_t>(&key);
    attr.value = reinterpret_cast<uint64_t>(&value);
    if (bpf(BPF_MAP_UPDATE_ELEM, attr) != 0) return fail_errno("set a gate for frames", errno);
    return {};
}

}  // namespace souk
