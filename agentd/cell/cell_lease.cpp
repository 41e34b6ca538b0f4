// SPDX-License-Identifier: GPL-2.0-or-later
// Cell: the lease of a job that another node is the home of (lease_watch.hpp), and PID 1 of its
// capsule, which keeps the deadline too.
#include "agentd/cell/cell.hpp"

namespace souk {

void Cell::keep_lease(Nanos until, bool stands) { lease_.keep(until, stands); }

void Cell::tell_lease(Nanos until) {
    if (!link_ || !job_group_) return;
    const auto freezer = job_group_->open_freezer();
    const Status told = freezer ? link_.tell(&CapsuleClient::lease, static_cast<uint64_t>(until.ns),
                                             freezer->get(), job_group_->freezer_word())
                                : Status(tl::unexpected(freezer.error()));
    if (!told) log_.warning("PID 1 of a capsule does not know its lease", told.error());
}

void Cell::leased(const CapsuleClient::Event& e) {
    if (e.value != 0) return lease_.stopped_by_init();
    const Nanos until{static_cast<int64_t>(e.offset)};
    if (lease_.found(until)) tell(guest::LeaseFound{until});
}

}  // namespace souk
