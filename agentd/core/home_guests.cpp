// SPDX-License-Identifier: GPL-2.0-or-later
// Home: what guests say, and what time says. See home.hpp.
#include <algorithm>
#include <utility>

#include "agentd/core/home.hpp"

namespace souk {

using namespace home;

void Home::guest_up(const NodeName& node, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::guest_up, {}, {}, node); });
    const Step step(*this, now, out);
    for (const uint64_t seq : records_.of_guest(node)) ask(records_.at(seq), node, step.turn);
}

// What that node has of the job is told again, or carried on.
void Home::ask(const HomeJob& job, const NodeName& node, const HomeTurn& turn) const {
    if (job.phase != JobPhase::finished && job.at.node == node) {
        GuestVerb verb = GuestVerb::query;
        if (job.phase == JobPhase::freezing && job.cut == CutStep::none) verb = GuestVerb::freeze;
        if (job.cut == CutStep::decided) verb = GuestVerb::commit;
        if (job.step == MoveStep::prepare && !job.from_frozen) verb = GuestVerb::prepare_dump;
        if (job.step == MoveStep::kill_old) verb = GuestVerb::commit;
        if (verb == GuestVerb::freeze)
            runs_.send_freeze(job, turn);
        else
            turn.send(job.at, job.id, job.epoch, verb);
    }
    const auto query = [&](const Peer& peer, Epoch epoch) {
        if (peer.node == node) turn.send(peer, job.id, epoch, GuestVerb::query);
    };
    if (job.step != MoveStep::none) query(job.to, job.to_epoch);
    if (job.saving.epoch.n > 0) query(job.saving.peer, job.saving.epoch);
    if (job.evacuation.epoch.n > 0) query(job.evacuation.peer, job.evacuation.epoch);
    query(job.checkpoint.at, job.checkpoint.epoch);
    for (const Orphan& r : job.orphans) query(r.peer, r.epoch);
}

void Home::undelivered(const NodeName& node, const GuestCommand& command, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] {
        return trace_in(Input::undelivered, command.id, command.epoch, node,
                        to_string(command.verb));
    });
    HomeJob* job = records_.find(command.id);
    if (!job) return;
    const Reindex indexed(*this, job->id.seq);
    const Step step(*this, now, out);
    const HomeTurn& turn = step.turn;
    const Cause why = because(CauseCode::node_unreachable, {{"node", node}, {"home", node_}});
    const bool from_owner = command.epoch == job->epoch && node == job->at.node;
    if (command.verb == GuestVerb::start && from_owner && job->phase == JobPhase::starting)
        return conclude(*job, runs_.start_undelivered(*job, why, turn), turn);
    const bool of_move = command.verb == GuestVerb::prepare ||
                         command.verb == GuestVerb::prepare_dump ||
                         command.verb == GuestVerb::ship || command.verb == GuestVerb::restore_here;
    const bool current = from_owner || (command.epoch == job->to_epoch && node == job->to.node);
    if (of_move && current && HomeMoves::is_undecided(*job))
        return conclude(*job, moves_.abort(*job, node, why, turn), turn);
    if (command.verb == GuestVerb::checkpoint && from_owner &&
        HomeEvacuations::is_coming(*job, command.dest, command.new_epoch))
        return evacuations_.failed(*job, why, turn);
    const bool of_cut = command.cut == Cut::freeze && from_owner;
    if (of_cut && cuts_.member(*job)) return not_frozen(*job, why, turn);
    if (command.verb == GuestVerb::freeze && from_owner && job->phase == JobPhase::freezing &&
        job->cut == CutStep::none)
        conclude(*job, runs_.freeze_undelivered(*job, why, turn), turn);
}

void Home::expel(const NodeName& node, const Expel& expel, Nanos now, Outputs&) {
    const Scene scene(*this, nullptr,
                      [&] { return trace_in(Input::expel, expel.id, expel.epoch, node); });
    HomeJob* job = records_.find(expel.id);
    if (!job || job->at.node != node || job->epoch != expel.epoch ||
        job->phase == JobPhase::finished)
        return;
    const Reindex indexed(*this, job->id.seq);
    expels_.wanted(*job, now);
    ends_.hurry(*job, now);
}

