// SPDX-License-Identifier: GPL-2.0-or-later
// Leases in the simulated cluster: clocks that differ, deadlines that PID 1 of a capsule keeps,
// links that are cut for longer. See cluster.hpp.
#include "tests/sim/cluster.hpp"

namespace souk::sim {

void Cluster::at_local(const NodeName& name, Nanos at, Call call) {
    const auto real = static_cast<__int128>(at.ns) * 1'000'000 / (1'000'000 + node(name).clock_ppm);
    after(Nanos{static_cast<int64_t>(real) + 1000} - now_, std::move(call));
}

void Cluster::schedule_guest_tick(Node& n, Nanos next) {
    if (!n.up || next == Nanos::never() || n.guest_tick_at == next) return;
    n.guest_tick_at = next;
    at_local(n.name, std::max(next, local(n) + Nanos{1}),
             [this, name = n.name, life = n.life, next] {
                 Node& on = node(name);
                 if (!on.up || on.life != life || on.guest_tick_at != next) return;
                 on.guest_tick_at = Nanos::never();
                 guest_step(on, [](Guest&, guest::Outputs&) {});
             });
}

bool Cluster::past_lease(const World::At& at) {
    const Capsule* c = world_.capsule(at);
    return c && c->until > Nanos{} && local(node(at.first)) >= c->until &&
           mutation_ != Mutation::deadline_unwatched;
}

// The copy begins stopped, in a control group that is frozen already, because its lease is over.
void Cluster::born_stopped(const World::At& at) {
    if (!past_lease(at)) return;
    Capsule& c = *world_.capsule(at);
    c.frozen = c.lapsed = true;
}

// Stops a capsule whose lease is over. The kernel and PID 1 do this, whether the daemon lives or
// not.
void Cluster::stop_past_lease(const World::At& at) {
    Capsule* c = world_.capsule(at);
    if (!past_lease(at)) return;
    // A job that CRIU still holds, or that has not begun, begins in a group that is frozen by then.
    const bool not_begun = c->alive && (c->restored || (!c->job && !c->exited));
    if (not_begun && !c->frozen) c->frozen = c->lapsed = true;
    if (!(c->progressing() || (c->job && c->paused && !c->frozen))) return;
    say("  on ", at.first, " ", at.second, " is stopped: its lease is over");
    world_.freeze(at, now_);
    c->lapsed = true;
}

void Cluster::deadline(const NodeName& name, const GuestKey& key, Nanos until) {
    at_local(name, until, [this, name, key, until] {
        const Capsule* c = world_.capsule({name, key});
        if (!c || c->until != until) return;
        stop_past_lease({name, key});
        Node& n = node(name);
        guest_step(n,
                   [&](Guest& g, guest::Outputs& out) { g.ended(key, guest::Lapsed{until}, out); });
    });
}

void Cluster::keep_lease(Node& n, const guest::Do& d) {
    const World::At at{n.name, d.key};
    Capsule* c = world_.capsule(at);
    if (!c || !c->alive) return;
    c->until = d.until;
    deadline(n.name, d.key, d.until);
    if (!c->lapsed || d.stands || c->stood) return;
    if (c->dumped)
        c->lapsed = false;  // CRIU has it, or its group is the dump's
    else
        thaw(at);
}

void Cluster::thaw(const World::At& at) {
    Capsule* c = world_.capsule(at);
    if (!c) return;
    c->dumped = false;
    const bool over = c->until > Nanos{} && local(node(at.first)) >= c->until &&
                      mutation_ != Mutation::thaw_past_lease;
    if (over && c->frozen) c->lapsed = true;
    if (over) return;
    c->lapsed = c->stood = false;
    run_or_pause(at);
}

// Checks the home: a lease that it takes for ended must have ended. The job then goes on from the
// place that the home names, once that is on the home's disk.
void Cluster::leases_are_over(Node& n) {
    n.goes_back.clear();
    for (const auto& [seq, job] : n.home->jobs()) {
        if (n.home->lease_due(job) > now_) continue;
        if (world_.progressing(job.id)) world_.fail(job.id, "runs past its lease");
        const World::At source{job.at.node, {job.id, job.epoch}},
            candidate{job.to.node, {job.id, job.to_epoch}};
        say(n.name, " knows that the lease of ", GuestKey{job.id, job.epoch}, " is over");
        if (job.step == MoveStep::release)
            n.goes_back[job.id] = source;
        else if (job.step == MoveStep::kill_old)
            n.goes_back[job.id] = candidate;
        else if (job.cancelled)
            world_.truths[job.id].ended.reset();
    }
}

// Longer than a broken connection; often in one way only, until an end gives it up.
void Cluster::partition(const NodeName& a, const NodeName& b) {
    const Nanos lasts = ms(1'000, 120'000);
    say(a, " and ", b, " do not reach each other");
    for (const NodeName& end : {a, b}) leave_watch_.trouble(end, now_ + lasts);
    for (const auto& ends : {std::pair{a, b}, std::pair{b, a}}) {
        cut_.insert(ends);
        break_link(ends.first, ends.second);
        Link& l = link(ends.first, ends.second);
        if (l.broken && rng_.chance(0.3))
            (rng_.chance(0.5) ? l.cut_home : l.cut_guest) += ms(0, 20'000);
        after(lasts, [this, ends] { cut_.erase(ends); });
    }
}

}  // namespace souk::sim
