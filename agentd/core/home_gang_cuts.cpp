// SPDX-License-Identifier: GPL-2.0-or-later
// Home: a gang is frozen at one cut, and thaws as one. See home_cuts.hpp.
#include <algorithm>
#include <utility>

#include "agentd/core/home.hpp"

namespace souk {

using namespace home;

namespace {

GuestCommand cut_command(const HomeJob& job, const HomeCuts::Member& m, GuestVerb verb) {
    GuestCommand c;
    c.id = job.id;
    c.epoch = job.epoch;
    c.verb = verb;
    c.cut = Cut::freeze;
    c.new_epoch = m.number;
    c.or_stand = verb == GuestVerb::freeze;
    return c;
}

bool is_steady(const HomeJob& job) {
    return job.phase == JobPhase::frozen || job.phase == JobPhase::finished ||
           job.phase == JobPhase::waiting;
}

// A cut does not wait for it: it has not begun, stands, or is an image that thaws. That thaw is not
// decided before its whole gang is held or runs, so its image is what is frozen with the others.
bool needs_no_cut(const HomeJob& job) {
    return is_steady(job) || (job.phase == JobPhase::thawing && HomeMoves::is_undecided(job));
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// freeze

// False: there is nobody to freeze it with.
bool Home::begin_cut(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_component(job) || HomeGangs::is_optional(job)) return false;
    const auto others = gangs_.others_of(job);
    const bool alone = std::all_of(others.begin(), others.end(), [&](uint64_t seq) {
        const HomeJob* const one = find({node_, seq});
        return !one || is_steady(*one) || doubts_.has(*one) || HomeGangs::is_optional(*one);
    });
    if (alone) return false;
    if (cuts_.of_gang(job.group.gang)) return true;  // that is under way
    cuts_.begin(job.group.gang, turn.now + limits_.step_patience);
    // An optional one that does not run is not waited for.
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find({node_, seq});
        if (!one || is_steady(*one) || doubts_.has(*one)) continue;
        const Reindex indexed(*this, seq);
        // Its move is given up: it joins when it is where it was.
        if (HomeMoves::is_undecided(*one) && !HomeGangs::is_optional(*one))
            conclude(
                *one,
                moves_.abort(*one, {},
                             Cause(CauseCode::overtaken, "its whole gang is to be frozen"), turn),
                turn);
        else
            join_cut(*one, turn);
    }
    return true;
}

// True: it runs, and is one of its gang's cut from now on.
bool Home::join_cut(HomeJob& job, const HomeTurn& turn) {
    HomeCuts::Cut* const cut = cuts_.of_gang(job.group.gang);
    if (!cut || !HomeGangs::is_component(job) || job.phase != JobPhase::running || job.cancelled ||
        doubts_.has(job))
        return false;
    if (HomeGangs::is_optional(job) && cut->told) return false;
    end_saving(job, turn);
    expels_.leaves(job);
    HomeClock::fold(job, turn.now);
    job.phase = JobPhase::freezing;
    job.cut = CutStep::asked;
    job.last_epoch = job.last_epoch.next();
    HomeCuts::Member& m = cut->members[job.id.seq];
    m = {};
    m.number = job.last_epoch;
    turn.persist(job);
    turn.report(job);
    turn.send(job.at, cut_command(job, m, GuestVerb::prepare_dump));
    return true;
}

// What a node says of a component of a cut that is not decided.
void Home::hear_in_cut(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    HomeCuts::Member& m = *cuts_.member(job);
    const bool told = cuts_.of_gang(job.group.gang)->told;
    switch (e.state) {
        case GuestState::dump_ready:
            HomeClock::runs_on(job, e, turn);
            m.ready = true;
            if (told) turn.send(job.at, cut_command(job, m, GuestVerb::freeze));
            break;
        case GuestState::running:
            HomeClock::runs_on(job, e, turn);
            if (!e.why.empty() && told) return not_frozen(job, e.why, turn);
            m.ready = m.ready || !e.why.empty();
            // It may have stood before, and does not now.
            m.dumped = m.in_place = false;
            m.stood_at = Nanos::never();
            if (e.why.empty())  // it never arrived
                turn.send(job.at,
                          cut_command(job, m, told ? GuestVerb::freeze : GuestVerb::prepare_dump));
            break;
        case GuestState::dumping:
            if (!e.why.empty() && !e.in_place) return not_frozen(job, e.why, turn);
            HomeClock::stop(job, turn.now);
            if (e.all_stand || e.in_place) m.stood_at = std::min(m.stood_at, turn.now);
            if (e.in_place) {
                m.dumped = m.in_place = told;
                m.cannot_move = e.cannot_move;
            } else {
                turn.report(job);  // from here on it is not paid for, however long the dump takes
            }
            break;
        case GuestState::shipped:
            if (e.held_for != m.number) return;  // of an earlier one
            HomeClock::stop(job, turn.now);
            m.dumped = true;
            break;
        case GuestState::exited:
        case GuestState::killed:
        case GuestState::unknown:
        case GuestState::failed:
        case GuestState::frozen:  // by itself: its lease was over, or its node is older
            conclude(job, runs_.hears(job, e, turn, {checkpoints_, leases_, expels_}), turn);
            return;
        default: return;
    }
    go_on_with_cut(job.group.gang, turn);
}

// The next step, when all that it waits for is there.
void Home::go_on_with_cut(uint64_t gang, const HomeTurn& turn) {
    HomeCuts::Cut* const cut = cuts_.of_gang(gang);
    const HomeJob* const first = find({node_, gang});
    if (!cut || !first) return;
    for (const uint64_t seq : gangs_.all_of(*first)) {
        const HomeJob* const one = find({node_, seq});
        if (one && !HomeGangs::is_optional(*one) && !needs_no_cut(*one) && !doubts_.has(*one) &&
            !cut->members.contains(seq))
            return;  // on its way somewhere: it joins when it is there
    }
    const auto all = [&](bool HomeCuts::Member::*done) {
        return std::all_of(cut->members.begin(), cut->members.end(),
                           [&](const auto& m) { return m.second.*done; });
    };
    if (!cut->told && all(&HomeCuts::Member::ready)) {
        cut->told = true;
        cut->due = turn.now + limits_.transfer_patience;
        for (const auto& [seq, m] : cut->members) {
            const Reindex indexed(*this, seq);
            const HomeJob& one = records_.at(seq);
            turn.send(one.at, cut_command(one, m, GuestVerb::freeze));
        }
    }
    if (cut->told && all(&HomeCuts::Member::dumped)) decide_cut(gang, turn);
}

// All records of one step are written at once, before the first word of it leaves: so either all
// are frozen as they stand, or none is. What stands in place may have an order that waits, and
// takes it: that comes last.
void Home::decide_cut(uint64_t gang, const HomeTurn& turn) {
    const HomeCuts::Cut cut = cuts_.take(gang);
    const HomeCuts::Made made = HomeCuts::made_of(cut.members);
    for (const auto& [seq, m] : cut.members) {
        cuts_.decided(seq, made);
        if (m.in_place) continue;
        const Reindex indexed(*this, seq);
        HomeJob& one = records_.at(seq);
        one.cut = CutStep::decided;
        runs_.freezes(one, turn.now);
        turn.persist(one);
        turn.send(one.at, one.id, one.epoch, GuestVerb::commit);
    }
    for (const auto& [seq, m] : cut.members) {
        if (!m.in_place) continue;
        const Reindex indexed(*this, seq);
        became_standing(records_.at(seq), m.cannot_move, turn);
    }
}

// All go on where they were. `failed`: who could not be frozen; null: nobody failed.
void Home::give_up_cut(const HomeJob& of, const HomeJob* failed, const Trouble& why,
                       const HomeTurn& turn) {
    const HomeCuts::Cut cut = cuts_.take(of.group.gang);
    const uint32_t number = (failed ? *failed : of).group.component;
    const Trouble told =
        Cause(CauseCode::dump_failed, "component " + std::to_string(number) +
                                          " could not be frozen, and so none is: " + why);
    for (const auto& [seq, m] : cut.members) {
        HomeJob& one = records_.at(seq);
        one.phase = JobPhase::running;
        one.cut = CutStep::none;
        if (&one == failed) ++one.stats.failed_moves;
        expels_.freeze_failed(one);
        turn.fail_order(one, one.at.node, &one == failed ? why : told);
        (void)orders_.take_pending(one);  // the market is to decide anew
        turn.persist(one);
        turn.send(one.at, one.id, one.epoch, GuestVerb::resume);
    }
    for (const auto& [seq, m] : cut.members) {
        const Reindex indexed(*this, seq);
        HomeJob& one = records_.at(seq);
        if (one.phase == JobPhase::running) steady(one, turn);
    }
}

// Without an optional one the others are frozen all the same.
void Home::not_frozen(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    if (!HomeGangs::is_optional(job)) return give_up_cut(job, &job, why, turn);
    cuts_.leave(job);
    job.phase = JobPhase::running;
    job.cut = CutStep::none;
    ++job.stats.failed_moves;
    turn.fail_order(job, job.at.node, why);
    turn.persist(job);
    turn.send(job.at, job.id, job.epoch, GuestVerb::resume);
    steady(job, turn);
}

void Home::cut_overdue(HomeJob& job, const HomeTurn& turn) {
    if (cuts_.goes_on(job.id.seq)) return take_thaw_back(job, turn);
    const HomeCuts::Cut* const cut = cuts_.of_gang(job.group.gang);
    if (!cut) return;
    const HomeJob* late = nullptr;
    for (const auto& [seq, m] : cut->members)
        if (!late && !(cut->told ? m.dumped : m.ready)) late = &records_.at(seq);
    give_up_cut(job, late, because(CauseCode::not_ready_in_time), turn);
}

// -------------------------------------------------------------------------------------------------
// thaw

// It is restored, and held; or it stands where it is, and is to go on there.
void Home::thaw_if_all_held(HomeJob& job, const HomeTurn& turn) {
    for (const uint64_t seq : gangs_.all_of(job)) {
        const HomeJob* const one = find({node_, seq});
        if (one && one->going_back) return;
        if (!one || HomeGangs::is_optional(*one) || one->phase == JobPhase::finished) continue;
        const bool runs = one->phase == JobPhase::running || one->phase == JobPhase::moving;
        const bool comes = one->phase == JobPhase::thawing &&
                           (one->cut == CutStep::held || !HomeMoves::is_undecided(*one));
        if (!runs && !comes && !cuts_.goes_on(seq)) return;
    }
    // One whose lease is over would be taken back as soon as it is released, while the others run.
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find({node_, seq});
        if (!one || one->cut != CutStep::held) continue;
        HomeJob released = *one;
        released.step = MoveStep::release;
        if (leases_.due(released) > turn.now) continue;
        const Reindex indexed(*this, seq);
        const NodeName& to = one->to.node;
        const Cause why(CauseCode::node_not_heard, "node " + to + " is not heard from");
        return conclude(*one, moves_.abort(*one, to, why, turn), turn);
    }
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find({node_, seq});
        if (!one) continue;
        const Reindex indexed(*this, seq);
        if (cuts_.goes_on_no_more(seq)) {
            expels_.forget_wish(*one);
            runs_.go_on_in_place(*one, turn);
            steady(*one, turn);
        } else if (one->cut == CutStep::held) {
            moves_.commit(*one, turn);
        }
    }
}

