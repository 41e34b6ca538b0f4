// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_steps.hpp"

#include <algorithm>
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

HomeSteps::HomeSteps(HomeMachines& machines, const HomeLimits& limits)
    : m_(machines),
      start_(m_.records, m_.gangs, *this, limits.step_patience),
      sets_({limits.step_patience, limits.transfer_patience}, m_.records, m_.gangs, m_.checkpoints,
            m_.evacuations, doubts_, *this),
      cuts_({limits.step_patience, limits.transfer_patience}, m_.records, m_.gangs, doubts_, sets_,
            {m_.runs, m_.moves, m_.orders, m_.expels, m_.leases, m_.checkpoints, m_.wakes}, *this),
      returns_(limits.step_patience, m_.records, m_.gangs, doubts_, sets_, cuts_, start_,
               {m_.runs, m_.moves, m_.expels, m_.leases, m_.checkpoints, m_.evacuations}, *this) {}

// -------------------------------------------------------------------------------------------------
// orders

void HomeSteps::carry_out(HomeJob& job, const Order& order, const HomeTurn& turn) {
    switch (m_.orders.came(job, order, turn)) {
        case HomeOrders::Deed::nothing: return;
        case HomeOrders::Deed::report: return turn.report(job);
        case HomeOrders::Deed::take: return take(job, order, turn);
        case HomeOrders::Deed::cancel: return cancel_all(job, turn);
        case HomeOrders::Deed::give_up: return conclude(job, m_.runs.give_up(job, turn), turn);
    }
}

// The market that gave the order is of a version that cannot place the job as it must lie.
Trouble HomeSteps::why_not_run(const HomeJob& job, const Order& order) {
    if (order.kind != Order::Kind::run) return {};
    const char* text = nullptr;
    if (HomeGangs::has_layout(job) && !order.layouts)
        text = "the market is of a version that places components on any nodes alone";
    else if (job.group.near && !order.near)
        text = "the market is of a version that knows no nodes near each other";
    if (text) return because(CauseCode::components_not_held, {{"text", text}});
    if (!job.terms.needs->empty() && order.speed == 0)
        return because(CauseCode::not_carried_out,
                       {{"text", "the market is of a version that knows no --needs"}});
    if (!(*job.terms.booking == Booking{}) && !order.books)
        return because(CauseCode::not_carried_out,
                       {{"text", "the market is of a version that sells no places ahead"}});
    if (!job.terms.resources.empty() && !order.resources.empty() &&
        order.resources != *job.terms.resources)
        return because(CauseCode::overtaken, {{"text", "what it asks for has changed meanwhile"}});
    if (!job.terms.resources.empty() && order.resources.empty())
        return because(CauseCode::not_carried_out,
                       {{"text", "the market is of a version that knows no --resource"}});
    return {};
}

void HomeSteps::take(HomeJob& job, const Order& order, const HomeTurn& turn) {
    if (doubts_.has(job)) return turn.report(job);
    if (const Trouble why = why_not_run(job, order); !why.empty())
        return turn.fail_order(job, order.node, why);
    // The order is older than the pause before its next try.
    if (!m_.delays.waits(job).empty())
        return turn.fail_order(job, order.node,
                               Cause(CauseCode::overtaken, "it waits for " + m_.delays.waits(job)));
    const bool by_order = m_.runs.stands_by_order(job) && !HomeGangs::is_component(job);
    switch (HomeOrders::how(job, order, m_.leases.is_silent(order.node), by_order)) {
        case HomeOrders::How::as_it_is: return turn.report(job);
        case HomeOrders::How::start:
            if (HomeGangs::is_unreleased(job) && !order.hold) break;
            m_.claims.starts(job, turn.now);
            m_.runs.start(job, order, turn);
            return start_.started(job, turn.now);
        case HomeOrders::How::go_on:
            if (HomeGangs::is_component(job) && !HomeGangs::is_optional(job))
                return cuts_.go_on_with_others(job, turn);
            m_.expels.forget_wish(job);
            m_.runs.go_on_in_place(job, turn);
            return steady(job, turn);
        case HomeOrders::How::move:
            sets_.end_saving(job, turn);
            m_.expels.leaves(job);
            cuts_.goes_on_no_more(job.id.seq);
            return m_.moves.begin(job, order, turn);
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
            return start_.take_others_back(job, turn);
    }
    turn.fail_order(job, order.node,
                    because(CauseCode::components_not_held,
                            {{"text", "the market is of a version that starts single jobs only"}}));
}