void Home::files_used(const JobId& id, const FilesUse& use, Nanos now, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(Input::files_used, id, {}, {}, use.waits); });
    HomeJob* job = records_.find(id);
    if (!job || job->phase == JobPhase::finished || job->files_use == use) return;
    const Step step(*this, now, out);
    const bool waited = !job->files_use.waits.empty(), waits = !use.waits.empty();
    job->files_use = use;
    step.turn.persist(*job, Durable::later);
    const bool runs = job->phase == JobPhase::running;
    if (runs && waits && !waited)
        step.turn.tell(*job, home::Tell::What::warning,
                       "its files are not reached from " + job->at.node + " (" + use.waits +
                           "): what asks for them waits");
    if (runs && waited && !waits)
        step.turn.tell(*job, home::Tell::What::warning, "its files are reached again");
    step.turn.report(*job);
}

void Home::heartbeat(const NodeName& node, const Heartbeat& heartbeat, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::heartbeat, {}, {}, node); });
    for (const uint64_t seq : records_.of_guest(node))
        if (HomeJob& job = records_.at(seq); job.at.node == node) leases_.end_stretch(job, now);
    leases_.answered(node, now);
    out.push_back(Answer{node, heartbeat});
}

void Home::guest_event(const NodeName& node, const GuestEvent& event, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_event(node, event); });
    const Reindex indexed(*this, event.id.seq);
    hear(node, event, Step(*this, now, out).turn);
}

void Home::hear(const NodeName& node, const GuestEvent& told, const HomeTurn& turn) {
    leases_.heard(node);
    if (records_.is_aside(told.id)) return;
    HomeJob* job = records_.find(told.id);
    if (!job || job->phase == JobPhase::finished) return records_.stale_copy(node, told, turn);
    const GuestEvent event = claims_.checked(*job, node, told, turn);
    const bool moves_there =
        job->step != MoveStep::none && node == job->to.node && event.epoch == job->to_epoch;
    if (!moves_there && (node != job->at.node || event.epoch != job->epoch)) {
        if (HomeEvacuations::is_coming(*job, node, event.epoch))
            return evacuations_.from_keeper(*job, event, turn);
        if (HomeCheckpoints::is_kept(*job, node, event.epoch))
            return HomeGangs::is_component(*job) ? keeper_in_set(*job, event, turn)
                                                 : checkpoints_.from_keeper(*job, event, turn);
        return records_.stale_copy(node, event, turn);
    }
    runs_.note(*job, event);
    if (event.no_user) runs_.refuses_user(*job, node, event.why, turn.now);
    leases_.note(*job, node, event, turn);
    if (moves_there) {
        const HomeNext next = moves_.candidate(*job, event, turn);
        conclude(*job, next, turn);
        // It may be under way elsewhere by now.
        if (const auto* there = std::get_if<Arrived>(&next); there && there->says_more)
            hear(NodeName(job->at.node), event, turn);
        return;
    }
    leases_.end_stretch(*job, turn.now);
    clock_.prove(*job, event, turn.now);
    HomeClock::tally_cpu(*job, event);
    evacuations_.heard(*job, event, turn);
    if (cuts_.member(*job)) {
        hear_in_cut(*job, event, turn);
        return doubts_heard(*job, turn);
    }
    const bool moves = job->phase == JobPhase::moving || job->phase == JobPhase::thawing;
    if (!moves && is_ended_again(*job, event, turn)) return;
    const uint64_t gang = sets_.member(*job) ? job->group.gang : 0;
    if (gang != 0 && hear_in_set(*job, event, turn)) return go_on_with_set(gang, turn);
    conclude(*job,
             moves ? moves_.source(*job, event, turn)
                   : runs_.hears(*job, event, turn, {checkpoints_, leases_, expels_}),
             turn);
    if (gang != 0) go_on_with_set(gang, turn);
    doubts_heard(*job, turn);
}

