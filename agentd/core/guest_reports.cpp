// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_reports.hpp"

#include <utility>

namespace souk {

using namespace guest;

void GuestReports::tell(const Entry& e, Outputs& out) const {
    const auto* r = e.in<state::Running>();
    const auto* held = e.moves<motion::Held>();
    GuestEvent event;
    event.id = e.job.key.id;
    event.epoch = e.job.key.epoch;
    event.state = r && r->retained ? GuestState::retained : e.job.state;
    event.wait_status = e.job.wait_status;
    event.image_bytes = e.job.image_bytes;
    event.why = e.why;
    event.image_refused = e.image_refused && !e.why.empty();
    event.stopped = e.stopped;
    if (event.state == GuestState::running || event.state == GuestState::dump_ready)
        event.paused = e.paused;
    event.in_place = e.in_place();
    event.went_on = e.job.went_on;
    if (event.in_place && !e.job.by_order) event.cannot_move = e.why;
    if ((event.state == GuestState::running || e.in_place_by_order()) && e.immovable())
        event.cannot_move = e.why_immovable();
    if (event.state == GuestState::dumping && r) event.forecast = r->forecast;
    if (const auto* failed = e.in<state::Failed>()) {
        event.error = failed->error;
        event.program_error = failed->program_error;
    }
    event.leased = leases_.leased(e);
    event.must_leave = owner_.image_must_leave(e);
    if (held && held->fenced && r->want == Want::ship) event.held_for = e.shipment.epoch;
    if (held && r->want == Want::cut) event.held_for = r->cut_number;
    event.lapsed =
        (held && held->by_lease()) || (event.state == GuestState::frozen && e.job.lapsed);
    // The lease stopped the job in the middle of a dump, so it is told as one that stands.
    if (r && !held && e.lease.over()) {
        event.state = GuestState::dumping;
        event.lapsed = true;
        event.why = {CauseCode::lease_over, stands_still};
    }
    out.push_back(ToHome{event.id.home, std::move(event), false});
}

void GuestReports::tell_unknown(const GuestKey& key, Outputs& out) {
    GuestEvent event;
    event.id = key.id;
    event.epoch = key.epoch;
    event.state = GuestState::unknown;
    out.push_back(ToHome{key.id.home, std::move(event), true});
}

// Only a job that runs, or ran until its capsule was being ended, can be asked to leave.
void GuestReports::expel(const Entry& e, Outputs& out) const {
    const auto* r = e.in<state::Running>();
    const auto* closing = e.in<state::Closing>();
    const bool may_leave = r ? !r->retained && !e.in_place() : closing && closing->asked_to_leave;
    if (owner_.must_go(e) && may_leave)
        out.push_back(ToHome{e.job.key.id.home, Expel{e.job.key.id, e.job.key.epoch}, false});
}

}  // namespace souk
