// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/gang_freeze.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/home_clock.hpp"

namespace souk {

namespace {

bool is_steady(const HomeJob& job) {
    return job.phase == JobPhase::frozen || job.phase == JobPhase::finished ||
           job.phase == JobPhase::waiting;
}

// A cut does not wait for a component that has not begun, stands, or is an image that thaws. That
// thaw is not decided before its whole gang is held or runs, so its image is frozen with the
// others.
bool needs_no_cut(const HomeJob& job) {
    return is_steady(job) || (job.phase == JobPhase::thawing && HomeMoves::is_undecided(job));
}

}  // namespace

bool GangFreeze::Cut::all(bool Member::*done) const {
    return std::all_of(members.begin(), members.end(),
                       [&](const auto& m) { return m.second.*done; });
}

GuestCommand GangFreeze::command(const HomeJob& job, const Member& m, GuestVerb verb) {
    GuestCommand c;
    c.id = job.id;
    c.epoch = job.epoch;
    c.verb = verb;
    c.cut = souk::Cut::freeze;
    c.new_epoch = m.number;
    c.or_stand = verb == GuestVerb::freeze;
    return c;
}

GangFreeze::Cut* GangFreeze::of_gang(uint64_t gang) {
    const auto it = cuts_.find(gang);
    return it == cuts_.end() ? nullptr : &it->second;
}

GangFreeze::Member* GangFreeze::member(const HomeJob& job) {
    if (job.cut != CutStep::asked) return nullptr;
    Cut* const cut = of_gang(job.group.gang);
    if (!cut) return nullptr;
    const auto it = cut->members.find(job.id.seq);
    return it == cut->members.end() ? nullptr : &it->second;
}

void GangFreeze::leave(const HomeJob& job) {
    if (Cut* const cut = of_gang(job.group.gang)) cut->members.erase(job.id.seq);
}

GangFreeze::Cut GangFreeze::take(uint64_t gang) {
    auto entry = cuts_.extract(gang);
    return entry ? std::move(entry.mapped()) : Cut{};
}

CutTiming GangFreeze::take_timing(uint64_t seq) {
    auto entry = timing_.extract(seq);
    return entry ? entry.mapped() : CutTiming{};
}

Nanos GangFreeze::due(const HomeJob& job) const {
    const auto waits = go_on_.find(job.id.seq);
    const Nanos goes_on = waits == go_on_.end() ? Nanos::never() : waits->second;
    if (job.cut != CutStep::asked) return goes_on;
    const auto it = cuts_.find(job.group.gang);
    return it == cuts_.end() ? goes_on : std::min(goes_on, it->second.due);
}

void GangFreeze::forget(uint64_t seq) {
    timing_.erase(seq);
    go_on_.erase(seq);
}

// -------------------------------------------------------------------------------------------------
// freeze

bool GangFreeze::begin(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_component(job) || HomeGangs::is_optional(job)) return false;
    const auto others = gangs_.others_of(job);
    const bool alone = std::all_of(others.begin(), others.end(), [&](uint64_t seq) {
        const HomeJob* const one = records_.find(seq);
        return !one || is_steady(*one) || doubts_.has(*one) || HomeGangs::is_optional(*one);
    });
    if (alone) return false;
    if (of_gang(job.group.gang)) return true;  // its cut is under way
    cuts_.insert_or_assign(job.group.gang, Cut{{}, false, turn.now + limits_.step_patience});
    // An optional component that does not run is not waited for.
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find(seq);
        if (!one || is_steady(*one) || doubts_.has(*one)) continue;
        const Reindexed indexed(steps_, seq);
        // The move of a component is given up. It joins when it is back where it was.
        if (HomeMoves::is_undecided(*one) && !HomeGangs::is_optional(*one))
            steps_.conclude(
                *one,
                with_.moves.abort(
                    *one, {}, Cause(CauseCode::overtaken, "its whole gang is to be frozen"), turn),
                turn);
        else
            join(*one, turn);
    }
    return true;
}