void HomeSteps::freeze(HomeJob& job, const HomeTurn& turn, bool stands) {
    if (doubts_.has(job)) return;  // the job does not run
    sets_.end_saving(job, turn);
    m_.expels.leaves(job);
    if (!cuts_.begin(job, turn)) m_.runs.freeze(job, stands && !HomeGangs::is_component(job), turn);
}

void HomeSteps::cancel(HomeJob& job, const HomeTurn& turn) {
    job.cancelled = true;
    m_.evacuations.end(job, turn);
    turn.persist(job);
    cuts_.goes_on_no_more(job.id.seq);
    if (cuts_.has(job))  // the end of the job follows from that
        cuts_.give_up(job, nullptr, why_cancelled(job), turn);
    else if (HomeMoves::is_undecided(job))
        conclude(job, m_.moves.abort(job, {}, why_cancelled(job), turn), turn);
    else
        end_by_cancel(job, turn);
}

// Ends the job as if its user had cancelled it, and all of its gang, but for that reason.
void HomeSteps::end_for(HomeJob& job, const Cause& why, const HomeTurn& turn) {
    job.ended_for = job.comment = why;
    for (const uint64_t seq : m_.gangs.others_of(job))
        if (HomeJob* const other = m_.records.find(seq); other && !other->cancelled)
            other->ended_for = why;
    turn.tell(job, Tell::What::comment, why);
    start_.cancel_all(job, turn);
    turn.report(job);
}

// Lets a job begin anew that has failed. What is left of its last try goes; its checkpoint would
// only fail again.
void HomeSteps::run_again(HomeJob& job, int32_t wait_status, const Trouble& end,
                          const HomeTurn& turn) {
    if (!HomeCheckpoints::is_whole(job, job.at.node, job.epoch)) HomeCheckpoints::drop(job, turn);
    job.checkpoint = {};
    job.lacking.clear();
    const Cause why = HomeDelays::why(job, wait_status, end);
    m_.delays.try_again(job, turn.now);
    returns_.is_back(job, why, turn);
}

// A job in a steady phase ends once it has had its time. The end of a step under way comes back
// here through steady().
void HomeSteps::end_by_cancel(HomeJob& job, const HomeTurn& turn) {
    if (job.phase == JobPhase::starting && job.spec.hold)
        HomeRuns::take_back(job, why_cancelled(job), turn);
    if (job.phase == JobPhase::waiting) return finish(job, 9, why_cancelled(job), turn);
    if (job.step != MoveStep::none) return;
    if (m_.ends.has_time(job, m_.runs.paused(job).empty(), turn)) return;
    turn.send(job.at, job.id, job.epoch, GuestVerb::kill);
}

// -------------------------------------------------------------------------------------------------
// guests

void HomeSteps::hear(const NodeName& node, const GuestEvent& told, const HomeTurn& turn) {
    m_.leases.heard(node);
    if (m_.records.is_aside(told.id)) return;
    HomeJob* job = m_.records.find(told.id);
    if (!job || job->phase == JobPhase::finished) return m_.records.stale_copy(node, told, turn);
    const GuestEvent event = m_.claims.checked(*job, node, told, turn);
    const bool moves_there =
        job->step != MoveStep::none && node == job->to.node && event.epoch == job->to_epoch;
    if (!moves_there && (node != job->at.node || event.epoch != job->epoch))
        return hear_copy(*job, node, event, turn);
    m_.runs.note(*job, event);
    if (event.no_user) m_.runs.refuses_user(*job, node, event.why, turn.now);
    m_.leases.note(*job, node, event, turn);
    if (!moves_there) return hear_owner(*job, event, turn);
    const HomeNext next = m_.moves.candidate(*job, event, turn);
    conclude(*job, next, turn);
    // The next operation on the job may be under way by now.
    if (const auto* there = std::get_if<Arrived>(&next); there && there->says_more)
        hear(NodeName(job->at.node), event, turn);
}

