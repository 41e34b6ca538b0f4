// SPDX-License-Identifier: GPL-2.0-or-later
// GuestReports: the messages by which a job's home hears how the job is. Part of Guest (guest.hpp).
// A report tells the state of the job, not what changed, so that it may be sent again at any time.
#pragma once

#include "agentd/core/guest_leases.hpp"
#include "agentd/core/guest_owner.hpp"

namespace souk {

class GuestReports {
  public:
    GuestReports(const GuestLeases& leases, const GuestOwner& owner)
        : leases_(leases), owner_(owner) {}

    void tell(const guest::Entry& e, guest::Outputs& out) const;
    // Nothing is known here of that (job, epoch).
    static void tell_unknown(const GuestKey& key, guest::Outputs& out);
    // The home is asked to take the job away, if it must go and can be asked to.
    void expel(const guest::Entry& e, guest::Outputs& out) const;

  private:
    const GuestLeases& leases_;
    const GuestOwner& owner_;
};

}  // namespace souk
