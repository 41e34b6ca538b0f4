// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_leases.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/home_clock.hpp"
#include "agentd/core/lease.hpp"

namespace souk {

using namespace home;

void HomeLeases::answered(const NodeName& node, Nanos now) {
    Nanos& last = heard_[node];
    last = std::max(last, now);
    heard(node);
}

Nanos HomeLeases::heard_from(const NodeName& node) const {
    const auto it = heard_.find(node);
    return it == heard_.end() ? began_ : it->second;
}

void HomeLeases::note(HomeJob& job, const NodeName& node, const GuestEvent& e,
                      const HomeTurn& turn) {
    if (!e.leased || job.spec.lease.ns <= 0 || node == turn.node) return;
    heard_.try_emplace(node, turn.now);
    const bool owner = node == job.at.node && e.epoch == job.epoch;
    // until it has been heard to run, it is the guest's alone
    if (owner && e.state == GuestState::starting) return;
    if (!std::exchange(owner ? job.leased : job.to_leased, true)) turn.persist(job, Durable::later);
}

void HomeLeases::end_stretch(HomeJob& job, Nanos now) const {
    if (!job.leased || !HomeClock::runs(job)) return;
    const Nanos stood_from = heard_from(job.at.node) + home_waits(job.spec.lease);
    if (stood_from < now) HomeClock::stop(job, std::max(stood_from, job.running_since));
}

namespace {

// The node that was told to let it run.
const NodeName& runs_at(const HomeJob& job) {
    return job.step == MoveStep::release ? job.to.node : job.at.node;
}

}  // namespace

Nanos HomeLeases::due(const HomeJob& job) const {
    const bool released = job.step == MoveStep::release;
    if (job.phase == JobPhase::finished || job.phase == JobPhase::waiting ||
        !(released ? job.to_leased : job.leased))
        return Nanos::never();
    // only an image
    if (!released && ((job.phase == JobPhase::frozen && !job.in_place) ||
                      (job.step != MoveStep::none && job.from_frozen)))
        return Nanos::never();
    const Nanos heard = heard_from(runs_at(job));
    const auto told = told_.find(job.id.seq);
    if (told != told_.end() && told->second == heard) return Nanos::never();
    return heard + home_waits(job.spec.lease);
}

// As if an operator had called the node lost, where there is something to go on from.
Cause HomeLeases::over(HomeJob& job, bool may_go_back, const HomeTurn& turn) {
    const NodeName node = runs_at(job);
    const Nanos heard = heard_from(node);
    silent_.insert(node);
    end_stretch(job, turn.now);
    Cause why(CauseCode::node_not_heard, "node " + node + " was not heard from for " +
                                             std::to_string((turn.now - heard).ns / 1'000'000'000) +
                                             " s");
    const bool other_copy =
        job.step == MoveStep::release || job.step == MoveStep::kill_old || may_go_back;
    if (other_copy || job.cancelled) return why;
    told_[job.id.seq] = heard;
    HomeClock::stop(job, turn.now);
    job.comment = why.within(
        "", ": by its lease the job stands still there, and goes on when the node is back");
    turn.persist(job);
    turn.tell(job, Tell::What::comment, job.comment);
    turn.report(job);
    return {};
}

}  // namespace souk
