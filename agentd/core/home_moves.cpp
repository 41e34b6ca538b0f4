// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_moves.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/home_checkpoints.hpp"
#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_gangs.hpp"
#include "agentd/core/home_records.hpp"
#include "kernel/base/check.hpp"
#include "kernel/base/wait_status.hpp"

namespace souk {

using namespace home;

namespace {

std::string seconds(Nanos span) { return std::to_string(span.ns / 1'000'000'000); }

// The image of the frozen job cannot be thawed, as its node itself says, and there is a checkpoint
// besides. Without a checkpoint the job stays frozen, because its image may be mended.
bool can_go_back(const HomeJob& job, const GuestEvent& e) {
    return e.image_refused && job.from_frozen && job.checkpoint.epoch.n > 0 &&
           !HomeCheckpoints::is_whole(job, job.at.node, job.epoch);
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// steps of a move

void HomeMoves::begin(HomeJob& job, const Order& order, const HomeTurn& turn) {
    HomeClock::fold(job, turn.now);
    job.from_frozen = job.phase == JobPhase::frozen && !std::exchange(job.in_place, false);
    job.phase = job.from_frozen ? JobPhase::thawing : JobPhase::moving;
    job.to = {order.node, order.address};
    job.to_speed = order.speed > 0 ? order.speed : job.speed;
    job.ticket = order.ticket;
    job.to_epoch = job.last_epoch = job.last_epoch.next();
    job.to_leased = false;
    job.step = MoveStep::prepare;
    State& s = state(job);
    const MoveForecast last = s.forecast;
    s = {};
    s.forecast = last;
    s.source_ticket = order.source_ticket;
    s.why = order.reason;
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
    const std::string& own = state(job).source_ticket;
    if (!here && job.at.node != turn.node) c.ticket = own.empty() ? job.ticket : own;
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

// Decides: that is durable in this step, before any node hears of it. A source that only this home
// can let go on need not die first: it stands until the candidate is known to run, and is the job
// again if that fails.
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
    job.speed = job.to_speed;
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

// The job is where it was sent. A pause below 0: the moment when it stopped is not known.
StoryStep HomeMoves::arrival(const HomeJob& job, const NodeName& from, Nanos pause,
                             const HomeTurn& turn) {
    StoryStep step =
        turn.step(job.from_frozen ? StoryStep::What::thawed : StoryStep::What::moved, job.at.node);
    step.from = from;
    step.why = state(job).why;
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

// The move is decided, and the candidate is gone before it was let run, or the source was not held.
// The source is the job again, as it stands: running, held (told to go on), or, if it has died
// already, its image. Its node says whether it stands in memory or in its image (HomeRuns).
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

// The candidate was let run, and it is not known whether it did.
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

// -------------------------------------------------------------------------------------------------
// events of its two ends

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

// The source is being dumped, or all of it has been sent.
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