// The copy is neither the owner nor the candidate: it is kept for the job, or left over.
void HomeSteps::hear_copy(HomeJob& job, const NodeName& node, const GuestEvent& event,
                          const HomeTurn& turn) {
    if (HomeEvacuations::is_coming(job, node, event.epoch))
        return m_.evacuations.from_keeper(job, event, turn);
    if (!HomeCheckpoints::is_kept(job, node, event.epoch))
        return m_.records.stale_copy(node, event, turn);
    if (HomeGangs::is_component(job)) return sets_.hear_keeper(job, event, turn);
    m_.checkpoints.from_keeper(job, event, turn);
}

void HomeSteps::hear_owner(HomeJob& job, const GuestEvent& event, const HomeTurn& turn) {
    m_.leases.end_stretch(job, turn.now);
    m_.clock.prove(job, event, turn.now);
    HomeClock::tally_use(job, event);
    m_.evacuations.heard(job, event, turn);
    if (cuts_.has(job)) {
        cuts_.hear(job, event, turn);
        return returns_.heard(job, turn);
    }
    const bool moves = job.phase == JobPhase::moving || job.phase == JobPhase::thawing;
    if (!moves && returns_.is_ended_again(job, event, turn)) return;
    const uint64_t gang = sets_.has(job) ? job.group.gang : 0;
    if (gang != 0 && sets_.hear(job, event, turn)) return sets_.go_on(gang, turn);
    conclude(job,
             moves ? m_.moves.source(job, event, turn) : m_.runs.hears(job, event, turn, beside()),
             turn);
    if (gang != 0) sets_.go_on(gang, turn);
    returns_.heard(job, turn);
}

void HomeSteps::undelivered(HomeJob& job, const NodeName& node, const GuestCommand& command,
                            const HomeTurn& turn) {
    const Cause why = because(CauseCode::node_unreachable, {{"node", node}, {"home", turn.node}});
    const bool from_owner = command.epoch == job.epoch && node == job.at.node;
    if (command.verb == GuestVerb::start && from_owner && job.phase == JobPhase::starting)
        return conclude(job, m_.runs.start_undelivered(job, why, turn), turn);
    const bool of_move = command.verb == GuestVerb::prepare ||
                         command.verb == GuestVerb::prepare_dump ||
                         command.verb == GuestVerb::ship || command.verb == GuestVerb::restore_here;
    const bool current = from_owner || (command.epoch == job.to_epoch && node == job.to.node);
    if (of_move && current && HomeMoves::is_undecided(job))
        return conclude(job, m_.moves.abort(job, node, why, turn), turn);
    if (command.verb == GuestVerb::checkpoint && from_owner &&
        HomeEvacuations::is_coming(job, command.dest, command.new_epoch))
        return m_.evacuations.failed(job, why, turn);
    const bool of_cut = command.cut == Cut::freeze && from_owner;
    if (of_cut && cuts_.has(job)) return cuts_.not_frozen(job, why, turn);
    if (command.verb == GuestVerb::freeze && from_owner && job.phase == JobPhase::freezing &&
        job.cut == CutStep::none)
        conclude(job, m_.runs.freeze_undelivered(job, why, turn), turn);
}

void HomeSteps::node_lost(HomeJob& job, const NodeName& node, const Trouble& why,
                          const HomeTurn& turn) {
    if (job.step != MoveStep::none && job.to.node == node)
        conclude(job, m_.moves.candidate_lost(job, why, turn), turn);
    if (job.at.node == node) node_gone(job, why, turn);
}

