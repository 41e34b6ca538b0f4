// SPDX-License-Identifier: GPL-2.0-or-later
// GuestLeases: how long the jobs of other homes may run on this node (lease.hpp), and the
// heartbeats that prolong it. Part of Guest (guest.hpp). Each answer of a home gives every job of
// it a new deadline, which the capsule's PID 1 keeps, whatever becomes of the daemon.
#pragma once

#include <map>
#include <vector>

#include "agentd/core/guest_entry.hpp"
#include "agentd/core/guest_jobs.hpp"

namespace souk {

class GuestLeases {
  public:
    // can_stop: jobs here can be stopped whole, so that a lease can be kept. The clock belongs to
    // the Guest and runs on while the machine sleeps.
    GuestLeases(bool can_stop, const Nanos& clock) : can_stop_(can_stop), clock_(clock) {}

    bool leased(const guest::Entry& e) const { return can_stop_ && e.job.spec.lease.ns > 0; }
    // The job runs under a lease, or has been told to run.
    bool in_lease(const guest::Entry& e) const;
    // The last answer of its home is fresh enough to let the job begin.
    bool may_begin(const guest::Entry& e) const;
    // Gives the job its newest deadline.
    void keep(guest::Entry& e, guest::Outputs& out) const;
    // A word of the home would let a job run whose lease was over. True: it may not run yet, since
    // that word may have been sent before the home let the job go on elsewhere.
    bool still_over(guest::Entry& e, guest::Outputs& out) const;

    // A job waits for the home's answer, so a heartbeat is sent at once.
    void need_heartbeat(const NodeName& home);
    // Takes the home's answer; false: it is older than one that came before.
    bool answered(const NodeName& home, const Heartbeat& heartbeat, Nanos now);
    // Takes the deadline that the capsule of a job kept over a crash of the daemon.
    void found(guest::Entry& e, Nanos until);

    Nanos due() const { return due_; }
    // Notes how short the leases of each home are, and returns the jobs whose deadlines are near.
    std::vector<guest::Entry*> near_end(Nanos now, GuestJobs& jobs);
    // Sends the heartbeats that are due, after near_end().
    void send_heartbeats(Nanos now, guest::Outputs& out);

  private:
    // A home whose jobs here have leases.
    struct Tie {
        // when the newest heartbeat was sent that it answered; never: it answered none
        Nanos answered = Nanos::never();
        Nanos next_heartbeat;
        Nanos shortest = Nanos::never();  // the shortest of its leases
    };
    bool can_stop_;
    const Nanos& clock_;
    std::map<NodeName, Tie> ties_;
    Nanos due_ = Nanos::never();
};

}  // namespace souk
