// SPDX-License-Identifier: GPL-2.0-or-later
// Home: what more than one of its machines has a part in: how an order is carried out, and what the
// step of one machine means for the job as a whole (HomeNext). See home.hpp.
#include "agentd/core/home.hpp"

#include <utility>

namespace souk {

using namespace home;

namespace {
template <class... F>
struct Cases : F... {
    using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;
}  // namespace

void Home::take(HomeJob& job, const Order& order, const HomeTurn& turn) {
    if (doubts_.has(job)) return turn.report(job);
    if (order.kind == Order::Kind::run && HomeGangs::has_layout(job) && !order.layouts)
        return turn.fail_order(
            job, order.node,
            because(CauseCode::components_not_held,
                    {{"text",
                      "the market is of a version that places components on any nodes alone"}}));
    if (order.kind == Order::Kind::run && job.group.near && !order.near)
        return turn.fail_order(
            job, order.node,
            because(CauseCode::components_not_held,
                    {{"text", "the market is of a version that knows no nodes near each other"}}));
    const bool by_order = runs_.stands_by_order(job) && !HomeGangs::is_component(job);
    switch (HomeOrders::how(job, order, leases_.is_silent(order.node), by_order)) {
        case HomeOrders::How::as_it_is: return turn.report(job);
        case HomeOrders::How::start:
            if (HomeGangs::is_unreleased(job) && !order.hold) break;
            claims_.starts(job, turn.now);
            runs_.start(job, order, turn);
            return gangs_.started(job, turn.now);
        case HomeOrders::How::go_on:
            if (HomeGangs::is_component(job) && !HomeGangs::is_optional(job)) {
                cuts_.goes_on_later(job.id.seq, turn.now + limits_.step_patience);
                return thaw_if_all_held(job, turn);
            }
            expels_.forget_wish(job);
            runs_.go_on_in_place(job, turn);
            return steady(job, turn);
        case HomeOrders::How::move:
            end_saving(job, turn);
            expels_.leaves(job);
            cuts_.goes_on_no_more(job.id.seq);
            return moves_.begin(job, order, turn);
        case HomeOrders::How::stays:
            turn.fail_order(job, order.node,
                            Cause(CauseCode::dump_failed,
                                  "it stands on " + job.at.node + ", and goes on there only"));
            return turn.report(job);
        case HomeOrders::How::freeze: return freeze(job, turn);
        case HomeOrders::How::stand: return freeze(job, turn, true);
        case HomeOrders::How::refuse:
            turn.fail_order(
                job, order.node,
                Cause(CauseCode::node_not_heard, "node " + order.node + " is not heard from"));
            return take_others_back(job, turn);
    }
    turn.fail_order(job, order.node,
                    because(CauseCode::components_not_held,
                            {{"text", "the market is of a version that starts single jobs only"}}));
}

void Home::freeze(HomeJob& job, const HomeTurn& turn, bool stands) {
    if (doubts_.has(job)) return;  // nothing of it runs
    end_saving(job, turn);
    expels_.leaves(job);
    if (!begin_cut(job, turn)) runs_.freeze(job, stands && !HomeGangs::is_component(job), turn);
}

void Home::cancel(HomeJob& job, const HomeTurn& turn) {
    job.cancelled = true;
    evacuations_.end(job, turn);
    turn.persist(job);
    cuts_.goes_on_no_more(job.id.seq);
    if (cuts_.member(job))  // and its end is what comes of that
        give_up_cut(job, nullptr, because(CauseCode::cancelled), turn);
    else if (HomeMoves::is_undecided(job))
        conclude(job, moves_.abort(job, {}, because(CauseCode::cancelled), turn), turn);
    else
        end_by_cancel(job, turn);
}

// In a steady phase: ends the job, once it has had its time. In a step: that step's end comes back
// here through steady().
void Home::end_by_cancel(HomeJob& job, const HomeTurn& turn) {
    if (job.phase == JobPhase::starting && job.spec.hold)
        HomeRuns::take_back(job, because(CauseCode::cancelled), turn);
    if (job.phase == JobPhase::waiting) return finish(job, 9, because(CauseCode::cancelled), turn);
    if (job.step != MoveStep::none) return;
    if (ends_.has_time(job, runs_.paused(job).empty(), turn)) return;
    turn.send(job.at, job.id, job.epoch, GuestVerb::kill);
}

void Home::conclude(HomeJob& job, const HomeNext& next, const HomeTurn& turn) {
    std::visit(Cases{
                   [](const Nothing&) {},
                   [&](const Steady&) { steady(job, turn); },
                   [&](const MayHaveRun&) {
                       back_with_others(job, turn);
                       steady(job, turn);
                   },
                   [&](const Arrived&) {
                       runs_.arrived(job);
                       steady(job, turn);
                   },
                   [&](const Cancelled&) { end_by_cancel(job, turn); },
                   [&](const Frozen& f) { became_frozen(job, f.image_bytes, turn); },
                   [&](const Standing& s) { became_standing(job, s.cannot_move, turn); },
                   [&](const Finished& f) {
                       if (job.going_back && !job.cancelled)  // it ended after what it goes back to
                           is_back(job, all_go_back(), turn);
                       else if (!is_doubtful(job, f, turn))
                           finish(job, f.wait_status, f.why, turn);
                   },
                   [&](const Killed& k) { killed(job, k.why, turn); },
                   [&](const Gone& g) { go_back(job, g.why, turn); },
                   [&](const Held&) { release_if_all_held(job, turn); },
                   [&](const Restored&) { thaw_if_all_held(job, turn); },
               },
               next);
}

// A step ended: the market hears how the job is, then comes what waited.
void Home::steady(HomeJob& job, const HomeTurn& turn) {
    runs_.step_ended(job);
    moves_.step_ended(job);
    gangs_.step_ended(job);
    job.ticket.clear();  // durable with what is written next
    // Before its own order: the others may have one that wakes them, and each sees who wakes.
    if (job.phase == JobPhase::frozen && !job.cancelled) take_thaw_back(job, turn);
    std::optional<Order> pending;
    if (!HomeOrders::files_come_first(job) && !job.going_back) pending = orders_.take_pending(job);
    if (pending && wakes_.keeps(job, *pending, turn.now)) {
        HomeOrders::not_taken(job, *pending);
        pending.reset();
    }
    turn.report(job);
    if (job.phase == JobPhase::finished) return;
    if (job.cancelled) return end_by_cancel(job, turn);
    if (job.going_back && goes_on_back(job, turn)) return;
    if (job.phase == JobPhase::waiting) take_others_back(job, turn);
    if (job.phase == JobPhase::finished) return;
    const bool joined = join_cut(job, turn);
    if (HomeGangs::is_component(job)) go_on_with_cut(job.group.gang, turn);
    if (joined) return;
    if (job.phase == JobPhase::running) {
        signals_.send(job, turn);
        expels_.arm(job, turn.now);
        checkpoints_.arm(job, turn.now);
    }
    if (job.phase == JobPhase::frozen)
        evacuations_.arm(job, turn.now);
    else if (evacuations_.end(job, turn))
        turn.persist(job);
    if (pending) take(job, *pending, turn);
}

void Home::became_frozen(HomeJob& job, int64_t image_bytes, const HomeTurn& turn) {
    cuts_.leave(job);
    runs_.froze(job, image_bytes, cuts_.take_made(job.id.seq), turn);
    budget_.tell_why(job, turn);
    steady(job, turn);
}

void Home::became_standing(HomeJob& job, const Trouble& cannot_move, const HomeTurn& turn) {
    end_saving(job, turn);
    expels_.leaves(job);
    cuts_.leave(job);
    runs_.stands(job, cannot_move, turn);
    budget_.tell_why(job, turn);
    steady(job, turn);
}

void Home::finish(HomeJob& job, int32_t wait_status, const Trouble& why, const HomeTurn& turn) {
    HomeClock::stop(job, turn.now);
    HomeMoves::drop_candidate(job, turn);
    cuts_.leave(job);
    cuts_.goes_on_no_more(job.id.seq);
    checkpoints_.end_saving(job, turn);
    evacuations_.end(job, turn);
    job.going_back = false;
    doubts_.forget(job.id.seq);
    if (!HomeCheckpoints::is_whole(job, job.at.node, job.epoch)) HomeCheckpoints::drop(job, turn);
    job.checkpoint = {};
    const Trouble others = job.cancelled ? gangs_.why_ended(job, records_.all()) : Trouble();
    const bool obeyed = job.cancelled && why.empty();  // it ended by itself, when it was asked to
    const bool well = !others.empty() && gangs_.ends_with_success(job, records_.all());
    HomeRuns::finish(job, well ? 0 : wait_status,
                     !others.empty() ? others
                     : obeyed        ? Trouble(because(CauseCode::cancelled))
                                     : why,
                     turn);
    steady(job, turn);
    free_others(job, turn);
    end_others(job, turn);
    if (!HomeGangs::is_component(job)) return;
    go_on_with_cut(job.group.gang, turn);
    go_on_with_set(job.group.gang, turn);
    if (!HomeGangs::is_optional(job)) drop_set(job, turn);  // it does not run again with the others
}

// Who waited for its end may begin, or is ended itself: also those that wait for that, one after
// the other.
void Home::free_others(const HomeJob& ended, const HomeTurn& turn) {
    ended_.push_back(ended.id.seq);
    if (std::exchange(freeing_, true)) return;
    while (!ended_.empty()) {
        const uint64_t seq = ended_.back();
        ended_.pop_back();
        const HomeJob& gone = records_.at(seq);
        const bool well = ended_well(gone);
        for (const uint64_t freed : groups_.ended(gone)) {
            HomeJob* job = records_.find({node_, freed});
            if (!job || job->phase != JobPhase::waiting) continue;
            const Reindex indexed(*this, freed);
            const bool waited = job->group.after == seq;
            if (waited) job->group.after = 0;
            if (waited && job->group.after_ok && !well) {
                finish(*job, 1 << 8,
                       because(CauseCode::job_before_failed, {{"job", gone.id.text()}}), turn);
                continue;
            }
            if (waited) turn.persist(*job);
            turn.report(*job);
        }
    }
    freeing_ = false;
}

void Home::killed(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    if (const Cause& refused = runs_.refused(job); !refused.empty())
        return finish(job, 1 << 8, refused, turn);
    const Cause killed = because(CauseCode::killed, {{"node", job.at.node}, {"text", why}});
    go_back(job, {killed, why.detail}, turn);
}

// What ran is gone, for certain. Its last checkpoint is the job; or it begins anew, if its user has
// said so.
void Home::go_back(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    // it is the checkpoint that is lost
    if (HomeCheckpoints::is_whole(job, job.at.node, job.epoch)) job.checkpoint = {};
    if (job.cancelled) return finish(job, 9, because(CauseCode::cancelled), turn);
    if (job.phase == JobPhase::starting && job.spec.hold) {  // nothing of it has run
        HomeRuns::take_back(job, why, turn);
        return steady(job, turn);
    }
    if (!may_go_back(job)) {
        const bool had_none = checkpoints_.every(job).ns > 0;
        return finish(job, 9, why.within("", had_none ? ", and it had no checkpoint" : ""), turn);
    }
    is_back(job, why, turn);
}

void Home::lease_over(HomeJob& job, const HomeTurn& turn) {
    const Trouble why = leases_.over(job, may_go_back(job), turn);
    if (why.empty()) return;
    if (job.step == MoveStep::release)
        conclude(job, moves_.candidate_lost(job, why, turn), turn);
    else
        node_gone(job, why, turn);
}

// Its owner's node, for certain.
void Home::node_gone(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    if (job.step == MoveStep::kill_old)
        moves_.source_is_off(job, turn);
    else if (job.step != MoveStep::release && job.phase != JobPhase::waiting)
        go_back(job, why, turn);
}

// The market has closed its account: it is a record and no more.
void Home::forget(uint64_t seq) {
    orders_.forget(seq);
    runs_.forget(seq);
    moves_.forget(seq);
    checkpoints_.forget(seq);
    evacuations_.forget(seq);
    clock_.forget(seq);
    claims_.forget(seq);
    budget_.forget(seq);
    leases_.forget(seq);
    expels_.forget(seq);
    wakes_.forget(seq);
    signals_.forget(seq);
    ends_.forget(seq);
    gangs_.forget(seq);
    cuts_.forget(seq);
    doubts_.forget(seq);
}

}  // namespace souk
