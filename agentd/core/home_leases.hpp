// SPDX-License-Identifier: GPL-2.0-or-later
// HomeLeases: until when the jobs on other nodes may run without this home (lease.hpp), by the
// heartbeats that it has answered, and which nodes are not heard from. Part of Home, which lets a
// job go on elsewhere when its lease is over.
#pragma once

#include <map>
#include <set>
#include <string>

#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeLeases {
  public:
    // This process, from now on. One before it may have answered until it ended.
    void begin(Nanos now) { began_ = now; }

    // A heartbeat of that node is answered now.
    void answered(const NodeName& node, Nanos now);
    void heard(const NodeName& node) { silent_.erase(node); }
    // Not heard from since a lease there was over: no job is sent there.
    bool is_silent(const NodeName& node) const { return silent_.contains(node); }

    // Whether that copy's node keeps to the job's lease, as it says now. Durable with the record
    // that follows, if any: until then this node does nothing without the guest.
    void note(HomeJob& job, const NodeName& node, const GuestEvent& event, const HomeTurn& turn);
    // It runs: true if it was said to stand by its lease.
    bool runs_again(const HomeJob& job) { return told_.erase(job.id.seq) > 0; }
    // It is charged until nothing of it ran any more, although this node saw nothing of that: it
    // slept, perhaps.
    void end_stretch(HomeJob& job, Nanos now) const;

    // When whatever of the job was told to run is sure to stand still, if nothing more is heard of
    // its node; never() if that is not known or leads to nothing.
    Nanos due(const HomeJob& job) const;
    // To be called when that is due. Returns why its node counts as lost for this job, where there
    // is something to go on from; else empty: the job is its node's alone, and the market is told.
    // `may_go_back`: there is a checkpoint, or it may begin anew.
    Cause over(HomeJob& job, bool may_go_back, const HomeTurn& turn);
    void forget(uint64_t seq) { told_.erase(seq); }

  private:
    Nanos heard_from(const NodeName& node) const;

    // when the last heartbeat of each was answered, or from when on it counts
    std::map<NodeName, Nanos> heard_;
    Nanos began_;
    std::set<NodeName> silent_;
    // jobs whose lease is over, and nothing could be done: the heartbeat that it is counted from
    std::map<uint64_t, Nanos> told_;
};

}  // namespace souk
