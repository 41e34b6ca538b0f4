// SPDX-License-Identifier: GPL-2.0-or-later
// Home: what the owner of a job says of it while no move is on. See home.hpp.
#include <utility>

#include "agentd/core/home.hpp"
#include "kernel/base/wait_status.hpp"

namespace souk {

using namespace home;

namespace {
constexpr Nanos cpu_worth_telling = Nanos::from_s(1);
}

void Home::owner_starting(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    switch (e.state) {
        case GuestState::unknown:
            if (job.cancelled) return end_by_cancel(job, now, out);
            return send_with_spec(job, job.at, job.epoch, GuestVerb::start, out);
        case GuestState::failed:
            if (job.cancelled) return finish(job, 9, "cancelled", now, out);
            if (e.program_error) return program_lacks(job, e, now, out);
            return back_to_waiting(job, e.why, now, out);
        case GuestState::running:
        case GuestState::exited:
        case GuestState::killed:
            job.phase = JobPhase::running;
            job.comment.clear();
            add_place(job);
            job.story.add(step_of(StoryStep::What::started, job.at.node));
            start_clock(job, now);
            tell_started(job, out);
            if (e.state != GuestState::running) return owner_running(job, e, now, out);
            persist(job, out, Durable::later);  // its node says it again
            return steady(job, now, out);
        case GuestState::dumping:  // it has run there, and its lease was over before this node
                                   // heard of it
        case GuestState::frozen:
            job.phase = JobPhase::running;
            job.comment.clear();
            add_place(job);
            job.story.add(step_of(StoryStep::What::started, job.at.node));
            persist(job, out);
            vol(job).deadline = Nanos::never();
            return owner_running(job, e, now, out);
        default: return;
    }
}

void Home::owner_running(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    switch (e.state) {
        case GuestState::running: {
            Volatile& v = vol(job);
            // it stood: from here on it is paid for
            bool news = job.running_since == Nanos::never();
            start_clock(job, now);
            if (news) persist(job, out, Durable::later);
            if (std::exchange(v.lease_told, Nanos::never()) != Nanos::never()) job.comment.clear();
            if (job.cancelled) return end_by_cancel(job, now, out);
            if (!v.refused.empty()) return send(job.at, job.id, job.epoch, GuestVerb::kill, out);
            if (!e.why.empty() && job.saving.epoch.n > 0) saving_failed(job, e.why, now, out);
            if (v.cannot_move != e.cannot_move) {
                note_movable(job, e, now, out);
                news = true;
            }
            if (job.stats.cpu_time - v.cpu_told >= cpu_worth_telling) {
                v.cpu_told = job.stats.cpu_time;
                news = true;
            }
            if (v.pid_epoch == job.epoch && std::exchange(v.pid_told, v.pid) != v.pid) news = true;
            if (news) report(job, now, out);
            if (v.stopped != e.stopped) {
                v.stopped = e.stopped;
                out.push_back(
                    Tell{job.id, e.stopped ? Tell::What::stopped : Tell::What::continued, ""});
            }
            return;
        }
        case GuestState::exited: return ended(job, e, now, out);
        case GuestState::killed: return killed(job, e.why, now, out);
        case GuestState::unknown:
        case GuestState::failed: return lost(job, now, out);
        case GuestState::frozen: return became_frozen(job, e.image_bytes, now, out);
        case GuestState::starting: return;
        case GuestState::dumping:
            if (e.in_place) return became_standing(job, e, now, out);
            if (job.saving.epoch.n > 0 && e.why.empty()) {  // for a moment; it is not paid for
                stop_clock(job, now);
                return report(job, now, out);
            }
            [[fallthrough]];
        default:  // left over from a move given up, or its lease was over
            stop_clock(job, now);
            report(job, now, out);
            return send(job.at, job.id, job.epoch, GuestVerb::resume, out);
    }
}

void Home::owner_freezing(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    switch (e.state) {
        case GuestState::dumping:
            if (e.in_place) return became_standing(job, e, now, out);
            [[fallthrough]];
        case GuestState::shipped:
            stop_clock(job, now);
            report(job, now, out);  // from here on it is not paid for, however long the dump takes
            if (e.state == GuestState::dumping && e.why.empty()) return;
            // left over from a move given up
            return send(job.at, job.id, job.epoch, GuestVerb::freeze, out);
        case GuestState::dump_ready: return send(job.at, job.id, job.epoch, GuestVerb::freeze, out);
        case GuestState::frozen: return became_frozen(job, e.image_bytes, now, out);
        case GuestState::running:
            start_clock(job, now);
            // it never arrived
            if (e.why.empty()) return send(job.at, job.id, job.epoch, GuestVerb::freeze, out);
            job.phase = JobPhase::running;
            ++vol(job).expel_tries;
            ++job.stats.failed_moves;
            fail_order(job, job.at.node, e.why, out);
            persist(job, out);
            return steady(job, now, out);
        case GuestState::exited:
        case GuestState::killed:
        case GuestState::unknown:
        case GuestState::failed: return owner_running(job, e, now, out);
        default: return;
    }
}

void Home::owner_frozen(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    if (job.in_place && owner_standing(job, e, now, out)) return;
    switch (e.state) {
        case GuestState::frozen:
            if (job.cancelled) end_by_cancel(job, now, out);
            return;
        case GuestState::retained:
        case GuestState::dumping:  // the source of a move that was taken back: it stands there in
                                   // memory, not in an image
        case GuestState::shipped: return send(job.at, job.id, job.epoch, GuestVerb::resume, out);
        case GuestState::running:  // the source of a move that was taken back: it stood there in
                                   // memory, not in an image
            job.in_place = false;
            job.phase = JobPhase::running;
            start_clock(job, now);
            job.story.add(step_of(StoryStep::What::resumed, job.at.node));
            persist(job, out);
            return steady(job, now, out);
        case GuestState::exited:
            return ended(job, e, now, out);  // it went on, and that was not heard
        case GuestState::killed: return killed(job, e.why, now, out);
        case GuestState::unknown:
        case GuestState::failed:
            return go_back(job, "its image on " + job.at.node + " is lost", now, out);
        default: return;
    }
}

}  // namespace souk
