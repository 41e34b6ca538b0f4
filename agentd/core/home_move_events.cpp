// SPDX-License-Identifier: GPL-2.0-or-later
// HomeMoves: what the source and the destination of a move say. See home_moves.hpp.
#include <algorithm>
#include <utility>

#include "agentd/core/home_checkpoints.hpp"
#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_moves.hpp"
#include "kernel/base/wait_status.hpp"

namespace souk {

using namespace home;

namespace {

// What lies where the job is frozen cannot be thawed, as that node itself says, and there is a
// checkpoint besides. Without one it stays frozen: its image may be mended.
bool can_go_back(const HomeJob& job, const GuestEvent& e) {
    return e.image_refused && job.from_frozen && job.checkpoint.epoch.n > 0 &&
           !HomeCheckpoints::is_whole(job, job.at.node, job.epoch);
}

}  // namespace

HomeNext HomeMoves::source(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    // it is dead, or stands; what is left of it goes on arrival
    if (job.step == MoveStep::release) {
        // said again, to a home that was started again
        if (e.held_for == job.to_epoch) state(job).ready.source_stands = true;
        return Nothing{};
    }
    if (job.step == MoveStep::kill_old) return source_when_decided(job, e, turn);
    const bool why = !e.why.empty();
    switch (e.state) {
        case GuestState::exited: return own_end(job, e, turn);
        case GuestState::killed: return Killed{e.why};
        case GuestState::unknown:
        case GuestState::failed: return job.from_frozen ? image_is_lost(job) : node_lost_it(job);
        case GuestState::dump_ready:
            if (job.from_frozen)
                return abort(job, job.at.node, Cause(CauseCode::overtaken, "it runs there"), turn);
            HomeClock::runs_on(job, e, turn);
            if (job.step == MoveStep::transfer) {  // it never arrived
                send_ship(job, turn);
                return Nothing{};
            }
            state(job).ready.source = true;
            return ship_when_ready(job, turn);
        case GuestState::retained:  // of the move before, which was given up or rolled back
            return abort(job, job.at.node, Cause(CauseCode::overtaken, "it stands in memory there"),
                         turn);
        case GuestState::dumping:
        case GuestState::shipped: return source_stands(job, e, turn);
        case GuestState::frozen:
            if (!job.from_frozen) {  // by an order of before: so be it
                drop_candidate(job, turn);
                return Frozen{e.image_bytes};
            }
            if (why && can_go_back(job, e)) return image_is_refused(job, e.why);
            if (why) return abort(job, job.at.node, e.why, turn);
            // In the transfer: did the command arrive? If the destination still expects its image,
            // it is sent again.
            if (job.step == MoveStep::transfer)
                turn.send(job.to, job.id, job.to_epoch, GuestVerb::query);
            return Nothing{};
        case GuestState::running:
            // It stood in memory, and has gone on. It is not frozen from here on, whatever else is
            // heard of that node: its gang is not frozen as if it were.
            if (std::exchange(job.from_frozen, false)) {
                HomeClock::start(job, turn);
                return abort(job, job.at.node, Cause(CauseCode::overtaken, "it runs there"), turn);
            }
            HomeClock::runs_on(job, e, turn);
            if (why) return abort(job, job.at.node, e.why, turn);
            if (job.step == MoveStep::transfer)
                return abort(job, job.at.node,
                             Cause(CauseCode::dump_failed, "the dump was interrupted"), turn);
            turn.send(job.at, job.id, job.epoch, GuestVerb::prepare_dump);
            return Nothing{};
        default: return Nothing{};
    }
}

// It is being dumped, or all of it has been sent.
HomeNext HomeMoves::source_stands(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    if (job.from_frozen)
        return abort(job, job.at.node, Cause(CauseCode::overtaken, "it stands in memory there"),
                     turn);
    const bool shipped = e.state == GuestState::shipped;
    HomeClock::stop(job, turn.now);
    if (job.step == MoveStep::prepare) {  // left over from a move given up
        if (!e.why.empty() || shipped)
            turn.send(job.at, job.id, job.epoch, GuestVerb::prepare_dump);
        return Nothing{};
    }
    if (!e.why.empty()) return abort(job, job.at.node, e.why, turn);
    State& s = state(job);
    if (s.frozen_since == Nanos::never()) s.frozen_since = turn.now;
    if (shipped) s.sent_at = std::min(s.sent_at, turn.now);
    s.ready.source_stands = e.held_for == job.to_epoch;
    if (!shipped)
        s.forecast = e.forecast;
    else if (s.forecast.frozen_bytes == 0)
        s.forecast.frozen_bytes = static_cast<uint64_t>(std::max<int64_t>(0, e.image_bytes));
    return Nothing{};
}

HomeNext HomeMoves::source_when_decided(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    const auto commit_again = [&] {
        turn.send(job.at, job.id, job.epoch, GuestVerb::commit);
        return Nothing{};
    };
    const auto off = [&] {
        source_is_off(job, turn);
        return Nothing{};
    };
    switch (e.state) {
        case GuestState::frozen:
            // Not by the decision: it had gone on since, and its image is newer than what was
            // moved.
            if (e.lapsed) return roll_back(job, because(CauseCode::source_not_held), true, turn);
            [[fallthrough]];
        case GuestState::retained:
        case GuestState::failed:
        case GuestState::unknown: return off();
        case GuestState::killed:
            if (e.went_on) return Killed{e.why};
            return off();
        case GuestState::exited:
            // A held source dies of nothing but a SIGKILL. With another status it has gone on, and
            // that was its end.
            if (e.went_on || !ended_by_sigkill(e.wait_status)) return own_end(job, e, turn);
            return off();
        case GuestState::dumping:
            if (e.lapsed || e.in_place)
                return roll_back(job, because(CauseCode::source_not_held), false, turn);
            return commit_again();
        case GuestState::running:
        case GuestState::dump_ready:  // it was not held any more, and has gone on since
            HomeClock::runs_on(job, e, turn);
            return roll_back(job, because(CauseCode::source_not_held), false, turn);
        default: return commit_again();
    }
}

HomeNext HomeMoves::candidate(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    const Trouble why = e.why.empty()
                            ? Trouble(Cause(CauseCode::job_lost,
                                            "node " + job.to.node + " lost what it had received"))
                            : e.why;
    const bool gone = e.state == GuestState::failed || e.state == GuestState::unknown ||
                      e.state == GuestState::killed || e.state == GuestState::exited;
    switch (job.step) {
        case MoveStep::none: break;
        case MoveStep::prepare:
            if (e.state == GuestState::prepared) {
                state(job).ready.destination = true;
                return ship_when_ready(job, turn);
            }
            if (e.state == GuestState::unknown)
                turn.send_with_spec(job, job.to, job.to_epoch, GuestVerb::prepare);
            else if (gone)
                return abort(job, job.to.node, why, turn);
            break;
        case MoveStep::transfer:
            if (e.state == GuestState::held)
                return held(job, turn);
            else if (e.state == GuestState::prepared)
                send_ship(job, turn);
            else if (gone && job.to.node == job.at.node && can_go_back(job, e))
                return image_is_refused(job, why);
            else if (gone)
                return abort(job, job.to.node, why, turn);
            break;
        case MoveStep::kill_old:
            if (gone) return roll_back(job, why, false, turn);
            break;
        case MoveStep::release: return released(job, e, why, turn);
    }
    return Nothing{};
}

HomeNext HomeMoves::released(HomeJob& job, const GuestEvent& e, const Trouble& why,
                             const HomeTurn& turn) {
    switch (e.state) {
        case GuestState::held: turn.send(job.to, job.id, job.to_epoch, GuestVerb::release); break;
        case GuestState::filling:
            state(job).running_at = std::min(state(job).running_at, turn.now);
            state(job).deadline = turn.now + limits_.transfer_patience;
            break;
        case GuestState::running: return arrived(job, false, turn);
        case GuestState::exited:
        case GuestState::killed:   // it has run there, so the image of before is not the job
                                   // any more
        case GuestState::dumping:  // until its lease was over
        case GuestState::frozen: return arrived(job, true, turn);
        case GuestState::failed: return roll_back(job, why, source_died(job), turn);
        case GuestState::unknown: return unheard(job, why, turn);
        default: break;
    }
    return Nothing{};
}

}  // namespace souk
