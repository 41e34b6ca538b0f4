// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/gang_return.hpp"

#include <utility>
#include <vector>

#include "agentd/core/home_clock.hpp"

namespace souk {

using namespace home;

namespace {

// The component is as when it was submitted: it does not begin before all are ready.
void hold_again(HomeJob& job) {
    job.spec.hold = true;
    job.group.tries = 0;
}

}  // namespace

Cause GangReturn::all_go_back() {
    return {CauseCode::goes_back, "another component of the job is lost, and all go back"};
}

// A checkpoint has all components that are required and had not ended. Without one they begin anew,
// if their user has said so and none of them has ended.
bool GangReturn::may_go_back(const HomeJob& job) const {
    if (job.going_back) return true;
    const bool alone = !HomeGangs::is_component(job) || HomeGangs::is_optional(job);
    if (alone) return job.checkpoint.epoch.n > 0 || job.spec.restart;
    bool saved = true, all = true;
    for (const uint64_t seq : gangs_.all_of(job)) {
        const HomeJob* const one = std::as_const(records_).find(seq);
        if (one && HomeGangs::is_optional(*one)) continue;
        if (!one || one->phase == JobPhase::finished)
            all = false;
        else
            saved = saved && one->checkpoint.epoch.n > 0;
    }
    return saved || (all && job.spec.restart);
}

void GangReturn::others_go_back(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_component(job) || HomeGangs::is_optional(job)) return;
    const bool anew = job.checkpoint.epoch.n == 0;
    if (anew) sets_.drop(job, turn);
    std::vector<uint64_t> told;
    for (const uint64_t seq : gangs_.others_of(job)) {
        HomeJob* const one = records_.find(seq);
        if (!one || one->phase == JobPhase::finished || one->cancelled || one->going_back) continue;
        if (one->phase == JobPhase::waiting) {
            if (!anew) continue;
            hold_again(*one);
        } else {
            one->going_back = true;
            doubts_.forget(seq);
            told.push_back(seq);
        }
        turn.persist(*one);
    }
    for (const uint64_t seq : told) {
        const Reindexed indexed(steps_, seq);
        HomeJob& one = records_.at(seq);
        if (one.going_back) begin_going_back(one, turn);  // else its end came with another's
    }
}

// An operation on the job that is not decided is given up, and that comes back to go_on().
void GangReturn::begin_going_back(HomeJob& job, const HomeTurn& turn) {
    if (cuts_.has(job))
        cuts_.give_up(job, nullptr, all_go_back(), turn);
    else if (HomeMoves::is_undecided(job))
        steps_.conclude(job, with_.moves.abort(job, {}, all_go_back(), turn), turn);
    else
        (void)go_on(job, turn);
}

void GangReturn::back_with_others(HomeJob& job, const HomeTurn& turn) {
    const bool has_set = HomeGangs::is_component(job) && !HomeGangs::is_optional(job) &&
                         job.checkpoint.epoch.n > 0 && !job.cancelled;
    if (!has_set || !may_go_back(job)) return;
    job.going_back = true;
    turn.persist(job);
    others_go_back(job, turn);
}

bool GangReturn::go_on(HomeJob& job, const HomeTurn& turn) {
    const bool is_it = job.phase == JobPhase::frozen && !job.in_place &&
                       HomeCheckpoints::is_whole(job, job.at.node, job.epoch);
    if (job.phase == JobPhase::starting && job.spec.hold)  // no byte of it has run
        HomeRuns::take_back(job, all_go_back(), turn);
    if (is_it || job.phase == JobPhase::waiting) {
        job.going_back = false;
        if (!is_it) hold_again(job);
        turn.persist(job);
        return false;
    }
    if (job.step != MoveStep::none || job.phase == JobPhase::freezing) return true;
    if (job.phase == JobPhase::frozen && !job.in_place)
        is_back(job, all_go_back(), turn);
    else
        turn.send(job.at, job.id, job.epoch, GuestVerb::kill);
    return true;
}

