// SPDX-License-Identifier: GPL-2.0-or-later
// HomeMoves: what is done in a move. What its two ends say: home_move_events.cpp.
#include "agentd/core/home_moves.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/home_checkpoints.hpp"
#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_gangs.hpp"
#include "agentd/core/home_records.hpp"
#include "kernel/base/check.hpp"

namespace souk {

using namespace home;

namespace {
std::string seconds(Nanos span) { return std::to_string(span.ns / 1'000'000'000); }
}  // namespace

void HomeMoves::begin(HomeJob& job, const Order& order, const HomeTurn& turn) {
    HomeClock::fold(job, turn.now);
    job.from_frozen = job.phase == JobPhase::frozen && !std::exchange(job.in_place, false);
    job.phase = job.from_frozen ? JobPhase::thawing : JobPhase::moving;
    job.to = {order.node, order.address};
    job.ticket = order.ticket;
    job.to_epoch = job.last_epoch = job.last_epoch.next();
    job.to_leased = false;
    job.step = MoveStep::prepare;
    State& s = state(job);
    const MoveForecast last = s.forecast;
    s = {};
    s.forecast = last;
    s.ready.source = job.from_frozen;
    s.deadline = turn.now + limits_.step_patience;
    turn.persist(job);
    turn.report(job);
    turn.send_with_spec(job, job.to, job.to_epoch, GuestVerb::prepare);
    if (!job.from_frozen) turn.send(job.at, job.id, job.epoch, GuestVerb::prepare_dump);
}

HomeNext HomeMoves::restarted(HomeJob& job, const HomeTurn& turn) {
    if (is_undecided(job)) return abort(job, {}, because(CauseCode::home_restarted), turn);
    if (job.step != MoveStep::none) state(job).deadline = turn.now + limits_.step_patience;
    return Nothing{};
}

HomeNext HomeMoves::ship_when_ready(HomeJob& job, const HomeTurn& turn) {
    State& s = state(job);
    if (job.step != MoveStep::prepare || !s.ready.source || !s.ready.destination) return Nothing{};
    // not durable on purpose: until the commit every restart goes back
    job.step = MoveStep::transfer;
    s.deadline = turn.now + limits_.transfer_patience;
    send_ship(job, turn);
    return Nothing{};
}

void HomeMoves::send_ship(const HomeJob& job, const HomeTurn& turn) {
    const bool here = job.at.node == job.to.node;  // thaw where the image lies
    GuestCommand c;
    c.id = job.id;
    c.epoch = job.epoch;
    c.verb = here ? GuestVerb::restore_here : GuestVerb::ship;
    c.new_epoch = job.to_epoch;
    c.dest = job.to.node;
    c.dest_address = job.to.address;
    if (!here && job.at.node != turn.node) c.ticket = job.ticket;
    turn.send(job.at, std::move(c));
}

void HomeMoves::drop_candidate(HomeJob& job, const HomeTurn& turn) {
    if (job.step == MoveStep::none) return;
    const Peer peer = std::exchange(job.to, Peer{});
    HomeRecords::add_orphan(job, peer, job.to_epoch);
    turn.send(peer, job.id, job.to_epoch, GuestVerb::kill);
    job.step = MoveStep::none;
    job.cut = CutStep::none;
}

HomeNext HomeMoves::abort(HomeJob& job, const NodeName& blame, const Trouble& why,
                          const HomeTurn& turn) {
    MUST(is_undecided(job));
    const Peer peer = job.to;
    job.step = MoveStep::none;
    job.cut = CutStep::none;
    job.phase = job.from_frozen ? JobPhase::frozen : JobPhase::running;
    HomeRecords::add_orphan(job, peer, job.to_epoch);
    if (!blame.empty()) {
        ++job.stats.failed_moves;
        turn.fail_order(job, blame, why);
    } else {  // no node is to blame, and none is barred
        job.comment = why;
        job.story.add(turn.step(StoryStep::What::failed, job.at.node, why));
    }
    job.to = {};  // not before: `blame` may be its name
    turn.persist(job);
    turn.send(peer, job.id, job.to_epoch, GuestVerb::kill);
    turn.send_resume(job, why);
    return Steady{};
}

// A component that thaws waits for the others: all run, or none does.
HomeNext HomeMoves::held(HomeJob& job, const HomeTurn& turn) {
    const bool waits =
        job.from_frozen && HomeGangs::is_component(job) && !HomeGangs::is_optional(job);
    if (!waits) {
        commit(job, turn);
        return Nothing{};
    }
    if (std::exchange(job.cut, CutStep::held) != CutStep::held) goes_on(job, turn.now);
    return Restored{};
}

// The decision: durable in this step, before anybody hears of it. A source that only this home can
// let go on need not die first: it stands until the candidate is known to run, and is the job again
// if that fails.
void HomeMoves::commit(HomeJob& job, const HomeTurn& turn) {
    State& s = state(job);
    s.held_at = turn.now;
    // it is held there, although its word of it may still be on the way
    if (!job.from_frozen) HomeClock::stop(job, turn.now);
    if (job.from_frozen || s.ready.source_stands) return source_is_off(job, turn);
    job.step = MoveStep::kill_old;
    s.deadline = turn.now + limits_.step_patience;
    turn.persist(job);
    turn.send(job.at, job.id, job.epoch, GuestVerb::commit);
}

void HomeMoves::source_is_off(HomeJob& job, const HomeTurn& turn) {
    State& s = state(job);
    job.step = MoveStep::release;
    job.cut = CutStep::none;
    s.released_at = std::min(s.released_at, turn.now);
    s.deadline = turn.now + limits_.step_patience;
    turn.persist(job);
    turn.send(job.to, job.id, job.to_epoch, GuestVerb::release);
}

HomeNext HomeMoves::arrived(HomeJob& job, bool says_more, const HomeTurn& turn) {
    const State& s = state(job);
    const Peer old = std::exchange(job.at, std::exchange(job.to, Peer{}));
    const Epoch old_epoch = std::exchange(job.epoch, job.to_epoch);
    job.leased = std::exchange(job.to_leased, false);
    job.cpu_here = {};
    job.step = MoveStep::none;
    job.phase = JobPhase::running;
    std::string text = "moved from " + old.node + " to " + job.at.node;
    Nanos pause{-1};
    if (job.from_frozen) {
        ++job.stats.thaws;
        text = "goes on at " + job.at.node;
    } else {
        ++job.stats.migrations;
        if (s.frozen_since != Nanos::never()) {
            pause = std::min(s.running_at, turn.now) - s.frozen_since;
            job.stats.longest_pause = std::max(job.stats.longest_pause, pause);
            job.stats.last_move = {s.forecast, pause,
                                   turn.now - s.frozen_since + s.forecast.precopy_time};
            const int64_t tenths = (pause.ns + 50'000) / 100'000;
            text += ", pause " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
                    " ms";
        }
    }
    StoryStep moved = arrival(job, old.node, pause, turn);
    text += move_parts(moved);
    job.story.add(std::move(moved));
    job.comment.clear();
    HomeRecords::add_place(job);
    job.stay_run = job.stats.run_time;
    // it stays what there is to go back to
    const bool keep = HomeCheckpoints::is_whole(job, old.node, old_epoch);
    if (!keep) HomeRecords::add_orphan(job, old, old_epoch);
    HomeClock::start(job, turn);
    turn.persist(job);
    if (!keep) turn.send(old, job.id, old_epoch, GuestVerb::drop);
    turn.tell(job, Tell::What::moved, std::move(text));
    return Arrived{says_more};
}

// The job is where it went. A pause below 0: when it stopped is not known.
StoryStep HomeMoves::arrival(const HomeJob& job, const NodeName& from, Nanos pause,
                             const HomeTurn& turn) {
    StoryStep step =
        turn.step(job.from_frozen ? StoryStep::What::thawed : StoryStep::What::moved, job.at.node);
    step.from = from;
    if (job.from_frozen || pause.ns < 0) return step;
    const State& s = state(job);
    const auto since = [&](Nanos at) {
        return at == Nanos::never() ? Nanos{-1} : std::max(Nanos{}, at - s.frozen_since);
    };
    step.form = s.forecast.form;
    step.precopy_bytes = s.forecast.precopy_bytes;
    step.bytes = s.forecast.frozen_bytes;
    step.pause = pause;
    step.sent = since(s.sent_at);
    step.held = since(s.held_at);
    step.released = since(s.released_at);
    step.total = turn.now - s.frozen_since + s.forecast.precopy_time;
    return step;
}

// After the decision and before the candidate was let run: it is gone, or the source was not held.
// The source is the job again, as it stands: running, held (told to go on), or, if it has died
// already, its image. Whether it stands in memory or in its image is for it to say (HomeRuns).
HomeNext HomeMoves::roll_back(HomeJob& job, const Trouble& why, bool source_dead,
                              const HomeTurn& turn) {
    const Peer peer = std::exchange(job.to, Peer{});
    HomeRecords::add_orphan(job, peer, job.to_epoch);
    job.step = MoveStep::none;
    ++job.stats.failed_moves;
    turn.fail_order(job, peer.node, why);
    job.phase = source_dead ? JobPhase::frozen : JobPhase::running;
    turn.persist(job);
    turn.send(peer, job.id, job.to_epoch, GuestVerb::kill);
    // an image takes no notice; what is retained runs again
    turn.send_resume(job, why);
    return Steady{};
}

// The candidate was let run, and nobody knows whether it did.
HomeNext HomeMoves::unheard(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    (void)roll_back(job, why, source_died(job), turn);
    return MayHaveRun{};
}

HomeNext HomeMoves::candidate_lost(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    if (is_undecided(job)) return abort(job, job.to.node, why, turn);
    if (job.step == MoveStep::release) return unheard(job, why, turn);
    return roll_back(job, why, source_died(job), turn);
}

Nanos HomeMoves::due(const HomeJob& job) const {
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? Nanos::never() : it->second.deadline;
}

HomeNext HomeMoves::overdue(HomeJob& job, const HomeTurn& turn) {
    State& s = state(job);
    s.deadline = turn.now + limits_.step_patience;
    switch (job.step) {
        case MoveStep::prepare:
            return abort(job, s.ready.destination ? job.at.node : job.to.node,
                         because(CauseCode::not_ready_in_time), turn);
        case MoveStep::transfer:
            if (job.cut == CutStep::held)
                return abort(job, job.to.node,
                             because(CauseCode::components_late,
                                     {{"seconds", seconds(limits_.step_patience)}}),
                             turn);
            return abort(job, job.to.node, because(CauseCode::transfer_too_slow), turn);
        case MoveStep::kill_old: turn.send(job.at, job.id, job.epoch, GuestVerb::commit); break;
        case MoveStep::release: turn.send(job.to, job.id, job.to_epoch, GuestVerb::query); break;
        case MoveStep::none: s.deadline = Nanos::never(); break;
    }
    return Nothing{};
}

HomeMoves::Ready HomeMoves::ready(const HomeJob& job) const {
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? Ready{} : it->second.ready;
}

}  // namespace souk