bool GangFreeze::join(HomeJob& job, const HomeTurn& turn) {
    Cut* const cut = of_gang(job.group.gang);
    if (!cut || !HomeGangs::is_component(job) || job.phase != JobPhase::running || job.cancelled ||
        doubts_.has(job))
        return false;
    if (HomeGangs::is_optional(job) && cut->told) return false;
    sets_.end_saving(job, turn);
    with_.expels.leaves(job);
    HomeClock::fold(job, turn.now);
    job.phase = JobPhase::freezing;
    job.cut = CutStep::asked;
    job.last_epoch = job.last_epoch.next();
    Member& m = cut->members[job.id.seq];
    m = {};
    m.number = job.last_epoch;
    turn.persist(job);
    turn.report(job);
    turn.send(job.at, command(job, m, GuestVerb::prepare_dump));
    return true;
}

void GangFreeze::hear(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    Member& m = *member(job);
    switch (e.state) {
        case GuestState::dump_ready:
            HomeClock::runs_on(job, e, turn);
            m.ready = true;
            if (of_gang(job.group.gang)->told)
                turn.send(job.at, command(job, m, GuestVerb::freeze));
            return go_on(job.group.gang, turn);
        case GuestState::running: return hear_running(job, m, e, turn);
        case GuestState::dumping: return hear_dumping(job, m, e, turn);
        case GuestState::shipped:
            if (e.held_for != m.number) return;  // it belongs to an earlier cut
            HomeClock::stop(job, turn.now);
            m.dumped = true;
            return go_on(job.group.gang, turn);
        case GuestState::exited:
        case GuestState::killed:
        case GuestState::unknown:
        case GuestState::failed:
        case GuestState::frozen:  // by itself: its lease was over, or its node is older
            return steps_.conclude(
                job,
                with_.runs.hears(job, e, turn, {with_.checkpoints, with_.leases, with_.expels}),
                turn);
        default: return;
    }
}

void GangFreeze::hear_running(HomeJob& job, Member& m, const GuestEvent& e, const HomeTurn& turn) {
    const bool told = of_gang(job.group.gang)->told;
    HomeClock::runs_on(job, e, turn);
    if (!e.why.empty() && told) return not_frozen(job, e.why, turn);
    m.ready = m.ready || !e.why.empty();
    // The component may have stood before, and does not now.
    m.dumped = m.in_place = false;
    m.stood_at = Nanos::never();
    if (e.why.empty())  // the command was lost
        turn.send(job.at, command(job, m, told ? GuestVerb::freeze : GuestVerb::prepare_dump));
    go_on(job.group.gang, turn);
}

void GangFreeze::hear_dumping(HomeJob& job, Member& m, const GuestEvent& e, const HomeTurn& turn) {
    if (!e.why.empty() && !e.in_place) return not_frozen(job, e.why, turn);
    HomeClock::stop(job, turn.now);
    if (e.all_stand || e.in_place) m.stood_at = std::min(m.stood_at, turn.now);
    if (e.in_place) {
        m.dumped = m.in_place = of_gang(job.group.gang)->told;
        m.cannot_move = e.cannot_move;
    } else {
        turn.report(job);  // from here on it is not paid for, however long the dump takes
    }
    go_on(job.group.gang, turn);
}

// A component is on its way somewhere. It joins when it is there.
bool GangFreeze::misses_a_component(const Cut& cut, const HomeJob& first) const {
    const auto all = gangs_.all_of(first);
    return std::any_of(all.begin(), all.end(), [&](uint64_t seq) {
        const HomeJob* const one = std::as_const(records_).find(seq);
        return one && !HomeGangs::is_optional(*one) && !needs_no_cut(*one) && !doubts_.has(*one) &&
               !cut.members.contains(seq);
    });
}

