// SPDX-License-Identifier: GPL-2.0-or-later
// GuestDumps: takes a running job one step after the other towards what is wanted of it: a dump for
// a move, to disk or for a checkpoint, a stop in place, or to run on. Part of Guest (guest.hpp);
// guest_state.hpp draws the motions. A command sets what is wanted, and each end of an effect goes
// one step on; so commands may come late, twice or in the middle of a dump, which is never torn,
// only undone.
#pragma once

#include "agentd/core/guest_event.hpp"
#include "agentd/core/guest_leases.hpp"
#include "agentd/core/guest_owner.hpp"
#include "agentd/core/guest_reports.hpp"

namespace souk {

class GuestDumps {
  public:
    GuestDumps(const GuestLeases& leases, GuestOwner& owner, const GuestReports& reports,
               const Nanos& clock)
        : leases_(leases), owner_(owner), reports_(reports), clock_(clock) {}

    // Commands of the home.
    void prepare_dump(guest::Entry& e, const GuestCommand& c, guest::Outputs& out);
    void checkpoint(guest::Entry& e, const GuestCommand& c, guest::Outputs& out);
    void freeze(guest::Entry& e, const GuestCommand& c, guest::Outputs& out);
    void commit(guest::Entry& e, guest::Outputs& out);
    void resume(guest::Entry& e, guest::Outputs& out);
    // A command cannot be carried out. The home gives its move up, and the job goes on as before; a
    // checkpoint is not made.
    void refuse(guest::Entry& e, Trouble why, guest::Outputs& out);

    // Goes one step from where the job is towards what is wanted of it. It does nothing while an
    // effect is under way whose end comes back here.
    void drive(guest::Entry& e, guest::Outputs& out);
    // The owner's deadline has passed: the job is frozen to disk, or stopped in place.
    void freeze_for_owner(guest::Entry& e, guest::state::Running& r, guest::Outputs& out);
    // The lease ends soon: the job is frozen to disk, once.
    void lease_ends(guest::Entry& e, guest::Outputs& out);
    // The job runs now, for the first time or again.
    void now_running(guest::Entry& e, guest::state::Running& r, guest::Outputs& out);
    // The job was found stopped in place, or has been stopped so.
    void stands_in_place(guest::Entry& e, guest::state::Running& r);
    // The job ran and was ended from outside: no part of it goes on.
    void died(guest::Entry& e, Trouble why, guest::Outputs& out) const;

    // Events of a job that runs, but for the last two.
    void on_criu_ready(guest::Entry& e, guest::Outputs& out);
    void on_criu_failed(guest::Entry& e, guest::CriuFailed x, guest::Outputs& out);
    void on_sent_precopy(guest::Entry& e, guest::Outputs& out);
    void on_dump_froze(guest::Entry& e, const guest::DumpFroze& x, guest::Outputs& out);
    void on_dump_held(guest::Entry& e, const guest::DumpHeld& x, guest::Outputs& out);
    void on_dump_failed(guest::Entry& e, guest::DumpFailed x, guest::Outputs& out);
    void on_dump_undone(guest::Entry& e, guest::Outputs& out);
    void on_stood(guest::Entry& e, guest::Stood x, guest::Outputs& out);
    void on_lapsed(guest::Entry& e, const guest::Lapsed& x, guest::Outputs& out);
    void on_checkpoint_sent(guest::Entry& e, guest::Outputs& out);
    void on_checkpoint_failed(guest::Entry& e, guest::CheckpointFailed x, guest::Outputs& out);

  private:
    void want(guest::Entry& e, guest::Want want, guest::Outputs& out);
    static void let_go(const guest::Entry& e, guest::state::Running& r, guest::Outputs& out);
    void want_failed(guest::Entry& e, guest::state::Running& r, Trouble why, bool of_job,
                     guest::Outputs& out);
    void drive_running(guest::Entry& e, guest::state::Running& r, guest::Outputs& out);
    void ask_criu(guest::Entry& e, guest::state::Running& r, guest::Outputs& out);
    void make(guest::Entry& e, guest::state::Running& r, guest::Outputs& out);
    void undo(guest::Entry& e, guest::state::Running& r, guest::Outputs& out,
              guest::Do::What how = guest::Do::What::undo_dump);
    void begin_stop(guest::Entry& e, guest::state::Running& r, guest::Outputs& out);
    void stop_failed(guest::Entry& e, guest::state::Running& r, guest::Stood x,
                     guest::Outputs& out);
    static void leave_stop(guest::Entry& e, const guest::state::Running& r, guest::Outputs& out);
    void stands_for_cut(guest::Entry& e, guest::state::Running& r, guest::Outputs& out);
    void save_is_made(guest::Entry& e, guest::state::Running& r, guest::Outputs& out);

    const GuestLeases& leases_;
    GuestOwner& owner_;
    const GuestReports& reports_;
    const Nanos& clock_;
};

}  // namespace souk
