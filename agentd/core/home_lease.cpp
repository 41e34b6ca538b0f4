// SPDX-License-Identifier: GPL-2.0-or-later
// Home, fifth part: leases of jobs on other nodes (lease.hpp). See home.hpp.
#include <algorithm>
#include <utility>

#include "agentd/core/home.hpp"
#include "agentd/core/lease.hpp"

namespace souk {

using namespace home;

// From here on nothing of it ran, unless its node is heard from before.
Nanos Home::stood_from(const HomeJob& job) const {
    return job.leased ? heard_from(job.at.node) + home_waits(job.spec.lease) : Nanos::never();
}

// It is charged until then, although this node saw nothing of it: it slept, perhaps.
void Home::end_stretch(HomeJob& job, Nanos now) const {
    if (const Nanos end = stood_from(job); end < now && job.running_since != Nanos::never())
        stop_clock(job, std::max(end, job.running_since));
}

void Home::heartbeat(const NodeName& node, const Heartbeat& heartbeat, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::heartbeat, {}, {}, node); });
    for (const uint64_t seq : index_.of_guest(node))
        if (HomeJob& job = jobs_.at(seq); job.at.node == node) end_stretch(job, now);
    Nanos& heard = heard_[node];
    heard = std::max(heard, now);
    silent_.erase(node);
    out.push_back(Answer{node, heartbeat});
}

// What this process has answered, or one before it may have until it ended.
Nanos Home::heard_from(const NodeName& node) const {
    const auto it = heard_.find(node);
    return it == heard_.end() ? began_ : it->second;
}

// Durable with the record that follows, if any: until then this node does nothing without the
// guest.
void Home::note_lease(HomeJob& job, const NodeName& node, const GuestEvent& e, Nanos now,
                      Outputs& out) {
    if (!e.leased || job.spec.lease.ns <= 0 || node == node_) return;
    heard_.try_emplace(node, now);
    const bool owner = node == job.at.node && e.epoch == job.epoch;
    // until it has been heard to run, it is the guest's alone
    if (owner && e.state == GuestState::starting) return;
    if (!std::exchange(owner ? job.leased : job.to_leased, true)) persist(job, out, Durable::later);
}

// When whatever was told to run is sure to stand still, if nothing more is heard of its node.
Nanos Home::lease_due(const HomeJob& job) const {
    const bool released = job.step == MoveStep::release;
    const NodeName& node = released ? job.to.node : job.at.node;
    if (job.phase == JobPhase::finished || job.phase == JobPhase::waiting ||
        !(released ? job.to_leased : job.leased))
        return Nanos::never();
    // only an image
    if (!released && ((job.phase == JobPhase::frozen && !job.in_place) ||
                      (job.step != MoveStep::none && job.from_frozen)))
        return Nanos::never();
    const auto v = volatile_.find(job.id.seq);
    const Nanos heard = heard_from(node);
    if (v != volatile_.end() && v->second.lease_told == heard) return Nanos::never();
    return heard + home_waits(job.spec.lease);
}

// As if an operator had called the node lost, where there is something to go on from. Else the job
// is its node's alone.
void Home::lease_over(HomeJob& job, Nanos now, Outputs& out) {
    const NodeName node = job.step == MoveStep::release ? job.to.node : job.at.node;
    const Nanos heard = heard_from(node);
    silent_.insert(node);
    end_stretch(job, now);
    const std::string why = "node " + node + " was not heard from for " +
                            std::to_string((now - heard).ns / 1'000'000'000) + " s";
    if (job.step == MoveStep::release) return roll_back(job, why, source_died(job), now, out);
    const bool other_copy =
        job.step == MoveStep::kill_old || job.checkpoint.epoch.n > 0 || job.spec.restart;
    if (other_copy || job.cancelled) return node_gone(job, why, now, out);
    vol(job).lease_told = heard;
    stop_clock(job, now);
    job.comment =
        why + ": by its lease the job stands still there, and goes on when the node is back";
    persist(job, out);
    out.push_back(Tell{job.id, Tell::What::comment, job.comment});
    report(job, now, out);
}

}  // namespace souk
