// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: whether the owner uses this node himself, and the rung that guests are on for it
// (agentd/core/owner_use.hpp).
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agentd/daemon/agent.hpp"
#include "kernel/base/json.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk {
namespace {

constexpr Nanos notice_window = Nanos::from_ms(40);

}  // namespace

// A share that holds while he is here needs to know whether he is.
OwnerUsePolicy Agent::presence_policy() const {
    OwnerUsePolicy policy = config_.presence;
    const bool shares = offer_ && offer_->is_open() && offer_->provider().share().when_here();
    if (policy.on_return == OwnerUsePolicy::Return::nothing && shares)
        policy.on_return = OwnerUsePolicy::Return::lower;
    return policy;
}

LoadProbe::Options Agent::load_options() const {
    LoadProbe::Options options;
    options.allow_bpf = config_.bpf;
    options.open_event = root_.cpu_events();
    options.see_packets = root_.see_packets();
    if (presence_policy().on_return == OwnerUsePolicy::Return::nothing) return options;
    options.notice_run = Nanos{notice_window.ns * config_.owner_cpu_percent / 100};
    options.notice_wait = config_.owner_wait;
    constexpr int64_t megabyte = 1'000'000, second_ns = 1'000'000'000;
    options.notice_bytes = static_cast<uint64_t>(config_.owner_network_mb_per_s * megabyte *
                                                 notice_window.ns / second_ns);
    return options;
}

