// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of several components: what their homes and the market make of them. See cluster.hpp.
#include <algorithm>

#include "agentd/core/home_gangs.hpp"
#include "agentd/core/home_moves.hpp"
#include "kernel/base/check.hpp"
#include "tests/sim/cluster.hpp"

namespace souk::sim {

// Submits all components at once, which srun sends one after the other.
void Cluster::submit_gang(Node& n, Submission s) {
    s.group.components = static_cast<uint32_t>(size_.components);
    const bool lacks = rng_.chance(0.2);
    home_step(n, [&](Home& h, home::Outputs& out) {
        for (uint32_t i = 0; i < s.group.components; ++i) {
            s.group.component = i;
            const auto id = h.submit(s, now_, out);
            MUST(id.has_value());
            if (i == 0) s.group.gang = id->seq;
            Truth& t = world_.truths[*id];
            t.memory_mb = s.terms.memory_mb;
            for (const NodeName& name : names_)
                if (lacks && rng_.chance(0.3)) t.lacking.insert(name);
            t.cannot_dump = rng_.chance(undumpable_);
            t.work = rng_.between(1'000'000'000, 60'000'000'000);
            ++counts_.jobs;
        }
    });
}

// Checks the record that a home writes of a component. A component that is ended because of another
// component counts as cancelled.
void Cluster::check_gang(const HomeJob& job) {
    if (!HomeGangs::is_component(job)) return;
    Truth& t = world_.truths[job.id];
    if (job.cancelled || job.why.code == CauseCode::components_not_started) t.cancelled = true;
    if (job.spec.hold && t.ran && !job.splice.due)
        world_.fail(job.id, "has run, and is not released");
    check_cut(job);
    check_set(job);
}

// Checks the checkpoints of a gang. They are of one set: the copies that they were made of once
// stood together. A component that goes back to one goes on with the others. No component is ended
// to go back, unless another one is lost for certain, or one of them may have run at its
// destination and is now back at its source.
void Cluster::check_set(const HomeJob& job) {
    const Node& home = node(job.id.home);
    // (Where it arrived it has the number that it was sent with.)
    Truth& own = world_.truths[job.id];
    const bool released = job.step == MoveStep::release;
    if (std::exchange(own.released, released) && !released && job.epoch != own.sent_as)
        own.unheard = true;
    own.sent_as = job.to_epoch;
    own.gang = job.group.gang;
    own.begins_anew = own.begins_anew || job.splice.due;
    if (job.going_back) {
        // The component that was lost may have ended since, and be forgotten.
        const bool any = std::ranges::any_of(world_.truths, [&](const auto& entry) {
            const auto& [id, t] = entry;
            const bool lost = t.destroyed || t.went_back || t.begins_anew;
            return id.home == job.id.home && t.gang == job.group.gang &&
                   (t.unheard || (lost && id != job.id));
        });
        if (!any) world_.fail(job.id, "is to go back, and nobody of its gang is lost");
        world_.truths[job.id].destroyed = true;
    }
    const auto before = home_record(home, job.id);
    const bool is_new = job.checkpoint.epoch.n > 0 && job.phase != JobPhase::finished &&
                        (!before || before->checkpoint.epoch != job.checkpoint.epoch);
    if (!is_new || HomeGangs::is_optional(job)) return;
    Nanos from, until = Nanos::never();
    for (const auto& [seq, one] : home.home->jobs()) {
        const bool of_it = one.group.gang == job.group.gang && !HomeGangs::is_optional(one);
        if (!of_it || one.phase == JobPhase::finished) continue;
        const Image* image =
            world_.complete_image({one.checkpoint.at.node, {one.id, one.checkpoint.epoch}});
        if (!image) return world_.fail(one.id, "has no checkpoint, and others of its gang have");
        from = std::max(from, image->stood_from);
        until = std::min(until, image->stood_until);
    }
    ++counts_.sets;
    if (from > until)
        world_.fail(job.id, "has a checkpoint at which not all of its gang stood together");
}

// A component is frozen with its gang, or thaws with it: as its home writes that down, it must be
// so of the others, too, and none may run before.
void Cluster::check_cut(const HomeJob& job) {
    const Node& home = node(job.id.home);
    const auto before = home_record(home, job.id);
    const bool cut = job.cut == CutStep::decided;
    const bool was_cut = before && before->cut == CutStep::decided;
    const bool thaws = job.step == MoveStep::release && job.from_frozen;
    const bool was_thawing = before && before->step == MoveStep::release;
    if (HomeGangs::is_optional(job) || ((!cut || was_cut) && (!thaws || was_thawing))) return;
    counts_.cut += cut;
    counts_.thawed += thaws;
    for (const auto& [seq, one] : home.home->jobs()) {
        const bool of_it = one.group.gang == job.group.gang && !HomeGangs::is_optional(one);
        if (!of_it || one.phase == JobPhase::finished) continue;
        // One that waits has run nothing (its program was not there), and may begin in the same
        // step by an order that has waited; one whose thaw is not decided is an image still, and
        // waits for the others.
        // One that has failed, and may have for another one's loss, runs nothing any more.
        const bool stands = one.cut == CutStep::decided || one.phase == JobPhase::frozen ||
                            world_.truths[one.id].ended || one.phase == JobPhase::waiting ||
                            one.phase == JobPhase::starting ||
                            (one.phase == JobPhase::thawing && HomeMoves::is_undecided(one));
        if (cut && (!stands || world_.progressing(one.id)))
            world_.fail(job.id, "is frozen with its gang, and " + one.id.text() + " is not");
        const bool goes_on = one.phase == JobPhase::running || one.phase == JobPhase::moving ||
                             one.step >= MoveStep::kill_old;
        if (thaws && !goes_on)
            world_.fail(job.id, "thaws, and " + one.id.text() + " of its gang does not");
    }
}

// The program of this component is about to run, so its home must have all components of its gang
// on disk as released. `stands`: its group is frozen, so a copy that its home has given up since
// does not run.
void Cluster::check_released(const GuestKey& key, bool stands) {
    const JobId& id = key.id;
    const Node& home = node(id.home);
    const auto own = home_record(home, id);
    // It keeps the epoch of the copy until it starts the job anew.
    const bool given_up = own && (own->epoch != key.epoch || own->phase == JobPhase::waiting);
    if (stands && given_up) return;
    if (!own || !HomeGangs::is_component(*own) || own->going_back) return;  // it is ended anyway
    ++counts_.released;
    for (const HomeJob& one : home_records(home))
        if (one.group.gang == own->group.gang && one.spec.hold && !one.cancelled &&
            one.phase != JobPhase::finished)
            world_.fail(id, "runs, and " + one.id.text() + " of its gang is not released");
}

// Gives orders for all components of the gang that do not run, as the market does.
bool Cluster::order_gang(const JobId& id) {
    const std::string gang = market_.at(id).report.gang;
    if (gang.empty() || rng_.chance(0.3)) return false;
    bool any = false;
    for (const auto& [other, job] : market_) {
        const JobPhase phase = job.report.phase;
        if (job.report.gang != gang || other.home != id.home) continue;
        if (phase != JobPhase::waiting && phase != JobPhase::frozen) continue;
        if (nobody_has(job.report.lacking)) continue;
        market_send(other, Order::Kind::run);
        any = true;
    }
    return any;
}

}  // namespace souk::sim