void GangFreeze::go_on(uint64_t gang, const HomeTurn& turn) {
    Cut* const cut = of_gang(gang);
    const HomeJob* const first = records_.find(gang);
    if (!cut || !first || misses_a_component(*cut, *first)) return;
    if (!cut->told && cut->all(&Member::ready)) tell_to_dump(*cut, turn);
    if (cut->told && cut->all(&Member::dumped)) decide(gang, turn);
}

void GangFreeze::tell_to_dump(Cut& cut, const HomeTurn& turn) {
    cut.told = true;
    cut.due = turn.now + limits_.transfer_patience;
    for (const auto& [seq, m] : cut.members) {
        const Reindexed indexed(steps_, seq);
        const HomeJob& one = records_.at(seq);
        turn.send(one.at, command(one, m, GuestVerb::freeze));
    }
}

// All records of one step are written at once, before the first message of it leaves: so either all
// are frozen as they stand, or none is. A component that stands in place may have an order that
// waits, and takes it, so it comes last.
void GangFreeze::decide(uint64_t gang, const HomeTurn& turn) {
    const Cut cut = take(gang);
    const CutTiming timing = CutTiming::of(cut.members);
    for (const auto& [seq, m] : cut.members) {
        timing_[seq] = timing;
        if (m.in_place) continue;
        const Reindexed indexed(steps_, seq);
        HomeJob& one = records_.at(seq);
        one.cut = CutStep::decided;
        with_.runs.freezes(one, turn.now);
        turn.persist(one);
        turn.send(one.at, one.id, one.epoch, GuestVerb::commit);
    }
    for (const auto& [seq, m] : cut.members) {
        if (!m.in_place) continue;
        const Reindexed indexed(steps_, seq);
        steps_.became_standing(records_.at(seq), m.cannot_move, turn);
    }
}

void GangFreeze::give_up(const HomeJob& job, const HomeJob* failed, const Trouble& why,
                         const HomeTurn& turn) {
    const Cut cut = take(job.group.gang);
    const uint32_t number = (failed ? *failed : job).group.component;
    const Trouble told =
        Cause(CauseCode::dump_failed, "component " + std::to_string(number) +
                                          " could not be frozen, and so none is: " + why);
    for (const auto& [seq, m] : cut.members) {
        HomeJob& one = records_.at(seq);
        one.phase = JobPhase::running;
        one.cut = CutStep::none;
        if (&one == failed) ++one.stats.failed_moves;
        with_.expels.freeze_failed(one);
        turn.fail_order(one, one.at.node, &one == failed ? why : told);
        (void)with_.orders.take_pending(one);  // the market is to decide anew
        turn.persist(one);
        turn.send(one.at, one.id, one.epoch, GuestVerb::resume);
    }
    for (const auto& [seq, m] : cut.members) {
        const Reindexed indexed(steps_, seq);
        HomeJob& one = records_.at(seq);
        if (one.phase == JobPhase::running) steps_.steady(one, turn);
    }
}

void GangFreeze::not_frozen(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    if (!HomeGangs::is_optional(job)) return give_up(job, &job, why, turn);
    leave(job);
    job.phase = JobPhase::running;
    job.cut = CutStep::none;
    ++job.stats.failed_moves;
    turn.fail_order(job, job.at.node, why);
    turn.persist(job);
    turn.send(job.at, job.id, job.epoch, GuestVerb::resume);
    steps_.steady(job, turn);
}

void GangFreeze::overdue(HomeJob& job, const HomeTurn& turn) {
    if (go_on_.contains(job.id.seq)) return take_thaw_back(job, turn);
    const Cut* const cut = of_gang(job.group.gang);
    if (!cut) return;
    const HomeJob* late = nullptr;
    for (const auto& [seq, m] : cut->members)
        if (!late && !(cut->told ? m.dumped : m.ready)) late = &records_.at(seq);
    give_up(job, late, because(CauseCode::not_ready_in_time), turn);
}

// -------------------------------------------------------------------------------------------------
// thaw

void GangFreeze::go_on_with_others(HomeJob& job, const HomeTurn& turn) {
    go_on_[job.id.seq] = turn.now + limits_.step_patience;
    thaw_if_all_held(job, turn);
}