// This one is frozen: nobody is held for its sake.
void Home::take_thaw_back(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_component(job) || HomeGangs::is_optional(job)) return;
    const Trouble why = because(CauseCode::components_taken_back,
                                {{"component", std::to_string(job.group.component)}});
    if (job.comment.code == why.code && !cuts_.goes_on(job.id.seq))
        return;  // it was itself taken back
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find({node_, seq});
        if (!one || HomeGangs::is_optional(*one)) continue;
        const Reindex indexed(*this, seq);
        if (cuts_.goes_on_no_more(seq)) {
            turn.fail_order(*one, one->at.node, why);
            turn.persist(*one);
            turn.report(*one);
        } else if (one->phase == JobPhase::thawing && HomeMoves::is_undecided(*one)) {
            conclude(*one, moves_.abort(*one, one->to.node, why, turn), turn);
        }
    }
}

// It is held: others are still on their way, and each of them has a limit of its own.
bool Home::thaw_goes_on(const HomeJob& job) const {
    if (job.cut != CutStep::held) return false;
    const auto others = gangs_.others_of(job);
    return std::any_of(others.begin(), others.end(), [&](uint64_t seq) {
        const HomeJob* const one = find({node_, seq});
        return one && !HomeGangs::is_optional(*one) &&
               (wakes_.kept(seq) || (one->phase == JobPhase::thawing && one->cut != CutStep::held));
    });
}

// The daemon was started again. What was not decided is given up.
void Home::restarted_cut(HomeJob& job, const HomeTurn& turn) {
    if (job.cut != CutStep::asked && job.cut != CutStep::held) return;
    const bool asked = std::exchange(job.cut, CutStep::none) == CutStep::asked;
    if (!asked || job.phase != JobPhase::freezing) return;
    job.phase = JobPhase::running;
    job.comment = because(CauseCode::home_restarted);
    turn.persist(job);
    turn.send(job.at, job.id, job.epoch, GuestVerb::resume);
}

}  // namespace souk
