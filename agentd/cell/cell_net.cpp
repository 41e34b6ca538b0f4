// SPDX-License-Identifier: GPL-2.0-or-later
// Cell, fourth part: the network interface of a job with a network of its own. While such a job is
// dumped nothing reaches it (from before CRIU looks at its connections), from the moment that it
// stands still its processes do not reach each other over loopback, and once it is dumped nothing
// of it gets out either: what dies where it was says nothing. What is sent to it meanwhile is held,
// and follows it. Its copy is cut off in the same way until it is told to run; then the address is
// there.
#include <poll.h>

#include "agentd/cell/cell.hpp"
#include "kernel/base/fnv.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/net/tcp_repair.hpp"

namespace souk {
namespace {

constexpr Nanos rest_after = Nanos::from_s(1);

// Fit for a network interface (15 characters at most), and no other capsule's: 48 bits of a hash.
std::string port_name(const GuestKey& key) {
    char name[16];
    std::snprintf(name, sizeof name, "sj%012llx",
                  static_cast<unsigned long long>(fnv1a_64(key.text()) & 0xffffffffffff));
    return name;
}

}  // namespace

Status Cell::check_network() const {
    if (job_.spec.net != NetMode::own) return {};
    if (!site_.network)
        return fail(
            "this node has no network for a job of --net=own (job_network and job_bridge in "
            "agentd's configuration)");
    if (!site_.network->range.contains(job_.spec.address))
        return fail("its address " + job_.spec.address.text() +
                    " is not of this node's network for jobs, " + site_.network->range.text());
    return {};
}

// With the capsule: a copy's is cut off until it runs.
Status Cell::make_port() {
    if (job_.spec.net != NetMode::own) return {};
    TRY_ASSIGN(const Fd inside, capsule_->net_namespace());
    TRY_ASSIGN(port_, JobPort::make(*site_.network, job_.spec.address, port_name(key_),
                                    inside.get(), job_.from_image));
    if (!job_.from_image) (void)port_->announce();
    return {};
}

// After a restart of the daemon. What a dump holds stays cut off, and a copy that was not told to
// run: it will be ended.
void Cell::find_port(bool held_by_dump) {
    if (job_.spec.net != NetMode::own) return;
    const auto find = [&]() -> Status {
        TRY_ASSIGN(const Fd inside, capsule_->net_namespace());
        TRY_ASSIGN(port_, JobPort::find(job_.spec.address, port_name(key_), inside.get()));
        const bool runs = job_.state == GuestState::running || job_.state == GuestState::held;
        port_shut_ = held_by_dump || !runs;
        return port_shut_ ? Status{} : port_->open();
    };
    if (auto found = find(); !found)
        site_.log->warning(
            "a job's network interface is not found",
            {{"JOB", key_.id.text()}, {"EPOCH", key_.epoch.n}, {"WHY", found.error()}});
}

// Nothing reaches the job any more. It runs still, and may say what it has to.
Status Cell::shut_in() {
    if (!port_) return {};
    port_rest_.cancel();
    port_shut_ = true;
    TRY(port_->arm());
    if (auto held = hold_frames(); !held)
        site_.log->limited("frames", Loop::now(), Level::warning,
                           "what is sent to a job while it moves is lost", {{"WHY", held.error()}});
    return port_->shut(FrameWay::to_job);
}

Status Cell::hold_frames() {
    if (!site_.network) return fail("this node has no network for jobs any more");
    TRY_ASSIGN(frames_, FrameHold::open(*port_, site_.network->bridge));
    TRY_ASSIGN(frames_watch_,
               site_.loop->watch(frames_->fd(), POLLIN, [this](short) { frames_->on_readable(); }));
    return {};
}

// Its processes do not reach each other. A kernel that cannot do that moves jobs without such
// connections all the same.
Status Cell::shut_within() {
    if (!port_) return {};
    TRY(port_->arm());
    if (auto shut = port_->shut(FrameWay::within); !shut)
        site_.log->limited("loopback", Loop::now(), Level::warning,
                           "connections within a job may break when it moves",
                           {{"WHY", shut.error()}});
    return {};
}

Status Cell::shut_out() { return port_ ? port_->shut(FrameWay::from_job) : Status{}; }

// The job is here, or here again.
void Cell::open_port() {
    if (!port_ || !std::exchange(port_shut_, false)) return;
    if (auto opened = port_->open(); !opened)
        site_.log->error(
            "a job is cut off",
            {{"JOB", key_.id.text()}, {"EPOCH", key_.epoch.n}, {"WHY", opened.error()}});
    (void)port_->announce();
    frames_watch_.close();
    if (frames_) frames_->give_back();
    frames_.reset();
    // The gates cost each frame something; and whoever was deaf for a moment hears the address once
    // more.
    port_rest_ = site_.loop->after(rest_after, [this] {
        (void)port_->disarm();
        (void)port_->announce();
    });
}

void Cell::drop_port() {
    port_rest_.cancel();
    frames_watch_.close();
    frames_.reset();
    if (port_ && port_shut_) port_->abandon();
    port_.reset();
}

// Of a job that goes on here without the CRIU that held it.
void Cell::mend_connections() {
    if (!port_ || !job_group_) return;
    if (const auto pids = job_group_->pids()) (void)end_tcp_repair(*pids);
}

}  // namespace souk