Status Agent::watch_presence() {
    const std::string& v2 = share_ ? share_->cgroups().layout().v2 : "";
    signs_ = std::make_unique<OwnerSigns>(
        loop_, log_, accounts_, config_.cgroup, v2.empty() ? "" : v2 + "/" + config_.cgroup,
        [this](OwnerSign sign, const std::string& why) { owner_used(sign, why); },
        OwnerSignsOpen{root_.devices(), root_.inputs()});
    load_.notice(load_options());
    owner_use_.configured(presence_policy());
    watch_signs();
    if (load_.notices_fd() < 0) return {};
    TRY_ASSIGN(notices_watch_, loop_.watch(load_.notices_fd(), POLLIN, [this](short) {
        std::string why;
        OwnerSign sign = OwnerSign::load;
        load_.take_notices([&](const LoadNotice& n) {
            if (n.program) return signs_->began(n.pid);
            if (n.bytes > 0) {
                sign = OwnerSign::network;
                why = "his programs had " + std::to_string(n.bytes / 1'000) +
                      " KB come and go over the network within 40 ms";
                return;
            }
            sign = n.waited ? OwnerSign::wait : OwnerSign::load;
            why = "process " + std::to_string(n.pid) + (n.waited ? " waited " : " ran ") +
                  std::to_string(n.span.ns / 1'000'000) + " ms" + (n.waited ? " for a CPU" : "");
        });
        if (!why.empty()) owner_used(sign, why);
    }));
    return {};
}

void Agent::watch_signs() {
    const bool nothing = presence_policy().on_return == OwnerUsePolicy::Return::nothing;
    const OwnerSignsWish wish = nothing ? OwnerSignsWish() : config_.owner_signs;
    if (const Status told = load_.notice_programs(wish.programs); !told)
        log_.warning("the owner's programs are not noticed", {{"WHY", told.error()}});
    signs_->watch(wish);
}

// Each second; where the kernel does not say which programs begin, they are looked for.
void Agent::see_signs() {
    constexpr uint64_t look_ticks = 5;
    signs_->tick(load_.notices_fd() < 0 && load_ticks_ % look_ticks == 0);
}

void Agent::owner_used(OwnerSign sign, const std::string& why) {
    owner_use_.tick(Loop::now());
    if (!owner_use_.here()) sign_ = sign;
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
    const bool was_here = std::exchange(rung_, rung) != OwnerUse::Rung::none;
    // Which share holds, and what it leaves, is part of what is told of his return.
    offer_->step([&](Provider& p, provider::Outputs& out) {
        p.set_here(rung != OwnerUse::Rung::none, out);
    });
    if (!was_here) {
        OwnerReturns::Guests guests = guests_now();
        guests.lowered = false;  // not yet
        keep(returns_.began(Loop::now(), unix_now(), to_string(sign_), owner_use_.why(), guests));
    }
    if (rung == OwnerUse::Rung::none) keep(returns_.ended(Loop::now(), guests_now()));
    have_rung();
    log_.notice(
        "the owner's use of this node",
        {{"guests", to_string(rung)}, {"cause", to_string(sign_)}, {"because", owner_use_.why()}});
}

// While he uses the machine, or has paused all by hand. A machine that is about to be switched off
// is emptied as fast as it goes.
void Agent::pace_leaving() {
    std::optional<LeavePace::Owner> owner;
    if (rung_ != OwnerUse::Rung::none)
        owner = LeavePace::Owner{owner_use_.since(), config_.promise};
    else if (paused_)
        owner = LeavePace::Owner{Loop::now()};
    if (shutting_down_) owner.reset();
    constexpr uint64_t megabyte = 1'000'000;
    const auto configured = static_cast<uint64_t>(config_.leave_mb_per_s) * megabyte;
    guests_->pace(pace_.rate(Loop::now(), configured, owner, guests_->to_leave()));
}

// Who stands while he uses the machine, until he wants the memory. That something waits for memory
// says so only while no guest runs, who may do that himself.
void Agent::see_memory(const LoadReading& reading) {
    const bool here = rung_ != OwnerUse::Rung::none || paused_;
    if (!here) return guests_->step([](Guest& g, guest::Outputs&) { g.want_no_memory(); });
    MemoryWish wish{reading.free_mb, config_.owner_free_mb};
    if (paused_ || rung_ >= OwnerUse::Rung::stopped)
        wish.stalls_permille = reading.memory_pressure_permille.value_or(0);
    if (wish.missing_mb() == 0) return;
    const std::vector<GuestKey> leave = wish.who_leaves(guests_->standing());
    if (leave.empty()) return;
    for (const GuestKey& key : leave)
        log_.notice("the owner wants the memory of a guest that stands",
                    {{"JOB", key.id.text()},
                     {"free_mb", std::to_string(wish.free_mb)},
                     {"wanted_mb", std::to_string(wish.wanted_mb)},
                     {"stalls_permille", std::to_string(wish.stalls_permille)}});
    guests_->step([&](Guest& g, guest::Outputs& out) { g.want_memory(leave, out); });
}

// At once what stops them; then what the market is to know.
void Agent::have_rung() {
    pace_leaving();
    guests_->step([&](Guest& g, guest::Outputs& out) {
        const std::string why = why_paused();
        g.set_paused(why.empty() ? Cause() : Cause(CauseCode::owner_uses, why), out);
    });
    rank_guests();
    tell_provider();
}

void Agent::tell_provider() {
    offer_->step([&](Provider& p, provider::Outputs& out) {
        p.set_resting(why_paused(), out);
        p.set_leaving(shutting_down_ ? "node " + config_.node + " is being switched off"
                                     : why_away(OwnerUse::Rung::leaving),
                      out);
    });
}

// What fails is tried again with pauses that grow, and said once.
void Agent::rank_guests() {
    using Rung = OwnerUse::Rung;
    using Rank = NodeShare::Rank;
    rank_timer_.cancel();
    if (!share_) return;
    ranked_leaving_ = rung_ != Rung::none && guests_->machine().any_leaves();
    const Rank rank = rung_ == Rung::none                         ? Rank::offered
                      : rung_ == Rung::leaving || ranked_leaving_ ? Rank::leaving
                                                                  : Rank::idle;
    Status done = share_->rank(rank, config_.cpu_weight);
    load_.give_way(rank == Rank::idle);
    if (Status bound = apply_bounds(); done && !bound) done = std::move(bound);
    if (done) {
        rank_pause_.reset();
        if (!std::exchange(rank_trouble_, {}).empty()) log_.notice("guests have their share");
        return see_return();
    }
    if (rank_trouble_.empty())
        log_.warning("guests have another share than they should", {{"WHY", done.error()}});
    rank_trouble_ = done.error().message;
    if (done.error().code != ENOTSUP)
        rank_timer_ = loop_.after(rank_pause_.next(), [this] { rank_guests(); });
}

// A dump works with the job's own processes. On a busy machine what is idle gets next to nothing:
// the owner would wait minutes for his memory.
void Agent::rank_leaving() {
    using Rung = OwnerUse::Rung;
    if (rung_ == Rung::none || rung_ == Rung::leaving) return;
    if (guests_->machine().any_leaves() != ranked_leaving_) rank_guests();
}

std::string Agent::why_away(OwnerUse::Rung from) const {
    return rung_ >= from ? "its owner uses node " + config_.node : "";
}

std::string Agent::why_paused() const {
    if (paused_) return "its owner has paused the guests of node " + config_.node;
    return why_away(OwnerUse::Rung::stopped);
}

Status Agent::pause(bool on) {
    paused_ = on;
    if (on)
        state_->put("owner", "paused", "1", Durable::now);
    else
        state_->erase("owner", "paused", Durable::now);
    have_rung();
    return {};
}

// Guests that the daemon before has stopped: he may use it still.
void Agent::find_presence() {
    if (paused_) return have_rung();
    if (!guests_->machine().any_paused()) return;
    sign_ = OwnerSign::before;
    owner_use_.found_stopped(Loop::now(), "he did before agentd was started again");
    see_presence();
    if (rung_ < OwnerUse::Rung::stopped) have_rung();  // the configuration knows it no more
}

void Agent::presence_configured() {
    load_.notice(load_options());
    returns_.configured(config_.promise);
    owner_use_.configured(presence_policy());
    watch_signs();
    see_presence();
    rank_guests();
    pace_leaving();
}

void Agent::write_presence(JsonWriter& j) const {
    if (paused_) j.field("paused", true);
    j.field("empty", is_empty());
    if (shutting_down_) j.field("shutting_down", true);
    if (presence_policy().on_return == OwnerUsePolicy::Return::nothing) return;
    j.key("presence").begin_object();
    j.field("here", owner_use_.here()).field("guests", to_string(rung_));
    if (owner_use_.here())
        j.field("why", owner_use_.why())
            .field("cause", to_string(sign_))
            .field("since_s", (Loop::now() - owner_use_.since()).ns / 1'000'000'000);
    std::string not_seen = signs_->trouble();
    if (const std::string& why = load_.why_no_network_notice(); !why.empty())
        not_seen += (not_seen.empty() ? "" : "; ") + std::string("owner_network_mb_per_s: ") + why;
    if (!not_seen.empty()) j.field("not_seen", not_seen);
    j.field("noticed_by", load_.notices_fd() >= 0 ? "the kernel, at once" : "a look each second");
    if (const std::string why = load_.why_no_look(); !why.empty()) j.field("look_trouble", why);
    j.field("gave_way", load_.gave_way());
    if (const std::string& why = load_.why_no_give_way(); !why.empty())
        j.field("give_way_trouble", why);
    j.end_object();
}

}  // namespace souk