// -------------------------------------------------------------------------------------------------
// what a machine's step means

void HomeSteps::conclude(HomeJob& job, const HomeNext& next, const HomeTurn& turn) {
    std::visit(Cases{
                   [](const Nothing&) {},
                   [&](const Steady&) { steady(job, turn); },
                   [&](const MayHaveRun&) {
                       returns_.back_with_others(job, turn);
                       steady(job, turn);
                   },
                   [&](const Arrived&) {
                       m_.runs.arrived(job);
                       steady(job, turn);
                   },
                   [&](const Cancelled&) { end_by_cancel(job, turn); },
                   [&](const Frozen& f) { became_frozen(job, f.image_bytes, turn); },
                   [&](const Standing& s) { became_standing(job, s.cannot_move, turn); },
                   [&](const Finished& f) { ended(job, f, turn); },
                   [&](const Killed& k) { killed(job, k.why, turn); },
                   [&](const Gone& g) { go_back(job, g.why, turn); },
                   [&](const Held&) { start_.release_if_all_held(job, turn); },
                   [&](const Restored&) { cuts_.thaw_if_all_held(job, turn); },
               },
               next);
}

void HomeSteps::steady(HomeJob& job, const HomeTurn& turn) {
    m_.runs.step_ended(job);
    m_.moves.step_ended(job);
    start_.step_ended(job);
    job.ticket.clear();  // durable with the next record
    // That comes before the job's own order: the others may have one that wakes them, and each sees
    // which ones wake.
    if (job.phase == JobPhase::frozen && !job.cancelled) cuts_.take_thaw_back(job, turn);
    std::optional<Order> pending;
    if (!HomeOrders::files_come_first(job) && !job.going_back)
        pending = m_.orders.take_pending(job);
    if (pending && m_.wakes.keeps(job, *pending, turn.now)) {
        HomeOrders::not_taken(job, *pending);
        pending.reset();
    }
    turn.report(job);
    if (job.phase == JobPhase::finished) return;
    if (job.cancelled) return end_by_cancel(job, turn);
    go_on_steady(job, std::move(pending), turn);
}

void HomeSteps::go_on_steady(HomeJob& job, std::optional<Order> pending, const HomeTurn& turn) {
    if (job.going_back && returns_.go_on(job, turn)) return;
    if (job.phase == JobPhase::waiting) start_.take_others_back(job, turn);
    if (job.phase == JobPhase::finished) return;
    const bool joined = cuts_.join(job, turn);
    if (HomeGangs::is_component(job)) cuts_.go_on(job.group.gang, turn);
    if (joined) return;
    if (job.phase == JobPhase::running) {
        m_.signals.send(job, turn);
        m_.expels.arm(job, turn.now);
        m_.checkpoints.arm(job, turn.now);
    }
    if (job.phase == JobPhase::frozen)
        m_.evacuations.arm(job, turn.now);
    else if (m_.evacuations.end(job, turn))
        turn.persist(job);
    if (pending) take(job, *pending, turn);
}

void HomeSteps::became_frozen(HomeJob& job, int64_t image_bytes, const HomeTurn& turn) {
    cuts_.leave(job);
    m_.runs.froze(job, image_bytes, cuts_.take_timing(job.id.seq), turn);
    m_.budget.tell_why(job, turn);
    steady(job, turn);
}

void HomeSteps::became_standing(HomeJob& job, const Trouble& cannot_move, const HomeTurn& turn) {
    sets_.end_saving(job, turn);
    m_.expels.leaves(job);
    cuts_.leave(job);
    m_.runs.stands(job, cannot_move, turn);
    m_.budget.tell_why(job, turn);
    steady(job, turn);
}

void HomeSteps::ended(HomeJob& job, const Finished& end, const HomeTurn& turn) {
    if (job.going_back && !job.cancelled)  // that end is later than the checkpoint
        returns_.is_back(job, GangReturn::all_go_back(), turn);
    else if (HomeDelays::takes(job, end.wait_status, false))
        run_again(job, end.wait_status, end.why, turn);
    else if (!returns_.is_doubtful(job, end, turn))
        finish(job, end.wait_status, end.why, turn);
}

