// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_recovery.hpp"

#include <utility>

#include "kernel/base/wait_status.hpp"

namespace souk {

using namespace guest;
using What = Do::What;
using state::Running;

void GuestRecovery::take_up(Entry& e, const Found& found, Outputs& out) {
    const GuestState kept = e.job.state;
    if (kept == GuestState::exited || kept == GuestState::killed) return e.end_as(kept);
    // A shipped job was held until its end. Its killer was told to kill it, and the image is the
    // job.
    const bool by_itself = found.exited && !ended_by_sigkill(found.wait_status);
    const bool shipped =
        kept == GuestState::shipped && !found.job_alive && !by_itself && found.image_complete;
    // A job that is frozen by its record has lost its image, unless its processes still stand.
    if (!shipped && (kept != GuestState::frozen || !found.image_complete))
        return take_up_run(e, found, out);
    e.become(state::Frozen{}, GuestState::frozen);
    if (shipped) out.push_back(Persist{e.job});
    if (found.capsule_alive) e.close(Ending::to_frozen, What::kill_capsule, out);
}

void GuestRecovery::give_up(Entry& e, Cause why, Outputs& out) {
    e.why = std::move(why);
    if (std::exchange(e.job.state, GuestState::starting) != GuestState::starting)
        out.push_back(Persist{e.job});
    e.close(Ending::to_failed, What::kill_capsule, out);
}

// The reason why the job cannot go on here, because the daemon ended in the middle of that step;
// null if it can.
const char* GuestRecovery::why_given_up(const Entry& e, const Found& found) {
    const GuestState kept = e.job.state;
    if (e.job.from_image && kept == GuestState::starting)
        return "the daemon ended before the job was restored";
    if (kept == GuestState::filling) return "the daemon ended before all of its memory had come";
    // CRIU kills the job that it restored when the daemon ends before it lets the job run. A job
    // that was told to run, and got a SIGKILL of its own before the daemon knew that it runs,
    // cannot be told apart; it goes on from its image then.
    if (found.exited && kept == GuestState::held && ended_by_sigkill(found.wait_status))
        return "the daemon ended while the job was restored";
    return nullptr;
}

// The job runs, or was to run here. `running` and `held` on disk mean: was told to run.
void GuestRecovery::take_up_run(Entry& e, const Found& found, Outputs& out) {
    const GuestState kept = e.job.state;
    if (e.job.spec.hold && kept == GuestState::starting)
        return give_up(e, {CauseCode::agentd_ended, "the daemon ended before the job was released"},
                       out);
    if (kept == GuestState::frozen && !found.job_alive)
        return give_up(e, because(CauseCode::image_incomplete), out);
    if (const char* why = why_given_up(e, found))
        return give_up(e, {CauseCode::agentd_ended, why}, out);
    if (found.exited) {
        // Its capsule tells the end again, with how much the job has written. Until then it runs.
        if (found.capsule_alive) return take_up_job(e, found, out);
        e.end_as(GuestState::exited);
        e.job.wait_status = found.wait_status;
    } else if (found.job_alive) {
        take_up_job(e, found, out);
    } else if (found.capsule_alive || kept == GuestState::starting) {
        give_up(e, {CauseCode::agentd_ended, "the daemon ended before the job was started"}, out);
    } else {
        dumps_.died(e, Cause(CauseCode::capsule_ended, "its capsule is gone"), out);
    }
}

// The job runs, or stands frozen.
void GuestRecovery::take_up_job(Entry& e, const Found& found, Outputs& out) {
    const bool shipped_kept = e.job.state == GuestState::shipped;
    Running& r = e.become(Running{}, GuestState::running);
    r.shipped_kept = shipped_kept;
    if (found.exited) return e.roll_back_shipped(r, out);
    e.pause_asked = found.paused;
    if (found.paused)
        e.paused = owner_.pause().empty() ? Cause(CauseCode::owner_uses, "its owner uses it")
                                          : owner_.pause();
    if (!found.held_by_dump) {
        e.job.in_place = e.job.by_order = false;  // the next record that is written says so, too
        return e.roll_back_shipped(r, out);
    }
    // The job does not go on before its home has answered.
    if (leases_.leased(e)) e.lease.stage = Lease::Stage::over;
    if (found.lapsed) {
        e.roll_back_shipped(r, out);
        return e.stand_for_lease(r);
    }
    if (e.job.in_place) return dumps_.stands_in_place(e, r);
    using Held = motion::Held;
    e.job.state = GuestState::dumping;
    r.want = Want::keep;
    r.motion = Held{Held::By::dump, found.image_complete ? Held::Image::whole : Held::Image::lost};
    e.why = {CauseCode::agentd_ended, "the daemon of its node ended during the dump"};
}

}  // namespace souk