bool GangFreeze::all_are_held(const HomeJob& job) const {
    const auto all = gangs_.all_of(job);
    return std::all_of(all.begin(), all.end(), [&](uint64_t seq) {
        const HomeJob* const one = std::as_const(records_).find(seq);
        if (one && one->going_back) return false;
        if (!one || HomeGangs::is_optional(*one) || one->phase == JobPhase::finished) return true;
        const bool runs = one->phase == JobPhase::running || one->phase == JobPhase::moving;
        const bool comes = one->phase == JobPhase::thawing &&
                           (one->cut == CutStep::held || !HomeMoves::is_undecided(*one));
        return runs || comes || go_on_.contains(seq);
    });
}

// The lease of this held component is over: it would be taken back as soon as it is released, while
// the others run.
HomeJob* GangFreeze::held_without_lease(const HomeJob& job, const HomeTurn& turn) {
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find(seq);
        if (!one || one->cut != CutStep::held) continue;
        HomeJob released = *one;
        released.step = MoveStep::release;
        if (with_.leases.due(released) <= turn.now) return one;
    }
    return nullptr;
}

void GangFreeze::thaw_if_all_held(HomeJob& job, const HomeTurn& turn) {
    if (!all_are_held(job)) return;
    if (HomeJob* const one = held_without_lease(job, turn)) {
        const Reindexed indexed(steps_, one->id.seq);
        const NodeName& to = one->to.node;
        const Cause why(CauseCode::node_not_heard, "node " + to + " is not heard from");
        return steps_.conclude(*one, with_.moves.abort(*one, to, why, turn), turn);
    }
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find(seq);
        if (!one) continue;
        const Reindexed indexed(steps_, seq);
        if (goes_on_no_more(seq)) {
            with_.expels.forget_wish(*one);
            with_.runs.go_on_in_place(*one, turn);
            steps_.steady(*one, turn);
        } else if (one->cut == CutStep::held) {
            with_.moves.commit(*one, turn);
        }
    }
}

void GangFreeze::take_thaw_back(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_component(job) || HomeGangs::is_optional(job)) return;
    const Trouble why = because(CauseCode::components_taken_back,
                                {{"component", std::to_string(job.group.component)}});
    if (job.comment.code == why.code && !go_on_.contains(job.id.seq))
        return;  // it was itself taken back
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find(seq);
        if (!one || HomeGangs::is_optional(*one)) continue;
        const Reindexed indexed(steps_, seq);
        if (goes_on_no_more(seq)) {
            turn.fail_order(*one, one->at.node, why);
            turn.persist(*one);
            turn.report(*one);
        } else if (one->phase == JobPhase::thawing && HomeMoves::is_undecided(*one)) {
            steps_.conclude(*one, with_.moves.abort(*one, one->to.node, why, turn), turn);
        }
    }
}

bool GangFreeze::thaw_waits(const HomeJob& job) const {
    if (job.cut != CutStep::held) return false;
    const auto others = gangs_.others_of(job);
    return std::any_of(others.begin(), others.end(), [&](uint64_t seq) {
        const HomeJob* const one = std::as_const(records_).find(seq);
        return one && !HomeGangs::is_optional(*one) &&
               (with_.wakes.kept(seq) ||
                (one->phase == JobPhase::thawing && one->cut != CutStep::held));
    });
}

void GangFreeze::restarted(HomeJob& job, const HomeTurn& turn) {
    if (job.cut != CutStep::asked && job.cut != CutStep::held) return;
    const bool asked = std::exchange(job.cut, CutStep::none) == CutStep::asked;
    if (!asked || job.phase != JobPhase::freezing) return;
    job.phase = JobPhase::running;
    job.comment = because(CauseCode::home_restarted);
    turn.persist(job);
    turn.send(job.at, job.id, job.epoch, GuestVerb::resume);
}

}  // namespace souk
