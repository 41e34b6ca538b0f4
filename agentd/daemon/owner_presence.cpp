// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/owner_presence.hpp"

#include <poll.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "kernel/base/json.hpp"

namespace souk {
namespace {

constexpr Nanos notice_window = Nanos::from_ms(40);

}  // namespace

// -------------------------------------------------------------------------------------------------
// noticing him

// A share that holds while the owner is here needs to know whether he is.
OwnerUsePolicy OwnerPresence::policy() const {
    OwnerUsePolicy policy = p_.config.presence;
    const bool shares = p_.offer.is_open() && p_.offer.provider().share().when_here();
    if (policy.on_return == OwnerUsePolicy::Return::nothing && shares)
        policy.on_return = OwnerUsePolicy::Return::lower;
    return policy;
}

LoadProbe::Options OwnerPresence::load_options(const Config& config, root::Helper& root,
                                               const OwnerUsePolicy& policy) {
    LoadProbe::Options options;
    options.allow_bpf = config.bpf;
    options.open_event = root.cpu_events();
    options.see_packets = root.see_packets();
    if (policy.on_return == OwnerUsePolicy::Return::nothing) return options;
    options.notice_run = Nanos{notice_window.ns * config.owner_cpu_percent / 100};
    options.notice_wait = config.owner_wait;
    constexpr int64_t megabyte = 1'000'000, second_ns = 1'000'000'000;
    options.notice_bytes = static_cast<uint64_t>(config.owner_network_mb_per_s * megabyte *
                                                 notice_window.ns / second_ns);
    return options;
}

Status OwnerPresence::load() {
    TRY(history_.load());
    history_.promise(p_.config.promise);
    TRY_ASSIGN(const auto paused, p_.commits.db().get("owner", "paused"));
    paused_ = paused.has_value();
    return {};
}

Status OwnerPresence::watch() {
    const std::string& cgroup = p_.config.cgroup;
    const std::string& v2 = p_.share ? p_.share->cgroups().layout().v2 : "";
    signs_ = std::make_unique<OwnerSigns>(
        p_.loop, p_.log, p_.accounts, cgroup, v2.empty() ? "" : v2 + "/" + cgroup,
        [this](OwnerSign sign, const std::string& why) { used(sign, why); },
        OwnerSignsOpen{p_.root.devices(), p_.root.inputs()});
    p_.load.notice(load_options(p_.config, p_.root, policy()));
    use_.configured(policy());
    watch_signs();
    if (p_.load.notices_fd() < 0) return {};
    TRY_ASSIGN(notices_,
               p_.loop.watch(p_.load.notices_fd(), POLLIN, [this](short) { take_notices(); }));
    return {};
}

void OwnerPresence::take_notices() {
    std::string why;
    OwnerSign sign = OwnerSign::load;
    p_.load.take_notices([&](const LoadNotice& n) {
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
    if (!why.empty()) used(sign, why);
}

void OwnerPresence::watch_signs() {
    const bool nothing = policy().on_return == OwnerUsePolicy::Return::nothing;
    const OwnerSignsWish wish = nothing ? OwnerSignsWish() : p_.config.owner_signs;
    if (const Status told = p_.load.notice_programs(wish.programs); !told)
        p_.log.warning("the owner's programs are not noticed", {{"WHY", told.error()}});
    signs_->watch(wish);
}

void OwnerPresence::used(OwnerSign sign, const std::string& why) {
    use_.tick(Loop::now());
    if (!use_.here()) sign_ = sign;
    use_.used(Loop::now(), why);
    see();
}

void OwnerPresence::see_load(const LoadReading& reading, uint64_t ticks) {
    constexpr uint64_t look_ticks = 5;
    if (const int64_t percent = p_.config.owner_cpu_percent;
        percent > 0 && reading.owner_permille * reading.cpus / 10 >= percent)
        used(OwnerSign::load, "his processes use " + std::to_string(reading.owner_permille / 10) +
                                  "% of the machine");
    // The signs look for programs themselves if the kernel does not say which begin.
    signs_->tick(p_.load.notices_fd() < 0 && ticks % look_ticks == 0);
    see_memory(reading);
    pace_leaving();
    (void)apply_bounds();  // what could not be bounded before
    history_.see();
}

// Has the rung in force that the machine says.
void OwnerPresence::see() {
    use_.tick(Loop::now());
    timer_.cancel();
    if (const Nanos next = use_.next(); next != Nanos::never())
        timer_ = p_.loop.at(next, [this] { see(); });
    const OwnerUse::Rung rung = use_.rung();
    if (rung == rung_) return;
    const bool was_here = std::exchange(rung_, rung) != OwnerUse::Rung::none;
    // The offer knows first: which share holds, and what it leaves, is part of what is told of his
    // return.
    p_.offer.step([&](Provider& p, provider::Outputs& out) { p.set_here(is_here(), out); });
    if (!was_here) history_.began(to_string(sign_), use_.why());
    if (!is_here()) history_.ended();
    have_rung();
    p_.log.notice(
        "the owner's use of this node",
        {{"guests", to_string(rung)}, {"cause", to_string(sign_)}, {"because", use_.why()}});
}

// -------------------------------------------------------------------------------------------------
// what follows for guests

// Stops guests first, because the owner waits for that. The market hears of it afterwards.
void OwnerPresence::have_rung() {
    pace_leaving();
    p_.guests.step([&](Guest& g, guest::Outputs& out) {
        const std::string why = why_paused();
        g.set_paused(why.empty() ? Cause() : Cause(CauseCode::owner_uses, why), out);
    });
    rank_guests();
    tell_offer();
}

// Holds back what leaves while the owner uses the machine, or has paused all by hand. A machine
// that is about to be switched off is emptied as fast as it goes.
void OwnerPresence::pace_leaving() {
    std::optional<LeavePace::Owner> owner;
    if (is_here())
        owner = LeavePace::Owner{use_.since(), p_.config.promise};
    else if (paused_)
        owner = LeavePace::Owner{Loop::now()};
    if (switches_off_) owner.reset();
    constexpr uint64_t megabyte = 1'000'000;
    const auto configured = static_cast<uint64_t>(p_.config.leave_mb_per_s) * megabyte;
    p_.guests.pace(pace_.rate(Loop::now(), configured, owner, p_.guests.to_leave()));
}

// Guests stand in memory while the owner uses the machine, until he wants the memory. That
// something waits for memory says so only while no guest runs, because a guest that runs may cause
// it.
void OwnerPresence::see_memory(const LoadReading& reading) {
    if (!is_here() && !paused_)
        return p_.guests.step([](Guest& g, guest::Outputs&) { g.want_no_memory(); });
    MemoryWish wish{reading.free_mb, p_.config.owner_free_mb};
    if (paused_ || rung_ >= OwnerUse::Rung::stopped)
        wish.stalls_permille = reading.memory_pressure_permille.value_or(0);
    if (wish.missing_mb() == 0) return;
    const std::vector<GuestKey> leave = wish.who_leaves(p_.guests.standing());
    if (leave.empty()) return;
    for (const GuestKey& key : leave)
        p_.log.notice("the owner wants the memory of a guest that stands",
                      {{"JOB", key.id.text()},
                       {"free_mb", std::to_string(wish.free_mb)},
                       {"wanted_mb", std::to_string(wish.wanted_mb)},
                       {"stalls_permille", std::to_string(wish.stalls_permille)}});
    p_.guests.step([&](Guest& g, guest::Outputs& out) { g.want_memory(leave, out); });
}

void OwnerPresence::tell_offer() {
    p_.offer.step([&](Provider& p, provider::Outputs& out) {
        p.set_resting(why_paused(), out);
        p.set_leaving(why_leaving(), out);
    });
}

std::string OwnerPresence::why_leaving() const {
    if (switches_off_) return "node " + p_.config.node + " is being switched off";
    return why_away(OwnerUse::Rung::leaving);
}

Status OwnerPresence::apply_bounds() {
    if (!p_.share) return {};
    return p_.share->bound(p_.offer.provider().lent(), p_.offer.machine_size(),
                           [this](bool on) { p_.guests.node_bound(on); });
}

// A rank that fails is tried again with pauses that grow, and the log says so once.
void OwnerPresence::rank_guests() {
    using Rung = OwnerUse::Rung;
    using Rank = NodeShare::Rank;
    rank_timer_.cancel();
    if (!p_.share) return;
    ranked_leaving_ = is_here() && p_.guests.machine().any_leaves();
    const Rank rank = !is_here()                                  ? Rank::offered
                      : rung_ == Rung::leaving || ranked_leaving_ ? Rank::leaving
                                                                  : Rank::idle;
    Status done = p_.share->rank(rank, p_.config.cpu_weight);
    p_.load.give_way(rank == Rank::idle);
    if (Status bound = apply_bounds(); done && !bound) done = std::move(bound);
    if (done) {
        rank_pause_.reset();
        if (!std::exchange(rank_trouble_, {}).empty()) p_.log.notice("guests have their share");
        return history_.see();
    }
    if (rank_trouble_.empty())
        p_.log.warning("guests have another share than they should", {{"WHY", done.error()}});
    rank_trouble_ = done.error().message;
    if (done.error().code != ENOTSUP)
        rank_timer_ = p_.loop.after(rank_pause_.next(), [this] { rank_guests(); });
}

// A dump works with the job's own processes. On a busy machine an idle group gets next to nothing,
// and the owner would wait minutes for his memory. So guests are ranked anew when one leaves.
void OwnerPresence::guests_stepped() {
    const bool idle = is_here() && rung_ != OwnerUse::Rung::leaving;
    if (idle && p_.guests.machine().any_leaves() != ranked_leaving_) rank_guests();
    history_.see();
}

std::string OwnerPresence::why_away(OwnerUse::Rung from) const {
    return rung_ >= from ? "its owner uses node " + p_.config.node : "";
}

std::string OwnerPresence::why_paused() const {
    if (paused_) return "its owner has paused the guests of node " + p_.config.node;
    return why_away(OwnerUse::Rung::stopped);
}

void OwnerPresence::pause(bool on) {
    paused_ = on;
    if (on)
        p_.commits.put("owner", "paused", "1", Durable::now);
    else
        p_.commits.erase("owner", "paused", Durable::now);
    have_rung();
}

void OwnerPresence::switch_off(bool begins) {
    switches_off_ = begins;
    pace_leaving();
    tell_offer();
}

void OwnerPresence::find() {
    if (paused_) return have_rung();
    if (!p_.guests.machine().any_paused()) return;
    sign_ = OwnerSign::before;
    use_.found_stopped(Loop::now(), "he did before agentd was started again");
    see();
    // The configuration may no longer stop guests. Then they go on.
    if (rung_ < OwnerUse::Rung::stopped) have_rung();
}

void OwnerPresence::configured() {
    p_.load.notice(load_options(p_.config, p_.root, policy()));
    history_.promise(p_.config.promise);
    use_.configured(policy());
    watch_signs();
    see();
    rank_guests();
    pace_leaving();
}

// -------------------------------------------------------------------------------------------------
// for others

OwnerReturns::Guests OwnerPresence::guests_now() const {
    Guest::Here here = p_.guests.machine().here(p_.config.node);
    OwnerReturns::Guests now;
    now.running = here.running;
    now.in_memory = here.in_memory;
    now.here = here.all;
    now.memory_mb = here.memory_mb;
    now.who = std::move(here.who);
    now.lowered = is_here() && rank_trouble_.empty();
    now.trouble = rank_trouble_;
    const Provider& provider = p_.offer.provider();
    if (is_here() && provider.share().when_here() &&
        policy().on_return != OwnerUsePolicy::Return::leave) {
        now.share = provider.lent_by();
        now.within_share =
            p_.share && !p_.share->memory_waits(provider.lent().memory_mb, p_.offer.machine_size());
    }
    return now;
}

void OwnerPresence::write(JsonWriter& j) const {
    if (paused_) j.field("paused", true);
    j.field("empty", is_empty());
    if (switches_off_) j.field("shutting_down", true);
    if (policy().on_return == OwnerUsePolicy::Return::nothing) return;
    j.key("presence").begin_object();
    j.field("here", use_.here()).field("guests", to_string(rung_));
    if (use_.here())
        j.field("why", use_.why())
            .field("cause", to_string(sign_))
            .field("since_s", (Loop::now() - use_.since()).ns / 1'000'000'000);
    std::string not_seen = signs_->trouble();
    if (const std::string& why = p_.load.why_no_network_notice(); !why.empty())
        not_seen += (not_seen.empty() ? "" : "; ") + std::string("owner_network_mb_per_s: ") + why;
    if (!not_seen.empty()) j.field("not_seen", not_seen);
    j.field("noticed_by", p_.load.notices_fd() >= 0 ? "the kernel, at once" : "a look each second");
    if (const std::string why = p_.load.why_no_look(); !why.empty()) j.field("look_trouble", why);
    j.field("gave_way", p_.load.gave_way());
    if (const std::string& why = p_.load.why_no_give_way(); !why.empty())
        j.field("give_way_trouble", why);
    j.end_object();
}

}  // namespace souk
