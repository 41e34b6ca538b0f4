// SPDX-License-Identifier: GPL-2.0-or-later
// Home: one component is lost, and its whole gang goes back to its checkpoint, or begins anew
// (docs/gangs.md). The one that is lost goes back at once. In the same write the others are to go
// back (`going_back`): each is ended, and goes back when it is gone for certain. Nobody of the gang
// runs again before all have gone back: they thaw as one.
#include <algorithm>
#include <utility>

#include "agentd/core/home.hpp"

namespace souk {

using namespace home;

namespace {

// As when it was submitted: it does not begin before all are ready.
void hold_again(HomeJob& job) {
    job.spec.hold = true;
    job.group.tries = 0;
}

}  // namespace

Cause Home::all_go_back() {
    return {CauseCode::goes_back, "another component of the job is lost, and all go back"};
}

// A checkpoint is of all that are required and had not ended. Without one they begin anew, if their
// user has said so and none of them has ended.
bool Home::may_go_back(const HomeJob& job) const {
    if (job.going_back) return true;
    const bool alone = !HomeGangs::is_component(job) || HomeGangs::is_optional(job);
    if (alone) return job.checkpoint.epoch.n > 0 || job.spec.restart;
    bool saved = true, all = true;
    for (const uint64_t seq : gangs_.all_of(job)) {
        const HomeJob* const one = find({node_, seq});
        if (one && HomeGangs::is_optional(*one)) continue;
        if (!one || one->phase == JobPhase::finished)
            all = false;
        else
            saved = saved && one->checkpoint.epoch.n > 0;
    }
    return saved || (all && job.spec.restart);
}

void Home::others_go_back(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_component(job) || HomeGangs::is_optional(job)) return;
    const bool anew = job.checkpoint.epoch.n == 0;
    if (anew) drop_set(job, turn);
    std::vector<uint64_t> told;
    for (const uint64_t seq : gangs_.others_of(job)) {
        HomeJob* const one = records_.find({node_, seq});
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
        const Reindex indexed(*this, seq);
        HomeJob& one = records_.at(seq);
        if (!one.going_back) continue;  // its end came with another's
        if (cuts_.member(one))          // and comes back here
            give_up_cut(one, nullptr, all_go_back(), turn);
        else if (HomeMoves::is_undecided(one))
            conclude(one, moves_.abort(one, {}, all_go_back(), turn), turn);
        else
            (void)goes_on_back(one, turn);
    }
}

// It is older than what the others may have heard of it, and than what it has acknowledged.
void Home::back_with_others(HomeJob& job, const HomeTurn& turn) {
    const bool has_set = HomeGangs::is_component(job) && !HomeGangs::is_optional(job) &&
                         job.checkpoint.epoch.n > 0 && !job.cancelled;
    if (!has_set || !may_go_back(job)) return;
    job.going_back = true;
    turn.persist(job);
    others_go_back(job, turn);
}

// Of one that is to go back. False: it has nothing to go back from. What is under way ends first,
// and that end comes back here.
bool Home::goes_on_back(HomeJob& job, const HomeTurn& turn) {
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

// What ran of it is gone, for certain.
void Home::is_back(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    job.going_back = false;
    doubts_.forget(job.id.seq);
    HomeClock::stop(job, turn.now);
    checkpoints_.end_saving(job, turn);
    evacuations_.end(job, turn);
    HomeMoves::drop_candidate(job, turn);
    cuts_.leave(job);
    cuts_.goes_on_no_more(job.id.seq);
    if (job.checkpoint.epoch.n == 0 && HomeGangs::is_component(job)) hold_again(job);
    HomeCheckpoints::go_back(job, why, turn);
    runs_.went_back(job);
    expels_.leaves(job);
    checkpoints_.disarm(job);
    others_go_back(job, turn);
    steady(job, turn);
    // Who is held has waited for this one, too.
    for (const uint64_t seq : gangs_.others_of(job)) {
        HomeJob* const one = records_.find({node_, seq});
        if (one && one->cut == CutStep::held) return thaw_if_all_held(*one, turn);
        if (one && gangs_.is_held(*one)) return release_if_all_held(*one, turn);
    }
}

// What still says that it runs, or stands, did not hear that it is to end.
bool Home::is_ended_again(const HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
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

// Of a component that runs and has failed by itself: whether that end counts is known later. It
// costs nothing meanwhile, and the market's orders wait.
bool Home::is_doubtful(HomeJob& job, const Finished& end, const HomeTurn& turn) {
    const bool steady_on = job.phase == JobPhase::running && job.step == MoveStep::none;
    if (doubts_.has(job)) {
        if (HomeClock::runs(job)) {  // its agentd, which is back, has said so until it knew better
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
    end_saving(job, turn);
    turn.report(job);
    return true;
}

// Its grace is over, or somebody has not answered for long. Who is not heard from is lost when his
// lease is over; where there is none, the end counts.
void Home::doubt_due(HomeJob& job, const HomeTurn& turn) {
    const bool again = doubts_.asked(job);
    std::vector<uint64_t> others;
    bool leased = false;
    for (const uint64_t seq : again ? doubts_.silent(job) : gangs_.others_of(job)) {
        const HomeJob* const one = find({node_, seq});
        if (!one || HomeGangs::is_optional(*one) || doubts_.has(*one)) continue;
        const bool runs = one->phase == JobPhase::running || one->phase == JobPhase::moving ||
                          one->phase == JobPhase::freezing;
        if (!runs) continue;
        others.push_back(seq);
        leased = leased || leases_.due(*one) != Nanos::never();
    }
    if (others.empty() || (again && !leased))
        return finish(job, doubts_.wait_status(job), {}, turn);
    for (const uint64_t seq : others) {
        const HomeJob& one = records_.at(seq);
        turn.send(one.at, one.id, one.epoch, GuestVerb::query);
    }
    doubts_.ask(job, std::move(others), turn.now + limits_.step_patience);
}

// What this one's node says of it came after the question, or a moment before: both after the
// grace.
void Home::doubts_heard(const HomeJob& other, const HomeTurn& turn) {
    for (const uint64_t seq : doubts_.heard(other.id.seq)) {
        HomeJob* const job = records_.find({node_, seq});
        if (!job || !doubts_.has(*job)) continue;
        const Reindex indexed(*this, seq);
        finish(*job, doubts_.wait_status(*job), {}, turn);
    }
}

}  // namespace souk