void HomeSteps::finish(HomeJob& job, int32_t wait_status, const Trouble& why,
                       const HomeTurn& turn) {
    HomeClock::stop(job, turn.now);
    HomeMoves::drop_candidate(job, turn);
    cuts_.leave(job);
    cuts_.goes_on_no_more(job.id.seq);
    m_.checkpoints.end_saving(job, turn);
    m_.evacuations.end(job, turn);
    job.going_back = false;
    doubts_.forget(job.id.seq);
    if (!HomeCheckpoints::is_whole(job, job.at.node, job.epoch)) HomeCheckpoints::drop(job, turn);
    job.checkpoint = {};
    const Trouble others = job.cancelled ? m_.gangs.why_ended(job, m_.records.all()) : Trouble();
    const bool obeyed = job.cancelled && why.empty();  // it ended by itself, when it was asked to
    const bool well = !others.empty() && m_.gangs.ends_with_success(job, m_.records.all());
    if (const Cause last = HomeDelays::over(job, wait_status, why); !last.empty()) {
        job.comment = last;
        turn.tell(job, Tell::What::comment, last);
    }
    HomeRuns::finish(job, well ? 0 : wait_status,
                     !others.empty() ? others
                     : obeyed        ? Trouble(why_cancelled(job))
                                     : why,
                     turn);
    steady(job, turn);
    free_others(job, turn);
    start_.end_others(job, turn);
    if (!HomeGangs::is_component(job)) return;
    cuts_.go_on(job.group.gang, turn);
    sets_.go_on(job.group.gang, turn);
    // The job does not run again with the others.
    if (!HomeGangs::is_optional(job)) sets_.drop(job, turn);
}

void HomeSteps::free_others(const HomeJob& ended, const HomeTurn& turn) {
    ended_.push_back(ended.id.seq);
    if (std::exchange(freeing_, true)) return;
    while (!ended_.empty()) {
        const uint64_t seq = ended_.back();
        ended_.pop_back();
        const HomeJob& gone = m_.records.at(seq);
        for (const uint64_t freed : m_.groups.ended(gone)) {
            HomeJob* const job = m_.records.find(freed);
            if (job && job->phase == JobPhase::waiting) free_one(*job, gone, turn);
        }
    }
    freeing_ = false;
}

void HomeSteps::free_one(HomeJob& job, const HomeJob& gone, const HomeTurn& turn) {
    const Reindexed indexed(*this, job.id.seq);
    const HomeGroups::Wait wait = m_.groups.settle(job, gone);
    if (wait == HomeGroups::Wait::never)
        return finish(job, 1 << 8, because(CauseCode::job_before_failed, {{"job", gone.id.text()}}),
                      turn);
    if (wait == HomeGroups::Wait::changed) turn.persist(job);
    turn.report(job);
}

void HomeSteps::killed(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    if (const Cause& refused = m_.runs.refused(job); !refused.empty())
        return finish(job, 1 << 8, refused, turn);
    const Cause killed = because(CauseCode::killed, {{"node", job.at.node}, {"text", why}});
    go_back(job, {killed, why.detail}, turn);
}

void HomeSteps::go_back(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    // The job was its checkpoint, so that is lost.
    if (HomeCheckpoints::is_whole(job, job.at.node, job.epoch)) job.checkpoint = {};
    if (job.cancelled) return finish(job, 9, why_cancelled(job), turn);
    if (job.phase == JobPhase::starting && job.spec.hold) {  // no byte of it has run
        HomeRuns::take_back(job, why, turn);
        return steady(job, turn);
    }
    if (!returns_.may_go_back(job)) {
        if (HomeDelays::takes(job, 9, true)) return run_again(job, 9, why, turn);
        const bool had_none = m_.checkpoints.every(job).ns > 0;
        return finish(job, 9, why.within("", had_none ? ", and it had no checkpoint" : ""), turn);
    }
    returns_.is_back(job, why, turn);
}

