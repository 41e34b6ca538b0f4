// SPDX-License-Identifier: GPL-2.0-or-later
// HomeRuns: what the owner of a job says of it while no move is on. See home_runs.hpp.
#include <utility>

#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_records.hpp"
#include "agentd/core/home_runs.hpp"

namespace souk {

using namespace home;

namespace {

constexpr Nanos cpu_worth_telling = Nanos::from_s(1);

void tell_started(const HomeJob& job, const HomeTurn& turn) {
    std::string text = "started on " + job.at.node;
    if (job.terms.memory_by_default)
        text += " (with " + std::to_string(job.terms.memory_mb) +
                " MB of memory, the default; srun -m says otherwise)";
    turn.tell(job, Tell::What::started, std::move(text));
}

HomeNext send(const HomeJob& job, GuestVerb verb, const HomeTurn& turn) {
    turn.send(job.at, job.id, job.epoch, verb);
    return Nothing{};
}

}  // namespace

HomeNext HomeRuns::hears(HomeJob& job, const GuestEvent& e, const HomeTurn& turn, Beside beside) {
    switch (job.phase) {
        case JobPhase::starting: return starting(job, e, turn, beside);
        case JobPhase::running: return running(job, e, turn, beside);
        case JobPhase::freezing: return freezing(job, e, turn, beside);
        case JobPhase::frozen: return frozen(job, e, turn);
        case JobPhase::moving:
        case JobPhase::thawing:
        case JobPhase::waiting:
        case JobPhase::finished: break;
    }
    return Nothing{};
}

HomeNext HomeRuns::starting(HomeJob& job, const GuestEvent& e, const HomeTurn& turn,
                            Beside beside) {
    const auto has_started = [&] {
        job.phase = JobPhase::running;
        job.comment.clear();
        HomeRecords::add_place(job);
        job.story.add(turn.step(StoryStep::What::started, job.at.node));
    };
    switch (e.state) {
        case GuestState::unknown:
            if (job.cancelled) return Cancelled{};
            turn.send_with_spec(job, job.at, job.epoch, GuestVerb::start);
            return Nothing{};
        case GuestState::failed:
            if (job.cancelled) return Finished{9, because(CauseCode::cancelled)};
            if (e.program_error) return program_lacks(job, e, turn);
            return start_undelivered(job, e.why, turn);
        case GuestState::held:
            if (job.spec.hold) return Held{};
            return send(job, GuestVerb::release, turn);  // it was said, and has not arrived
        case GuestState::running:
        case GuestState::exited:
        case GuestState::killed:
            if (job.spec.hold) return not_held(job, e, turn);
            has_started();
            HomeClock::start(job, turn);
            tell_started(job, turn);
            if (e.state != GuestState::running) return running(job, e, turn, beside);
            turn.persist(job, Durable::later);  // its node says it again
            return Steady{};
        case GuestState::dumping:  // it has run there, and its lease was over before this node
                                   // heard of it
        case GuestState::frozen:
            if (job.spec.hold) return not_held(job, e, turn);
            has_started();
            turn.persist(job);
            step_ended(job);
            return running(job, e, turn, beside);
        default: return Nothing{};
    }
}

// A component that was to be held has run, or was killed before it did: none of it counts.
HomeNext HomeRuns::not_held(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    const std::string at = job.at.node;
    Trouble why = e.why;
    if (why.empty() || e.state != GuestState::killed)
        why = because(CauseCode::components_not_held,
                      {{"text", "node " + at + " did not hold it until all were ready"}});
    take_back(job, why, turn);
    return Steady{};
}

HomeNext HomeRuns::running(HomeJob& job, const GuestEvent& e, const HomeTurn& turn, Beside beside) {
    switch (e.state) {
        case GuestState::running: return runs(job, e, turn, beside);
        case GuestState::exited: return own_end(job, e, turn);
        case GuestState::killed: return Killed{e.why};
        case GuestState::unknown:
        case GuestState::failed: return node_lost_it(job);
        case GuestState::frozen: return Frozen{e.image_bytes};
        case GuestState::starting: return Nothing{};
        case GuestState::dumping:
            if (e.in_place && !e.cannot_move.empty()) return Standing{e.cannot_move};
            if (!e.in_place && job.saving.epoch.n > 0 &&
                e.why.empty()) {  // for a moment; it is not paid for
                HomeClock::stop(job, turn.now);
                turn.report(job);
                return Nothing{};
            }
            [[fallthrough]];
        default:  // left over from a move given up, its lease was over, or the word to go on
                  // where it stands by an order has not arrived: it never stands so by itself
            HomeClock::stop(job, turn.now);
            turn.report(job);
            return send(job, GuestVerb::resume, turn);
    }
}

HomeNext HomeRuns::runs(HomeJob& job, const GuestEvent& e, const HomeTurn& turn, Beside beside) {
    State& s = state(job);
    const bool ran = HomeClock::runs(job);
    HomeClock::runs_on(job, e, turn);
    bool news = HomeClock::runs(job) != ran;  // it stood, or stands: it is paid for while it runs
    note_goes_on(job, turn);
    if (s.paused != e.paused) {
        note_paused(job, e.paused, turn);
        news = true;
    }
    // What it ran until it was paused is in no other record.
    if (news) turn.persist(job, e.paused.empty() ? Durable::later : Durable::soon);
    if (beside.leases.runs_again(job)) job.comment.clear();
    if (job.cancelled) return Cancelled{};
    if (!s.refused.empty()) return send(job, GuestVerb::kill, turn);
    if (!e.why.empty() && job.saving.epoch.n > 0) beside.checkpoints.failed(job, e.why, turn);
    if (s.cannot_move != e.cannot_move) {
        note_movable(job, e, turn);
        news = true;
    }
    if (job.stats.cpu_time - s.cpu_told >= cpu_worth_telling) {
        s.cpu_told = job.stats.cpu_time;
        news = true;
    }
    if (s.pid_epoch == job.epoch && std::exchange(s.pid_told, s.pid) != s.pid) news = true;
    if (news) turn.report(job);
    if (std::exchange(s.stopped, e.stopped) != e.stopped)
        turn.tell(job, e.stopped ? Tell::What::stopped : Tell::What::continued, "");
    return Nothing{};
}

// How long that took.
void HomeRuns::note_goes_on(HomeJob& job, const HomeTurn& turn) {
    const Nanos told = std::exchange(state(job).goes_on, Nanos::never());
    if (told == Nanos::never()) return;
    StoryStep step = turn.step(StoryStep::What::resumed, job.at.node);
    step.total = turn.now - told;
    job.story.add(std::move(step));
    turn.tell(job, Tell::What::moved, "goes on at " + job.at.node);
}

void HomeRuns::note_paused(HomeJob& job, const Cause& why, const HomeTurn& turn) {
    using What = StoryStep::What;
    const bool stood = !std::exchange(state(job).paused, why).empty();
    if (stood != why.empty()) return;  // another reason
    job.story.add(turn.step(why.empty() ? What::resumed : What::stopped, job.at.node, why));
    turn.tell(job, Tell::What::comment,
              why.empty() ? "goes on, on " + job.at.node
                          : "is stopped on " + job.at.node + " for now, and costs nothing: " + why);
}

// At once where it matters: it may have been submitted only to be moved.
void HomeRuns::note_movable(const HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    constexpr Nanos at_launch = Nanos::from_s(10);
    State& s = state(job);
    s.cannot_move = e.cannot_move;
    if (e.cannot_move.empty()) return turn.tell(job, Tell::What::comment, "can move again");
    if (job.spec.must_migrate && job.places.size() == 1 &&
        HomeClock::run_time(job, turn.now) < at_launch) {
        s.refused = because(CauseCode::must_migrate, {{"text", e.cannot_move}});
        return turn.send(job.at, job.id, job.epoch, GuestVerb::kill);
    }
    if (std::exchange(s.immovable_told, true))
        return turn.tell(job, Tell::What::comment, e.cannot_move);
    turn.tell(job, Tell::What::warning,
              e.cannot_move +
                  " (where its owner wants the machine back, it is stopped in memory, "
                  "and ended if he says so)");
}

HomeNext HomeRuns::freeze_again(const HomeJob& job, const HomeTurn& turn) const {
    send_freeze(job, turn);
    return Nothing{};
}

HomeNext HomeRuns::freezing(HomeJob& job, const GuestEvent& e, const HomeTurn& turn,
                            Beside beside) {
    switch (e.state) {
        case GuestState::dumping:
            // as it stood before: the word to freeze it to disk has not arrived
            if (e.in_place && e.cannot_move.empty() && job.in_place && !state(job).stands)
                return freeze_again(job, turn);
            if (e.in_place) return Standing{e.cannot_move};
            [[fallthrough]];
        case GuestState::shipped:
            HomeClock::stop(job, turn.now);
            if (job.cut == CutStep::decided && (e.state == GuestState::shipped || !e.why.empty()))
                return send(job, GuestVerb::commit, turn);
            turn.report(job);  // from here on it is not paid for, however long the dump takes
            if (e.state == GuestState::dumping && e.why.empty()) return Nothing{};
            return freeze_again(job, turn);  // left over from a move given up
        case GuestState::dump_ready: return freeze_again(job, turn);
        case GuestState::frozen: return Frozen{e.image_bytes};
        case GuestState::running:
            HomeClock::runs_on(job, e, turn);
            job.in_place = false;
            if (e.why.empty()) return freeze_again(job, turn);  // it never arrived
            job.phase = JobPhase::running;
            job.cut = CutStep::none;
            beside.expels.freeze_failed(job);
            ++job.stats.failed_moves;
            turn.fail_order(job, job.at.node, e.why);
            turn.persist(job);
            return Steady{};
        case GuestState::exited:
        case GuestState::killed:
        case GuestState::unknown:
        case GuestState::failed: return running(job, e, turn, beside);
        default: return Nothing{};
    }
}

// Of a job that stands where it is; nothing: as of any that is frozen.
std::optional<HomeNext> HomeRuns::in_place(HomeJob& job, const GuestEvent& e,
                                           const HomeTurn& turn) {
    switch (e.state) {
        case GuestState::dumping:
            if (job.cancelled) return Cancelled{};
            if (e.in_place && cannot_move(job) != e.cannot_move) return Standing{e.cannot_move};
            // What its node does not know any more to stand for that, it is to try once more.
            if (!e.in_place && !e.why.empty()) turn.send_freeze(job, stands_by_order(job));
            return Nothing{};
        case GuestState::frozen:  // one more dump of it has succeeded
            job.in_place = false;
            job.comment.clear();
            state(job).cannot_move.clear();
            return Frozen{e.image_bytes};
        case GuestState::unknown:
        case GuestState::failed: return node_lost_it(job);
        default: return std::nullopt;
    }
}

HomeNext HomeRuns::frozen(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    if (job.in_place)
        if (auto next = in_place(job, e, turn)) return *std::move(next);
    switch (e.state) {
        case GuestState::frozen:
            if (job.cancelled) return Cancelled{};
            return Nothing{};
        case GuestState::retained:
        case GuestState::dumping:  // the source of a move that was rolled back: it stands there in
                                   // memory, not in an image
        case GuestState::shipped: return send(job, GuestVerb::resume, turn);
        case GuestState::running:  // the source of a move that was rolled back: it stood there in
                                   // memory, not in an image
            job.in_place = false;
            job.phase = JobPhase::running;
            HomeClock::runs_on(job, e, turn);
            job.story.add(turn.step(StoryStep::What::resumed, job.at.node));
            turn.persist(job);
            return Steady{};
        case GuestState::exited:
            return own_end(job, e, turn);  // it went on, and that was not heard
        case GuestState::killed: return Killed{e.why};
        case GuestState::unknown:
        case GuestState::failed: return image_is_lost(job);
        default: return Nothing{};
    }
}

}  // namespace souk