void GangReturn::is_back(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    job.going_back = false;
    doubts_.forget(job.id.seq);
    HomeClock::stop(job, turn.now);
    with_.checkpoints.end_saving(job, turn);
    with_.evacuations.end(job, turn);
    HomeMoves::drop_candidate(job, turn);
    cuts_.leave(job);
    cuts_.goes_on_no_more(job.id.seq);
    if (job.checkpoint.epoch.n == 0 && HomeGangs::is_component(job)) hold_again(job);
    HomeCheckpoints::go_back(job, why, turn);
    with_.runs.went_back(job);
    with_.expels.leaves(job);
    with_.checkpoints.disarm(job);
    others_go_back(job, turn);
    steps_.steady(job, turn);
    // The components that are held have waited for this one, too.
    for (const uint64_t seq : gangs_.others_of(job)) {
        HomeJob* const one = records_.find(seq);
        if (one && one->cut == CutStep::held) return cuts_.thaw_if_all_held(*one, turn);
        if (one && start_.is_held(*one)) return start_.release_if_all_held(*one, turn);
    }
}

bool GangReturn::is_ended_again(const HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    if (!job.going_back || job.phase == JobPhase::freezing) return false;
    switch (e.state) {
        case GuestState::running:
        case GuestState::dump_ready:
        case GuestState::dumping:
        case GuestState::shipped:
        case GuestState::retained:
        case GuestState::filling:
            turn.send(job.at, job.id, job.epoch, GuestVerb::kill);
            return true;
        default: return false;
    }
}

// -------------------------------------------------------------------------------------------------
// doubtful ends

// The component costs nothing meanwhile, and the market's orders wait.
bool GangReturn::is_doubtful(HomeJob& job, const Finished& end, const HomeTurn& turn) {
    const bool steady_on = job.phase == JobPhase::running && job.step == MoveStep::none;
    if (doubts_.has(job)) {
        if (HomeClock::runs(job)) {  // its agentd came back and said so before it knew better
            HomeClock::stop(job, turn.now);
            turn.persist(job, Durable::later);
            turn.report(job);
        }
        return steady_on && !job.cancelled;
    }
    if (!HomeGangs::is_component(job) || HomeGangs::is_optional(job) || !steady_on ||
        job.cancelled || end.wait_status == 0 || !end.why.empty() || !may_go_back(job))
        return false;
    doubts_.begin(job, end.wait_status, turn.now);
    HomeClock::stop(job, turn.now);
    turn.persist(job, Durable::later);  // its node says it again
    sets_.end_saving(job, turn);
    turn.report(job);
    return true;
}

// The grace is over, or a component has not answered for long. A component that is not heard from
// is lost when its lease is over. Without a lease the end counts.
void GangReturn::doubt_due(HomeJob& job, const HomeTurn& turn) {
    const bool again = doubts_.asked(job);
    std::vector<uint64_t> others;
    bool leased = false;
    for (const uint64_t seq : again ? doubts_.silent(job) : gangs_.others_of(job)) {
        const HomeJob* const one = records_.find(seq);
        if (!one || HomeGangs::is_optional(*one) || doubts_.has(*one)) continue;
        const bool runs = one->phase == JobPhase::running || one->phase == JobPhase::moving ||
                          one->phase == JobPhase::freezing;
        if (!runs) continue;
        others.push_back(seq);
        leased = leased || with_.leases.due(*one) != Nanos::never();
    }
    if (others.empty() || (again && !leased))
        return steps_.finish(job, doubts_.wait_status(job), {}, turn);
    for (const uint64_t seq : others) {
        const HomeJob& one = records_.at(seq);
        turn.send(one.at, one.id, one.epoch, GuestVerb::query);
    }
    doubts_.ask(job, std::move(others), turn.now + patience_);
}

// The node's word came after the question, or a moment before it: both are after the grace.
void GangReturn::heard(const HomeJob& other, const HomeTurn& turn) {
    for (const uint64_t seq : doubts_.heard(other.id.seq)) {
        HomeJob* const job = records_.find(seq);
        if (!job || !doubts_.has(*job)) continue;
        const Reindexed indexed(steps_, seq);
        steps_.finish(*job, doubts_.wait_status(*job), {}, turn);
    }
}

}  // namespace souk
