// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/frame_gate.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <memory>

#include "kernel/sys/net/frame_gate.skel.h"

namespace souk {

Result<FrameGate> FrameGate::create() {
    libbpf_set_print(nullptr);
    const std::unique_ptr<frame_gate_bpf, void (*)(frame_gate_bpf*)> skeleton(
        frame_gate_bpf__open(), frame_gate_bpf__destroy);
    if (!skeleton) return fail_errno("open the BPF programs that stop frames", errno);
    if (const int error = frame_gate_bpf__load(skeleton.get()); error != 0)
        return fail_errno("load the BPF programs that stop frames", -error);
    // Everything of libbpf goes again; what stays are the programs and their maps.
    FrameGate g;
    TRY_ASSIGN(g.map_, duplicate(bpf_map__fd(skeleton->maps.gates)));
    TRY_ASSIGN(g.kept_, duplicate(bpf_map__fd(skeleton->maps.kept)));
    const bpf_program* const programs[] = {
        skeleton->progs.souk_gate_in, skeleton->progs.souk_gate_out, skeleton->progs.souk_gate_lo};
    for (const FrameWay way : all_ways) {
        const auto at = static_cast<size_t>(way);
        TRY_ASSIGN(g.programs_[at], duplicate(bpf_program__fd(programs[at])));
    }
    return g;
}

// The kernel copies only the lower half of the value if an older version made the map, with values
// of 32 bits.
Status FrameGate::set(FrameWay way, Gate gate) const {
    const uint32_t key = static_cast<uint32_t>(way);
    const uint64_t value = static_cast<uint64_t>(gate);
    if (const int error = bpf_map_update_elem(map_.get(), &key, &value, BPF_ANY); error != 0)
        return fail_errno("set a gate for frames", -error);
    return {};
}

Status FrameGate::until(Nanos end) const {
    const uint32_t key = FRAME_UNTIL;
    const uint64_t value = end == Nanos::never() ? 0 : static_cast<uint64_t>(end.ns);
    const int error = bpf_map_update_elem(map_.get(), &key, &value, BPF_ANY);
    if (error != 0 && error != -E2BIG) return fail_errno("set the end of a gate", -error);
    return {};
}

std::vector<KeptFrame> FrameGate::take_kept() const {
    std::vector<KeptFrame> all;
    frame_kept one{};
    while (all.size() < FRAMES_KEPT &&
           bpf_map_lookup_and_delete_elem(kept_.get(), nullptr, &one) == 0)
        all.push_back({static_cast<FrameWay>(one.way),
                       {reinterpret_cast<const char*>(one.frame), one.bytes}});
    return all;
}

}  // namespace souk
