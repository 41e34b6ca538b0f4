// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: whether the owner uses this node himself, and the rung that guests are on for it
// (agentd/core/owner_use.hpp).
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agentd/daemon/agent.hpp"
#include "kernel/base/json.hpp"

namespace souk {
namespace {

constexpr Nanos notice_window = Nanos::from_ms(40);

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
    rung_ = rung;
    have_rung();
    log_.notice("the owner's use of this node",
                {{"guests", to_string(rung)}, {"because", owner_use_.why()}});
}

// At once what stops them; then what the market is to know.
void Agent::have_rung() {
    guests_->step([&](Guest& g, guest::Outputs& out) {
        const std::string why = why_away(OwnerUse::Rung::stopped);
        g.set_paused(why.empty() ? Cause() : Cause(CauseCode::owner_uses, why), out);
    });
    rank_guests();
    tell_provider();
}

void Agent::tell_provider() {
    provider_step([&](Provider& p, provider::Outputs& out) {
        p.set_resting(why_away(OwnerUse::Rung::stopped), out);
        p.set_leaving(why_away(OwnerUse::Rung::leaving), out);
    });
}

// What fails is tried again with pauses that grow, and said once.
void Agent::rank_guests() {
    using Rung = OwnerUse::Rung;
    using Rank = NodeShare::Rank;
    rank_timer_.cancel();
    if (!share_) return;
    const Rank rank = rung_ == Rung::none      ? Rank::offered
                      : rung_ == Rung::leaving ? Rank::leaving
                                               : Rank::idle;
    const Status done = share_->rank(rank, config_.cpu_weight);
    if (done) {
        rank_pause_.reset();
        if (std::exchange(rank_trouble_, false)) log_.notice("guests have their share");
        return;
    }
    if (!std::exchange(rank_trouble_, true))
        log_.warning("guests have another share than they should", {{"WHY", done.error()}});
    if (done.error().code != ENOTSUP)
        rank_timer_ = loop_.after(rank_pause_.next(), [this] { rank_guests(); });
}

std::string Agent::why_away(OwnerUse::Rung from) const {
    return rung_ >= from ? "its owner uses node " + config_.node : "";
}

// Guests that the daemon before has stopped: he may use it still.
void Agent::find_presence() {
    if (!guests_->machine().any_paused()) return;
    owner_use_.found_stopped(Loop::now(), "he did before agentd was started again");
    see_presence();
    if (rung_ < OwnerUse::Rung::stopped) have_rung();  // the configuration knows it no more
}

void Agent::presence_configured() {
    load_.notice(load_options());
    owner_use_.configured(config_.presence);
    see_presence();
    rank_guests();
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