// Jobs that were there are gone; a move to it is given up, one from it that is decided is finished.
void Home::node_lost(const NodeName& node, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::node_lost, {}, {}, node); });
    const Step step(*this, now, out);
    const Cause why = because(CauseCode::given_up_node, {{"node", node}});
    const HomeIndex::Jobs jobs = records_.of_guest(node);
    for (const uint64_t seq : jobs) {
        const Reindex indexed(*this, seq);
        HomeJob& job = records_.at(seq);
        if (job.phase == JobPhase::finished) continue;
        if (job.step != MoveStep::none && job.to.node == node)
            conclude(job, moves_.candidate_lost(job, why, step.turn), step.turn);
        if (job.at.node == node) node_gone(job, why, step.turn);
    }
}

// -------------------------------------------------------------------------------------------------
// time

Nanos Home::due_of(const HomeJob& job) const {
    if (job.phase == JobPhase::finished) return Nanos::never();
    return std::min({expels_.due(job), moves_.due(job), runs_.due(job), checkpoints_.due(job),
                     budget_.due(job), leases_.due(job), gangs_.due(job), cuts_.due(job),
                     sets_.due(job), doubts_.due(job), evacuations_.due(job), ends_.due(job)});
}

void Home::reindex(uint64_t seq) {
    const HomeJob* job = find({node_, seq});
    records_.look_at(seq, job ? due_of(*job) : Nanos::never());
    if (job)
        wakes_.look_at(*job);
    else
        wakes_.forget(seq);
}

Nanos Home::tick(Nanos now, Outputs& out) {
    const Scene scene(
        *this, &out, [&] { return trace_in(Input::tick); }, true);
    const Step step(*this, now, out);
    for (const uint64_t seq : records_.due(now)) {
        const Reindex indexed(*this, seq);
        tick(records_.at(seq), step.turn);
    }
    wake(now, out);
    evacuate(now, out);
    return std::min(records_.next_due(), wakes_.due());
}

// Frozen jobs whose turn has come; and those whose turn does not come.
void Home::wake(Nanos now, Outputs& out) {
    while (const std::optional<Order> order = wakes_.next()) carry_out(*order, now, out);
    const Step step(*this, now, out);
    while (const std::optional<Order> order = wakes_.overdue(now)) {
        HomeJob& job = records_.at(order->id.seq);
        job.order_seq = order->seq;
        step.turn.fail_order(job, job.at.node, wakes_.why_late());
    }
}

// Images whose turn it is to come here.
void Home::evacuate(Nanos now, Outputs& out) {
    const Step step(*this, now, out);
    while (const std::optional<uint64_t> seq = evacuations_.next()) {
        const Reindex indexed(*this, *seq);
        HomeJob& job = records_.at(*seq);
        evacuations_.begin(job, checkpoints_.own(node_), checkpoints_.why_not(job, step.turn),
                           step.turn);
    }
}

void Home::tick(HomeJob& job, const HomeTurn& turn) {
    if (expels_.ripe(job, turn.now)) freeze(job, turn);
    if (moves_.due(job) <= turn.now) {
        if (thaw_goes_on(job))
            moves_.goes_on(job, turn.now);
        else
            conclude(job, moves_.overdue(job, turn), turn);
    }
    if (runs_.due(job) <= turn.now) runs_.overdue(job, turn);
    if (std::min(checkpoints_.due(job), sets_.due(job)) <= turn.now)
        HomeGangs::is_component(job) ? set_due(job, turn) : checkpoints_.tick(job, turn);
    if (budget_.due(job) <= turn.now && budget_.ends(job, turn)) freeze(job, turn);
    if (leases_.due(job) <= turn.now) lease_over(job, turn);
    if (gangs_.due(job) <= turn.now) not_in_time(job, turn);
    if (cuts_.due(job) <= turn.now) cut_overdue(job, turn);
    if (doubts_.due(job) <= turn.now) doubt_due(job, turn);
    if (evacuations_.due(job) <= turn.now) evacuations_.tick(job, turn);
    if (ends_.due(job) <= turn.now) end_by_cancel(job, turn);
}

}  // namespace souk
