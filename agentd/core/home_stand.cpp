// SPDX-License-Identifier: GPL-2.0-or-later
// Home: jobs that cannot be dumped, and are stopped where they are for a better bid, an owner or a
// budget. See home.hpp.
#include <utility>

#include "agentd/core/home.hpp"

namespace souk {

using namespace home;

// Stopped where it is, as it cannot be dumped: frozen for everybody, but it is its capsule that is
// the job.
void Home::became_standing(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    Volatile& v = vol(job);
    end_saving(job, out);
    stop_clock(job, now);
    const bool is_new = !std::exchange(job.in_place, true);
    job.phase = JobPhase::frozen;
    v.expel_at = Nanos::never();
    v.cannot_move = e.cannot_move;
    job.comment = e.cannot_move;
    if (is_new) job.story.add(step_of(StoryStep::What::stopped, job.at.node, e.cannot_move));
    persist(job, out);
    const std::string text = "stopped on " + job.at.node + ", where it stays: " + e.cannot_move;
    if (is_new) out.push_back(Tell{job.id, Tell::What::frozen, text});
    if (v.budget_again > now) out.push_back(Tell{job.id, Tell::What::comment, v.spent});
    steady(job, now, out);
}

// At once where it matters: it may have been submitted only to be moved.
void Home::note_movable(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    constexpr Nanos at_launch = Nanos::from_s(10);
    Volatile& v = vol(job);
    v.cannot_move = e.cannot_move;
    if (e.cannot_move.empty())
        return out.push_back(Tell{job.id, Tell::What::comment, "can move again"});
    if (job.spec.must_migrate && job.places.size() == 1 && run_time(job, now) < at_launch) {
        v.refused = "refused, as it must be able to move (--must-migrate): " + e.cannot_move;
        return send(job.at, job.id, job.epoch, GuestVerb::kill, out);
    }
    const bool once = !std::exchange(v.immovable_told, true);
    out.push_back(Tell{job.id, once ? Tell::What::warning : Tell::What::comment, e.cannot_move});
}

// Of a job that stands where it is. True: that is all that there is to it.
bool Home::owner_standing(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    switch (e.state) {
        case GuestState::dumping:
            if (job.cancelled) return end_by_cancel(job, now, out), true;
            if (e.in_place && vol(job).cannot_move != e.cannot_move)
                became_standing(job, e, now, out);
            // What its node does not know any more to stand for that, it is to try once more.
            if (!e.in_place && !e.why.empty())
                send(job.at, job.id, job.epoch, GuestVerb::freeze, out);
            return true;
        case GuestState::frozen:  // one more dump of it has succeeded
            job.in_place = false;
            job.comment.clear();
            vol(job).cannot_move.clear();
            became_frozen(job, e.image_bytes, now, out);
            return true;
        case GuestState::unknown:
        case GuestState::failed: return lost(job, now, out), true;
        default: return false;
    }
}

// It stands there in memory: nothing goes anywhere.
void Home::go_on_in_place(HomeJob& job, Nanos now, Outputs& out) {
    job.in_place = false;
    job.phase = JobPhase::running;
    job.comment.clear();
    job.story.add(step_of(StoryStep::What::resumed, job.at.node));
    vol(job).expelled = {};  // if its node's owner still wants it to leave, the node says so again
    persist(job, out);
    send(job.at, job.id, job.epoch, GuestVerb::resume, out);
    steady(job, now, out);
}

}  // namespace souk
