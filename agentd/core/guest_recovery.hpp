// SPDX-License-Identifier: GPL-2.0-or-later
// GuestRecovery: takes up a job after a crash of the daemon, by its record and what the shell found
// of it. Part of Guest (guest.hpp). The capsules go on without the daemon. A dump or restore that
// was decided is finished, and one that was not is undone.
#pragma once

#include "agentd/core/guest_dumps.hpp"

namespace souk {

class GuestRecovery {
  public:
    GuestRecovery(GuestDumps& dumps, const GuestLeases& leases, const GuestOwner& owner)
        : dumps_(dumps), leases_(leases), owner_(owner) {}

    // `e` has its record, and nothing else.
    void take_up(guest::Entry& e, const guest::Found& found, guest::Outputs& out);

  private:
    void take_up_run(guest::Entry& e, const guest::Found& found, guest::Outputs& out);
    void take_up_job(guest::Entry& e, const guest::Found& found, guest::Outputs& out);
    static void give_up(guest::Entry& e, Cause why, guest::Outputs& out);
    static const char* why_given_up(const guest::Entry& e, const guest::Found& found);

    GuestDumps& dumps_;
    const GuestLeases& leases_;
    const GuestOwner& owner_;
};

}  // namespace souk
