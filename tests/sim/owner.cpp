// SPDX-License-Identifier: GPL-2.0-or-later
// The owners of the simulated nodes, and what the shell of a daemon does for them: see cluster.hpp.
// An owner is there or not whatever happens to the daemon; each sign of him is noticed if it lives.
#include <algorithm>

#include "agentd/store/records.hpp"
#include "kernel/base/check.hpp"
#include "tests/sim/cluster.hpp"

namespace souk::sim {

namespace {

constexpr Nanos owners_from = Nanos::from_s(1), owners_to = Nanos::from_s(180);
constexpr int32_t cpus = 4;
constexpr Nanos share_slack = Nanos::from_us(1);

std::string key_of(uint64_t number) {
    const std::string text = std::to_string(number);
    return std::string(20 - text.size(), '0') + text;
}

}  // namespace

// ----------------------------------------------------------------------------------------------
// the owners

void Cluster::owners_come_and_go() {
    for (const NodeName& name : names_) {
        for (Nanos t = owners_from + owner_ms(0, 60'000); t < owners_to;
             t += owner_ms(5'000, 90'000)) {
            const Nanos stays = owner_ms(100, owners_.chance(0.5) ? 5'000 : 100'000);
            after(t, [this, name, stays] { owner_comes(name, stays); });
        }
        for (Nanos t = owners_from; t < owners_to; t += owner_ms(1'000, 120'000))
            after(t, [this, name] {
                if (node(name).up) owner_says(node(name));
            });
    }
}

void Cluster::owner_comes(const NodeName& name, Nanos stays) {
    if (is_liar(name)) return;  // nothing is promised to him
    Node& n = node(name);
    if (!faults_ || n.owner_until > now_) return;
    n.owner_until = now_ + stays;
    say("the owner of ", name, " comes");
    owner_signs(name);
}

// Signs of his use come often enough to be one stay (OwnerUsePolicy::away).
void Cluster::owner_signs(const NodeName& name) {
    Node& n = node(name);
    if (now_ >= n.owner_until) {
        if (promises_.holds(name)) say("the owner of ", name, " goes");
        leave_watch_.gone(name, now_);
        return promises_.gone(name);
    }
    if (n.up) {
        promises_.came(name, now_);
        leave_watch_.came(name, now_);
        owner_used(n);
        if (n.up && wishes_.chance(0.3)) owner_wants_memory(n);
    }
    const Nanos next = std::min(now_ + owner_ms(20, 3'000), std::max(n.owner_until, now_));
    after(next - now_ + Nanos{1}, [this, name] { owner_signs(name); });
}

// The owner gives an order. The share counts as in force once he is told so; until the order is on
// disk, the share is in doubt.
void Cluster::owner_says(Node& n) {
    static const char* const frames[] = {"always", "daily 00:00-00:01; daily 00:02-23:00",
                                         "mon 00:01-00:03", "tue-sun 08:00-18:00"};
    const uint64_t what = owners_.below(4);
    const auto said = static_cast<int32_t>(owners_.between(1, cpus));
    const char* const when = frames[owners_.below(std::size(frames))];
    if (what == 3) return owner_shares(n);
    if (what == 0) n.cpus_said = 0;
    provider_step(n, [&](Provider& p, provider::Outputs& out) {
        if (what == 0) MUST(p.set_cpus(said, out).has_value());
        if (what == 1) MUST(p.set_memory(said * 1'000, out).has_value());
        if (what == 2) MUST(p.set_frames(when, wall(), out).has_value());
    });
    if (!n.up) return;
    bound_guests(n);
    if (what == 0) let_go(n, [&n, said] { n.cpus_said = said; });
    arm(n);
}

// The owner keeps a part of the machine for himself: while he is here, in some minutes of the hour,
// or never.
void Cluster::owner_shares(Node& n) {
    ShareSaid said;
    std::string text;
    if (owners_.chance(0.7)) {
        said.here_milli = owners_.between(1, 400) * 10;
        text = "here = " + std::to_string(said.here_milli / 1'000) + "." +
               std::to_string(1'000 + said.here_milli % 1'000).substr(1) + " cpus";
        if (owners_.chance(0.5)) {
            said.here_mb = owners_.between(100, 8'000);
            text += ", " + std::to_string(said.here_mb) + "M memory";
        }
    }
    if (owners_.chance(0.5)) {
        const int64_t percent = owners_.between(1, 100);
        said.clock_milli = cpus * percent * 10;
        said.from_minute = static_cast<int32_t>(owners_.between(0, 3));
        said.to_minute = said.from_minute + 1;
        text += (text.empty() ? "" : "; ") + std::string("daily 0:0") +
                std::to_string(said.from_minute) + "-0:0" + std::to_string(said.to_minute) + " = " +
                std::to_string(percent) + "% cpus";
    }
    n.share_in_doubt = true;
    provider_step(n, [&](Provider& p, provider::Outputs& out) {
        MUST(p.set_share(text, wall(), out).has_value());
    });
    if (!n.up) return;
    say("the owner of ", n.name, " shares: ", text);
    n.shared_ever |= said.lends_here();
    rank_guests(n);
    if (!n.up) return;
    let_go(n, [&n, said] {
        n.share_said = said;
        n.share_in_doubt = false;
    });
    arm(n);
}

void Cluster::owners_are_gone() {
    for (const NodeName& name : names_) {
        Node& n = node(name);
        n.owner_until = now_;
        promises_.gone(name);
        leave_watch_.gone(name, now_);
        if (!n.up || n.provider->frames().always()) continue;
        provider_step(n, [&](Provider& p, provider::Outputs& out) {
            MUST(p.set_frames("always", wall(), out).has_value());
        });
    }
}

// Finds out whether guests may take more CPUs than their owner leaves them, by his orders and by
// the limits that the kernel has. `late`: he has been here for longer than was promised. Returns
// the mistake, or nothing.
std::string Cluster::check_share(const Node& n, bool late, Nanos& again) {
    if (n.cpus_said == 0 || n.share_in_doubt || !n.rank_trouble.empty()) return {};
    const ShareSaid& said = n.share_said;
    int64_t most = n.cpus_said * int64_t{1'000};
    if (late && said.here_milli > 0) most = std::min(most, said.here_milli);
    const int64_t second = wall().second_of_week % (24 * 3600);
    const bool edge = second % 60 == 0;  // its timer fires in this second
    again = std::min(again, Nanos::from_s(wall().unix_s + (edge ? 1 : 60 - second % 60)));
    const bool by_clock =
        said.clock_milli > 0 && second >= said.from_minute * 60 && second < said.to_minute * 60;
    if (by_clock && !edge) most = std::min(most, said.clock_milli);
    if (n.milli_bound > most)
        return "lends " + std::to_string(n.milli_bound) + " thousandths of a CPU, and its owner " +
               "leaves " + std::to_string(most);
    // The node must not lend less than he said, either.
    const bool nothing_holds = n.rung == OwnerUse::Rung::none && !by_clock && !edge;
    if (nothing_holds && n.milli_bound != n.cpus_said * int64_t{1'000})
        return "lends " + std::to_string(n.milli_bound) +
               " thousandths of a CPU, and its owner said " + std::to_string(n.cpus_said) + " CPUs";
    return {};
}

// Looks, after each event, at the nodes that it has changed and at those whose time has come. All
// others are still as they were at the last look.
void Cluster::check_owners() {
    for (auto* changed : {&world_.capsules.changed, &world_.images.changed}) {
        for (const NodeName& name : *changed) node(name);
        changed->clear();
    }
    if (!promises_.any() || !world_.failure.empty()) return;
    if (now_ >= check_at_) {
        check_at_ = Nanos::never();
        for (auto& [name, n] : nodes_)
            if (n.check_at <= now_)
                node(name);
            else
                check_at_ = std::min(check_at_, n.check_at);
    }
    for (Node* n : changed_) {
        n->changed = false;
        n->check_at = Nanos::never();
        if (n->up) check_owner(*n);
        check_at_ = std::min(check_at_, n->check_at);
    }
    changed_.clear();
}

void Cluster::check_owner(Node& n) {
    const NodeName& name = n.name;
    const OwnerReturn* r = n.returns.open() ? &n.returns.all().back() : nullptr;
    const bool missed = r && !r->cpu_missed.empty();
    const Nanos here = promises_.here_for(name, now_), late_from = promise_.free_cpu + share_slack;
    const bool late = !missed && here > late_from;
    if (here.ns >= 0 && here <= late_from) n.check_at = now_ + (late_from - here) + Nanos{1};
    if (const std::string wrong = check_share(n, late, n.check_at); !wrong.empty())
        world_.failure = name + " " + wrong;
    if (!promises_.holds(name)) return;
    PromiseWatch::Said said;
    PromiseWatch::Promised promised{promise_.free_cpu, promise_.free_memory, promise_.empty};
    if (r)
        said = {r->free_cpu.ns >= 0, r->stopped.ns >= 0, r->free_memory.ns >= 0, r->empty.ns >= 0,
                r->cpu_missed,       r->memory_missed,   r->empty_missed};
    // An owner who leaves guests a share is not promised an empty machine, unless they are to
    // leave.
    const bool stays = presence_.on_return != OwnerUsePolicy::Return::leave;
    if (r && !r->share.empty() && (!stays || !n.shared_ever))
        world_.failure = name + " says that its owner lends to guests that leave";
    if (r && !r->share.empty()) promised.empty = {};
    if (stays && n.share_said.lends_here())
        promised.memory_mb = n.share_said.here_mb > 0 ? n.share_said.here_mb : INT64_MAX;
    if (n.share_in_doubt) promised.memory_mb = INT64_MAX;
    const std::string wrong =
        promises_.look(world_, name, now_, n.lowered, promised, said, n.check_at);
    if (!wrong.empty()) world_.failure = name + " " + wrong;
    const std::string kept = leave_watch_.look(world_, name, now_, n.check_at);
    if (!kept.empty() && world_.failure.empty()) world_.failure = name + " " + kept;
}

// ----------------------------------------------------------------------------------------------
// the shell (agentd/daemon/owner_presence.cpp)

// Reads what the daemon finds on disk, and tells the kernel the limits with which it begins.
void Cluster::boot_owner(Node& n) {
    const bool forgets = mutation_ == Mutation::share_forgotten;
    n.milli_bound = forgets ? cpus * 1'000 : n.provider->lent().cpu_milli;
    n.use.emplace(presence_);
    n.rung = OwnerUse::Rung::none;
    n.rank_trouble.clear();
    n.lowered = false;
    n.returns = OwnerReturns();
    const auto kept = n.disk.load<OwnerReturn>(
        "return", [](const std::string& row) { return wire::unpack<OwnerReturn>(row).value(); });
    for (const OwnerReturn& before : kept) n.returns.load(before);
    n.returns.configured(promise_);
    n.pace = {};
    n.leave_rate = {};
    n.pace_at = {};
}

// Guests that the daemon before has stopped: he may be here still.
void Cluster::find_presence(Node& n) {
    if (!n.guest->any_paused()) return;
    n.use->found_stopped(now_, "he did before");
    leave_watch_.found(n.name, now_);
    see_presence(n);
    if (n.up && n.rung < OwnerUse::Rung::stopped) have_rung(n);
}

void Cluster::owner_used(Node& n) {
    n.use->used(now_, "he works");
    see_presence(n);
}

void Cluster::see_presence(Node& n) {
    n.use->tick(now_);
    if (const Nanos next = n.use->next(); next != n.use_at && next != Nanos::never())
        after(next - now_, [this, name = n.name, life = n.life, next] {
            Node& on = node(name);
            if (on.up && on.life == life && on.use_at == next) see_presence(on);
        });
    n.use_at = n.use->next();
    const OwnerUse::Rung rung = n.use->rung();
    if (rung == n.rung) return;
    const bool was_here = std::exchange(n.rung, rung) != OwnerUse::Rung::none;
    say(n.name, " has its guests ", to_string(rung), " for its owner");
    if (!was_here) {
        OwnerReturns::Guests guests = guests_now(n);
        guests.lowered = false;  // not yet
        ++counts_.returns;
        keep(n, n.returns.began(now_, now_, "load", n.use->why(), guests));
    }
    if (rung == OwnerUse::Rung::none) keep(n, n.returns.ended(now_, guests_now(n)));
    have_rung(n);
}

void Cluster::have_rung(Node& n) {
    using Rung = OwnerUse::Rung;
    const uint64_t life = n.life;
    pace_leaving(n);
    const auto why_away = [&](Rung from) {
        return n.rung >= from ? "its owner uses node " + n.name : std::string();
    };
    provider_step(
        n, [&](Provider& p, provider::Outputs& out) { p.set_here(n.rung != Rung::none, out); });
    rank_guests(n);
    guest_step(n, [&](Guest& g, guest::Outputs& out) {
        const std::string why = why_away(Rung::stopped);
        if (n.rung == Rung::none) g.want_no_memory();
        g.set_paused(why.empty() ? souk::Cause() : souk::Cause(CauseCode::owner_uses, why), out);
    });
    if (!n.up || n.life != life) return;
    provider_step(n, [&](Provider& p, provider::Outputs& out) {
        p.set_resting(why_away(Rung::stopped), out);
        p.set_leaving(why_away(Rung::leaving), out);
    });
}

// Ranks the guests below the owner. If that fails, it is tried again later.
void Cluster::rank_guests(Node& n) {
    const bool fails = faults_ && ranks_fail_ && owners_.chance(0.1);
    n.rank_trouble = fails ? "the kernel refuses" : "";
    if (fails) leave_watch_.trouble(n.name, now_);
    if (fails)
        after(owner_ms(10, 500), [this, name = n.name, life = n.life] {
            Node& on = node(name);
            if (on.up && on.life == life && !on.rank_trouble.empty()) rank_guests(on);
        });
    if (!fails && mutation_ != Mutation::owner_not_lowered)
        n.lowered = n.rung != OwnerUse::Rung::none;
    if (!fails) bound_guests(n);
    see_return(n);
}

// Tells the kernel how much CPU time all guests together may use.
void Cluster::bound_guests(Node& n) {
    if (mutation_ == Mutation::share_forgotten && n.life > 1) return;
    if (mutation_ == Mutation::share_not_held && n.rung != OwnerUse::Rung::none) return;
    n.milli_bound = n.provider->lent().cpu_milli;
}

OwnerReturns::Guests Cluster::guests_now(const Node& n) const {
    const Guest::Here here = n.guest->here(n.name);
    OwnerReturns::Guests now;
    now.running = here.running;
    now.in_memory = here.in_memory;
    now.here = mutation_ == Mutation::empty_too_early ? here.in_memory : here.all;
    now.memory_mb = here.memory_mb;
    now.who = here.who;
    now.lowered = n.rung != OwnerUse::Rung::none && n.rank_trouble.empty();
    now.trouble = n.rank_trouble;
    const bool stays = presence_.on_return != OwnerUsePolicy::Return::leave;
    if (n.rung != OwnerUse::Rung::none && n.provider->share().when_here() && stays) {
        now.share = n.provider->lent_by();
        now.within_share = here.memory_mb <= n.provider->lent().memory_mb;
    }
    return now;
}

void Cluster::see_return(Node& n) {
    if (n.returns.open()) keep(n, n.returns.see(now_, guests_now(n)));
}

void Cluster::keep(Node& n, const OwnerReturns::News& news) {
    if (news.kept) {
        const OwnerReturn& r = *news.kept;
        n.journal->put("return", key_of(r.number), wire::pack(r), Durable::later);
        const bool missed =
            !r.cpu_missed.empty() || !r.memory_missed.empty() || !r.empty_missed.empty();
        counts_.missed += r.away.ns >= 0 && missed;
    }
    for (const uint64_t number : news.forgotten)
        n.journal->erase("return", key_of(number), Durable::later);
    arm(n);
    const Nanos due = n.returns.due();
    if (due == n.return_at || mutation_ == Mutation::promise_unwatched) return;
    n.return_at = due;
    if (due == Nanos::never()) return;
    after(due - now_, [this, name = n.name, life = n.life, due] {
        Node& on = node(name);
        if (on.up && on.life == life && on.return_at == due) see_return(on);
    });
}

// The control group at once; its cell keeps that in mind for when it is let run later.
void Cluster::pause(Node& n, const GuestKey& key, bool on) {
    const World::At at{n.name, key};
    Trouble why;
    if (on && faults_ && ranks_fail_ && owners_.chance(0.1))
        why = {CauseCode::stop_failed, "it does not"};
    if (!why.empty()) leave_watch_.failed(key.id, now_);
    if (on && why.empty())
        n.paused.insert(key);
    else
        n.paused.erase(key);
    counts_.pauses += on && why.empty();
    const Capsule* c = world_.capsule(at);
    const bool may = c && c->job && !c->frozen && !c->restored;
    const bool skips = mutation_ == (on ? Mutation::paused_runs : Mutation::paused_for_ever);
    if (may && !skips && why.empty()) {
        world_.pause(at, now_, on);
        if (!on) schedule_exit(n.name, key);
    }
    after(Nanos::from_ms(1), [this, name = n.name, life = n.life, key, on, why] {
        Node& there = node(name);
        if (!there.up || there.life != life || !there.work.contains(key)) return;
        guest_step(there, [&](Guest& g, guest::Outputs& o) {
            g.ended(key, guest::Paused{on, why}, o);
        });
    });
}

// Lets a stopped guest go on, unless the owner's presence keeps it stopped.
void Cluster::run_or_pause(const World::At& at) {
    const Node& n = node(at.first);
    world_.pause(at, now_, n.up && n.paused.contains(at.second));
    world_.thaw(at, now_);
    schedule_exit(at.first, at.second);
}

void Cluster::provider_step(Node& n,
                            const std::function<void(Provider&, provider::Outputs&)>& step) {
    if (!n.up) return;
    provider::Outputs out;
    step(*n.provider, out);
    for (const provider::Output& o : out) {
        if (const auto* p = std::get_if<provider::Persist>(&o)) {
            n.journal->put("provider", "record", wire::pack(p->record), Durable::now);
        }
        if (const auto* r = std::get_if<provider::Report>(&o)) offer_changes(n, r->report);
        if (const auto* a = std::get_if<provider::Accepting>(&o))
            guest_step(n, [&](Guest& g, guest::Outputs& to) {
                g.set_accepting(a->accepting, a->why, to);
            });
        if (!n.up) return;
    }
    arm(n);
    arm_provider(n);
}

// The edges of its frames, by the clock on the wall.
void Cluster::arm_provider(Node& n) {
    const int64_t seconds = n.up ? n.provider->next_call(wall()) : 0;
    const Nanos at = seconds > 0 ? Nanos::from_s(wall().unix_s + seconds) : Nanos::never();
    if (at == n.frame_at) return;
    n.frame_at = at;
    if (at == Nanos::never()) return;
    after(at - now_, [this, name = n.name, life = n.life, at] {
        Node& on = node(name);
        if (!on.up || on.life != life || on.frame_at != at) return;
        on.frame_at = Nanos::never();
        provider_step(on, [&](Provider& p, provider::Outputs& out) { p.tick(wall(), out); });
        if (on.up) rank_guests(on);
    });
}

}  // namespace souk::sim
