// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: whether the owner uses this node himself, and the rung that guests are on for it
// (agentd/core/owner_use.hpp).
#include <poll.h>

#include <algorithm>

#include "agentd/daemon/agent.hpp"
#include "kernel/base/json.hpp"

namespace souk {
namespace {

constexpr Nanos notice_window = Nanos::from_ms(40);
constexpr int64_t least_weight = 1;

}  // namespace

LoadProbe::Options Agent::load_options() const {
    LoadProbe::Options options;
    if (config_.presence.on_return == OwnerUsePolicy::Return::nothing) return options;
    options.notice_run = Nanos{notice_window.ns * config_.owner_cpu_percent / 100};
    options.notice_wait = config_.owner_wait;
    return options;
}

Status Agent::watch_presence() {
    if (load_.notices_fd() < 0) return {};
    TRY_ASSIGN(notices_watch_, loop_.watch(load_.notices_fd(), POLLIN, [this](short) {
        std::string why;
        load_.take_notices([&](const LoadNotice& n) {
            why = "process " + std::to_string(n.pid) + (n.waited ? " waited " : " ran ") +
                  std::to_string(n.span.ns / 1'000'000) + " ms" + (n.waited ? " for a CPU" : "");
        });
        if (!why.empty()) owner_used(why);
    }));
    return {};
}

void Agent::owner_used(const std::string& why) {
    owner_use_.used(Loop::now(), why);
    see_presence();
}

// Has the rung in force that the machine says.
void Agent::see_presence() {
    owner_use_.tick(Loop::now());
    owner_use_timer_.cancel();
    if (const Nanos next = owner_use_.next(); next != Nanos::never())
        owner_use_timer_ = loop_.at(next, [this] { see_presence(); });
    const OwnerUse::Rung rung = owner_use_.rung();
    if (rung == rung_) return;
    using Rung = OwnerUse::Rung;
    if (share_ && (rung == Rung::none) != (rung_ == Rung::none)) {
        const int64_t weight = rung == Rung::none ? config_.cpu_weight : least_weight;
        if (const Status set = share_->set_cpu_weight(weight); !set)
            log_.limited("lower", Loop::now(), Level::warning, "guests keep their CPU share",
                         {{"WHY", set.error()}});
    }
    if ((rung == Rung::leaving) != (rung_ == Rung::leaving)) {
        rung_ = rung;
        provider_step(
            [&](Provider& p, provider::Outputs& out) { p.set_leaving(why_leaving(), out); });
    }
    rung_ = rung;
    log_.notice("the owner's use of this node",
                {{"guests", to_string(rung)}, {"because", owner_use_.why()}});
}

std::string Agent::why_leaving() const {
    return rung_ == OwnerUse::Rung::leaving ? "its owner uses node " + config_.node : "";
}

void Agent::write_presence(JsonWriter& j) const {
    if (config_.presence.on_return == OwnerUsePolicy::Return::nothing) return;
    j.key("presence").begin_object();
    j.field("here", owner_use_.here()).field("guests", to_string(rung_));
    if (owner_use_.here())
        j.field("why", owner_use_.why())
            .field("since_s", (Loop::now() - owner_use_.since()).ns / 1'000'000'000);
    j.field("noticed_by", load_.notices_fd() >= 0 ? "the kernel, at once" : "a look each second");
    j.end_object();
}

}  // namespace souk
