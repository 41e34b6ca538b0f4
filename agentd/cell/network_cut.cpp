// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/network_cut.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "kernel/base/fnv.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/tcp_repair.hpp"
#include "kernel/sys/net/tcp_unaccepted.hpp"

namespace souk {
namespace {

constexpr Nanos rest_after = Nanos::from_s(1);
// How long a program may take to accept what was begun. The kernel tells nobody of it but by
// asking.
constexpr Nanos accept_max = Nanos::from_s(1);
constexpr Nanos first_pause = Nanos::from_ms(1), pause_max = Nanos::from_ms(32);

// Fit for a network interface (15 characters at most), and no other capsule's: 48 bits of a hash.
std::string port_name(const std::string& job) {
    char name[16];
    std::snprintf(name, sizeof name, "sj%012llx",
                  static_cast<unsigned long long>(fnv1a_64(job) & 0xffffffffffff));
    return name;
}

}  // namespace

Status NetworkCut::check() const {
    if (!job_.own) return {};
    if (!network_)
        return fail(
            "this node has no network for a job of --net=own (job_network and job_bridge in "
            "agentd's configuration)");
    if (!network_->range.contains(job_.address))
        return fail("its address " + job_.address.text() +
                    " is not of this node's network for jobs, " + network_->range.text());
    return {};
}

Status NetworkCut::make(const Capsule& capsule, bool shut) {
    if (!job_.own) return {};
    TRY(open_port(capsule, {false, shut, job_.address, port_name(job_.name)}));
    shut_ = shut;
    if (shut) {
        until(until_);
        patient(true);
        is_copy_ = true;
        if (auto held = hold_frames_of_copy(); !held)
            log_.limited("frames", "its connections may be silent for seconds when it runs",
                         held.error());
        return {};
    }
    (void)port_->announce();
    stay_armed();
    return {};
}

Status NetworkCut::open_port(const Capsule& capsule, const PortPlan& plan) {
    TRY_ASSIGN(MadePort made, reach_.port(capsule.pidfd(), network_, plan));
    port_.emplace(std::move(made));
    return {};
}

Status NetworkCut::hold_frames_of_copy() {
    TRY(port_->work().hold(FrameWay::to_job, false));
    holds_ = true;
    return port_->work().hold(FrameWay::from_job, false);
}

void NetworkCut::came_with(std::string_view frames) {
    was_frozen_ = true;
    if (!holds_) return;
    if (auto fed = port_->work().feed({}, decode_frames(frames)); !fed)
        log_.limited("frames", "its connections may be silent for seconds when it runs",
                     fed.error());
}

void NetworkCut::find(const Capsule& capsule, bool shut) {
    if (!job_.own) return;
    const auto find = [&]() -> Status {
        TRY(open_port(capsule, {true, false, job_.address, port_name(job_.name)}));
        shut_ = shut;
        if (shut) return {};  // its gates are as that daemon left them
        TRY(port_->open());
        stay_armed();
        return {};
    };
    if (auto found = find(); !found)
        log_.warning("a job's network interface is not found", found.error());
}

Status NetworkCut::arm(Gate at_first) {
    TRY(port_->arm(at_first));
    return job_.may_go_back ? port_->until(until_) : Status{};
}

void NetworkCut::until(Nanos end) {
    until_ = end;
    if (!port_ || !job_.may_go_back || !port_->armed()) return;
    if (auto said = port_->until(end); !said)
        log_.limited("gates", "it is heard after its lease", said.error());
}

void NetworkCut::patient(bool on) {
    if (!port_) return;
    patient_ = on;
    if (auto said = port_->patient(on); !said)
        log_.limited("patient", "its connections may end while it stands", said.error());
}

void NetworkCut::stay_armed() {
    if (!job_.may_go_back) return;
    if (auto armed = arm(); !armed)
        log_.limited("gates", "what is left of it is heard if it is killed", armed.error());
}

void NetworkCut::settle(pid_t inside, std::function<void(size_t unaccepted)> then) {
    if (!port_) return then(0);
    rest_.cancel();
    shut_ = true;
    const auto begin = [this]() -> Status {
        TRY(arm());
        return port_->begins_nothing();
    };
    if (auto begun = begin(); !begun) return then(0);  // shut_in says why
    look_for_unaccepted(inside, first_pause, Loop::now() + accept_max, std::move(then));
}

// A busy kernel may deliver what was sent just before the gates were shut after a look at its
// table, and its answer would be stopped when the job stands: the program would wait a second,
// until TCP says the first word again.
Result<size_t> NetworkCut::unfinished_left(pid_t inside) const {
    TRY_ASSIGN(const UnfinishedTcp found, unfinished_of(inside));
    const size_t kept = std::min(begun_within_.size(), found.begun_within);
    return found.unaccepted + found.begun_within - kept;
}

void NetworkCut::look_for_unaccepted(pid_t inside, Nanos pause, Nanos until,
                                     std::function<void(size_t unaccepted)> then) {
    const Nanos began = Loop::now();
    // Frames that the gates have kept are no longer on their way.
    take_kept();
    const auto left = unfinished_left(inside);
    if (!left) log_.limited("unaccepted", "connections may break when it moves", left.error());
    if (!left || *left == 0 || Loop::now() >= until) return then(left ? *left : 0);
    // A look takes milliseconds, however few connections there are: the kernel goes through its
    // table of all namespaces. A job takes no more of this daemon's time for it.
    const Nanos rest{std::max(pause.ns, 4 * (Loop::now() - began).ns)};
    settle_ = loop_.at(std::min(Loop::now() + rest, until), [=, this, then = std::move(then)] {
        look_for_unaccepted(inside, std::min(pause_max, Nanos{2 * pause.ns}), until, then);
    });
}

Status NetworkCut::shut_in() {
    if (!port_) return {};
    rest_.cancel();
    shut_ = true;
    TRY(arm());
    Status held = port_->work().hold(FrameWay::to_job, true);
    holds_ = held.has_value();
    const Nanos before = unix_now();
    TRY(port_->shut(FrameWay::to_job));
    take_kept();
    if (held) held = port_->work().feed(before, std::exchange(begun_with_, {}));
    if (!held) log_.limited("frames", "what is sent to a job while it moves is lost", held.error());
    return {};
}

std::optional<std::string> NetworkCut::frames_held() const {
    if (!holds_) return std::nullopt;
    auto held = port_->work().held();
    return held ? std::optional(std::move(*held)) : std::nullopt;
}

// A kernel that cannot do that moves jobs without such connections all the same.
Status NetworkCut::shut_within() {
    if (!port_) return {};
    TRY(arm());
    if (auto shut = port_->shut(FrameWay::within); !shut)
        log_.limited("loopback", "connections within a job may break when it moves", shut.error());
    return {};
}

Status NetworkCut::shut_out() { return port_ ? port_->shut(FrameWay::from_job) : Status{}; }

void NetworkCut::open() {
    settle_.cancel();
    if (!port_ || !std::exchange(shut_, false)) return;
    if (auto opened = port_->open(); !opened) {
        log_.limited("cut off", "a job is cut off; its network is opened as soon as it can be",
                     opened.error());
        shut_ = true;
        rest_ = loop_.after(rest_after, [this] { open(); });
        return;
    }
    take_kept();
    release_frames(port_->opened(FrameWay::to_job), port_->opened(FrameWay::from_job));
    release_kept();
    stay_armed();  // one that was found has none
    // The gates cost each frame something; and whoever was deaf for a moment hears the address once
    // more.
    rest_ = loop_.after(rest_after, [this] {
        if (!job_.may_go_back) (void)port_->disarm();
        if (patient_) patient(false);
        (void)port_->announce();
    });
}

// To a copy of a job that moves the place where it was sends what came meanwhile.
void NetworkCut::release_frames(Nanos heard, Nanos spoke) {
    (void)port_->work().release({holds_ && (!is_copy_ || was_frozen_), heard, spoke});
    holds_ = is_copy_ = was_frozen_ = false;
}

void NetworkCut::take_kept() {
    for (KeptFrame& one : port_->take_kept())
        one.way == FrameWay::within ? begun_within_.push_back(std::move(one.frame))
                                    : begun_with_.push_back(FrameHold::of_wire(one.frame));
}

// Here, with the gates open.
void NetworkCut::release_kept() {
    const auto say = [this](FrameWay way, const std::vector<std::string>& frames) {
        const Status said = frames.empty() ? Status{} : port_->work().say(way, frames);
        if (!said) log_.limited("frames", "who connects to it tries again", said.error());
    };
    say(FrameWay::within, std::exchange(begun_within_, {}));
    say(FrameWay::to_job, std::exchange(begun_with_, {}));
}

void NetworkCut::announce() const {
    if (port_) (void)port_->announce();
}

void NetworkCut::drop() {
    settle_.cancel();
    rest_.cancel();
    holds_ = false;
    begun_with_.clear();
    begun_within_.clear();
    if (port_ && shut_) port_->abandon();
    port_.reset();
}

void NetworkCut::hush() {
    if (!port_ || !job_.may_go_back || !arm(Gate::shut)) return;
    shut_ = true;
    for (const FrameWay way : {FrameWay::to_job, FrameWay::from_job}) (void)port_->shut(way);
}

void NetworkCut::silence() {
    hush();
    if (port_) port_->silence();
    drop();
}

void NetworkCut::mend(const PidsInside& pids, const LookAt& look) const {
    if (port_) (void)end_tcp_repair(pids, reach_.mend, look);
}

}  // namespace souk