void HomeSteps::lease_over(HomeJob& job, const HomeTurn& turn) {
    const Trouble why = m_.leases.over(job, returns_.may_go_back(job), turn);
    if (why.empty()) return;
    if (job.step == MoveStep::release)
        conclude(job, m_.moves.candidate_lost(job, why, turn), turn);
    else
        node_gone(job, why, turn);
}

void HomeSteps::node_gone(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    if (job.step == MoveStep::kill_old)
        m_.moves.source_is_off(job, turn);
    else if (job.step != MoveStep::release && job.phase != JobPhase::waiting)
        go_back(job, why, turn);
}

// -------------------------------------------------------------------------------------------------
// time

Nanos HomeSteps::due_of(const HomeJob& job) const {
    if (job.phase == JobPhase::finished) return Nanos::never();
    return std::min(
        {m_.due(job), start_.due(job), cuts_.due(job), sets_.due(job), doubts_.due(job)});
}

void HomeSteps::reindex(uint64_t seq) {
    const HomeJob* const job = m_.records.find(seq);
    m_.records.look_at(seq, job ? due_of(*job) : Nanos::never());
    if (job)
        m_.wakes.look_at(*job);
    else
        m_.wakes.forget(seq);
}

void HomeSteps::restarted(HomeJob& job, const HomeTurn& turn) {
    GangFreeze::restarted(job, turn);
    sets_.restarted(job, turn);
    if (job.cancelled && job.phase == JobPhase::waiting)
        end_by_cancel(job, turn);
    else
        conclude(job, m_.moves.restarted(job, turn), turn);
    if (job.phase == JobPhase::finished) return;
    m_.runs.restarted(job, turn.now);
    m_.delays.came(job, turn);
    m_.checkpoints.restarted(job, turn.now);
    m_.evacuations.restarted(job, turn);
    if (job.splice.due) turn.out.push_back(GoneBack{job.id});
    start_.restarted(job, turn);
    if (job.going_back && !job.cancelled && job.phase != JobPhase::finished)
        (void)returns_.go_on(job, turn);
}

void HomeSteps::tick(HomeJob& job, const HomeTurn& turn) {
    if (m_.expels.ripe(job, turn.now)) freeze(job, turn);
    if (m_.moves.due(job) <= turn.now) {
        if (cuts_.thaw_waits(job))
            m_.moves.goes_on(job, turn.now);
        else
            conclude(job, m_.moves.overdue(job, turn), turn);
    }
    if (m_.runs.due(job) <= turn.now) m_.runs.overdue(job, turn);
    if (std::min(m_.checkpoints.due(job), sets_.due(job)) <= turn.now)
        HomeGangs::is_component(job) ? sets_.tick(job, turn) : m_.checkpoints.tick(job, turn);
    if (m_.budget.due(job) <= turn.now && m_.budget.ends(job, turn)) freeze(job, turn);
    if (m_.leases.due(job) <= turn.now) lease_over(job, turn);
    if (start_.due(job) <= turn.now) start_.overdue(job, turn);
    if (cuts_.due(job) <= turn.now) cuts_.overdue(job, turn);
    if (doubts_.due(job) <= turn.now) returns_.doubt_due(job, turn);
    if (m_.evacuations.due(job) <= turn.now) m_.evacuations.tick(job, turn);
    if (m_.ends.due(job) <= turn.now) end_by_cancel(job, turn);
    const HomeTimeLimits::Due due = m_.time_limits.look(job, turn);
    if (due.warns && m_.signals.add(job, job.terms.limits->signal)) m_.signals.send(job, turn);
    if (!due.ends.empty()) end_for(job, due.ends, turn);
    m_.delays.look(job, turn);
}

void HomeSteps::forget(uint64_t seq) {
    m_.forget(seq);
    start_.forget(seq);
    cuts_.forget(seq);
    doubts_.forget(seq);
}

}  // namespace souk
