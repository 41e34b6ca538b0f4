// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/job_port.hpp"

#include "kernel/base/check.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/tcp_checksum.hpp"

namespace souk {

Status JobPort::arm(Gate at_first) {
    if (gate_) return {};
    TRY_ASSIGN(Armed armed, work_->arm(at_first));
    within_ = armed.within;
    gate_ = std::move(armed.gate);
    return {};
}

Status JobPort::shut(FrameWay way) {
    MUST(gate_.has_value());
    if (way == FrameWay::within && !within_)
        return fail("this kernel has no gate on loopback (cls_bpf, sch_ingress)");
    return gate_->set(way, Gate::shut);
}

Status JobPort::begins_nothing() {
    MUST(gate_.has_value());
    if (within_) TRY(gate_->set(FrameWay::within, Gate::begins_nothing));
    return gate_->set(FrameWay::to_job, Gate::begins_nothing);
}

Status JobPort::open() {
    if (!gate_) {
        Status disarmed = disarm();
        opened_.fill(unix_now());
        return disarmed;
    }
    for (const FrameWay way : all_ways) {
        TRY(gate_->set(way, Gate::open));
        opened_[static_cast<size_t>(way)] = unix_now();
    }
    return {};
}

Status JobPort::until(Nanos end) {
    MUST(gate_.has_value());
    return gate_->until(end);
}

std::vector<KeptFrame> JobPort::take_kept() {
    if (!gate_) return {};
    std::vector<KeptFrame> all = gate_->take_kept();
    for (KeptFrame& one : all) one.frame = with_tcp_checksum(std::move(one.frame));
    return all;
}

Status JobPort::disarm() {
    gate_.reset();
    return work_->act(PortAct::disarm);
}

void JobPort::silence() {
    if (gate_)
        for (const FrameWay way : {FrameWay::to_job, FrameWay::from_job}) (void)shut(way);
    abandon();
}

}  // namespace souk
