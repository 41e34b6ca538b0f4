// SPDX-License-Identifier: GPL-2.0-or-later
// GuestDeadlines: what happens to guests that are to leave this node and do not: they are frozen to
// disk, stopped in place, or killed, as the owner's policy says. Part of Guest (guest.hpp). An
// operation that cannot be begun in the middle of another one is tried again a little later.
#pragma once

#include "agentd/core/guest_dumps.hpp"
#include "agentd/core/guest_jobs.hpp"
#include "agentd/core/guest_starts.hpp"

namespace souk {

class GuestDeadlines {
  public:
    GuestDeadlines(OwnerPolicy policy, GuestJobs& jobs, GuestOwner& owner, GuestDumps& dumps,
                   GuestStarts& starts, const GuestReports& reports)
        : policy_(policy),
          jobs_(jobs),
          owner_(owner),
          dumps_(dumps),
          starts_(starts),
          reports_(reports) {}

    // Does all that is due, and tells the owner's part when it wants to be called again.
    void tick(Nanos now, guest::Outputs& out);

  private:
    // One look at one job: when it is to be looked at again.
    struct Look {
        Nanos now;
        Nanos due = Nanos::never();
        // `at` has come and the operation can be begun; else it is noted when to look again.
        bool reached(Nanos at, bool possible);
    };
    void look_at(guest::Entry& e, guest::state::Running& r, Look& look, guest::Outputs& out);
    void look_at_component(guest::Entry& e, Look& look, guest::Outputs& out);
    bool must_be_killed(const guest::Entry& e, bool steady, bool goes_on, Look& look) const;
    Nanos leave_at(const guest::Entry& e) const;
    void kill(guest::Entry& e, guest::Outputs& out) const;

    OwnerPolicy policy_;
    GuestJobs& jobs_;
    GuestOwner& owner_;
    GuestDumps& dumps_;
    GuestStarts& starts_;
    const GuestReports& reports_;
};

}  // namespace souk
