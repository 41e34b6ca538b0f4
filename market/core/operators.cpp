// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/operators.hpp"

#include <algorithm>

#include "market/core/orders.hpp"

namespace souk::market {

// Finds a job for an order by hand. Root may give each; a job's own user may freeze it and undo
// that, since that takes nothing from others.
Result<Job*> Operators::operated(const JobId& id, uint32_t uid, bool by_its_user) {
    if (uid != root_uid && !by_its_user)
        return fail(CauseCode::not_allowed,
                    "only root may move a job, or hold it at a place; its user may freeze, thaw, "
                    "hold and release it");
    TRY_ASSIGN(Job* const job, owned(id, uid));
    const bool moves = job->once && !job->once->empty();  // by an operator's word
    if (uid != root_uid &&
        (moves || (job->record.hold != Hold::none && job->record.hold != Hold::by_user)))
        return fail(CauseCode::not_allowed,
                    "job " + id.text() + " is " + (moves ? "moved" : "held") + " by an operator");
    if (job->record.cancel)
        return fail(CauseCode::not_possible, "job " + id.text() + " is being cancelled");
    if (uid == root_uid) SubmitFilter::overruled(*job);
    return job;
}

Result<Job*> Operators::owned(const JobId& id, uint32_t uid) const {
    Job* const job = book_.find(id);
    if (!job) return fail(CauseCode::not_found, "no such job: " + id.text());
    if (uid != root_uid && uid != job->record.report.uid)
        return fail(CauseCode::not_allowed, "job " + id.text() + " belongs to another user");
    if (job->phase() == JobPhase::finished)
        return fail(CauseCode::not_possible, "job " + id.text() + " is finished");
    return job;
}

Result<std::string> Operators::cancel(const JobId& id, uint32_t uid) {
    trace_.heard(Input::cancel, id);
    TRY_ASSIGN(Job* const job, owned(id, uid));
    job->record.cancel = true;
    book_.save(*job);
    notes_.of(*job);
    work_.touch(*job);
    const Node* home = book_.find_node(id.home);
    if (!home || !home->connected)
        return "job " + id.text() + " is cancelled as soon as its home node " + id.home +
               " is connected";
    return "job " + id.text() + " is being cancelled";
}

Result<std::string> Operators::move(const JobId& id, const NodeName& name, bool hold,
                                    uint32_t uid) {
    trace_.heard(Input::move, id, name);
    TRY_ASSIGN(Job* const job, operated(id, uid, false));
    if (!of_site(name).site.empty()) return move_to_site(*job, name, hold);
    if (is_lent(*job) && (job->phase() != JobPhase::running || hold))
        return fail(CauseCode::not_possible,
                    "site " + job->record.loan->site + " has job " + id.text() +
                        (hold ? ": it can be held here when it has come" : " and does not run it"));
    TRY(places_.destination(*job, name));
    const Node* const there = is_lent(*job) ? book_.find_node(job->record.report.where) : nullptr;
    if (there && !there->connected)
        return fail(CauseCode::not_possible, "site " + job->record.loan->site +
                                                 ", which must let job " + id.text() +
                                                 " go, is not connected");
    lent_.take_back(*job, {});
    if (Failed* const failed = job->failed.stored()) {
        failed->bars.erase(name);  // the operator knows better
        failed->stuck.active = false;
    }
    job->record.hold = hold ? Hold::at_node : Hold::none;
    job->record.hold_node = hold ? name : NodeName{};
    job->once.reset();
    if (!hold) job->once = name;
    job->reason = ReasonCode::moved_by_hand;
    if (is_lent(*job)) lent_.call_back(*job, name);
    book_.save(*job);
    work_.touch(*job);
    if (job->phase() == JobPhase::running && job->record.report.where == name &&
        !Orders::in_transit(*job)) {
        job->once.reset();
        return "job " + id.text() + " runs on " + name + (hold ? " and is held there" : " already");
    }
    return "job " + id.text() + " goes to " + name + (hold ? " and is held there" : "");
}

// Errors: the job of this site is not asked about at that one, and why.
Status Operators::may_go_to_site(const Job& job, const std::string& site) const {
    const JobReport& r = job.record.report;
    const Loan& loan = *job.record.loan;
    const std::string who = "job " + job.id().text();
    const auto no = [](std::string why) { return fail(CauseCode::not_possible, std::move(why)); };
    if (is_lent(job))
        return no("site " + loan.site + " has " + who +
                  (loan.site == site ? " already, and says on which of its nodes it runs"
                                     : ": move it to a node of this site first"));
    if (loan.asked) return no(who + " is about to go to site " + loan.site);
    if (!loan.site.empty() || LentJobs::is_unsettled(job, site))
        return no(who + " is not settled with site " + (loan.site.empty() ? site : loan.site) +
                  " yet");
    if (is_component(job) || r.address)
        return no(
            "a component of a gang, and a job with an address of its own, stay at their site");
    if (!(r.terms.booking == Booking{}))
        return no("a job with a place of its own stays at its site");
    if (job.phase() != JobPhase::running)
        return no(who + " does not run: only a job that runs moves to another site");
    if (!r.cannot_move.empty()) return fail(r.cannot_move->within(who + " cannot move: "));
    if (!job.reported || Orders::in_transit(job))
        return no(who + " has an order that is not carried out yet: try again");
    return {};
}

Result<std::string> Operators::move_to_site(Job& job, const NodeName& name, bool hold) {
    const auto [site, node] = of_site(name);
    if (hold)
        return fail(CauseCode::invalid, "a job is held on nodes of its own site alone (--hold)");
    TRY(may_go_to_site(job, std::string(site)));
    if (Failed* const failed = job.failed.stored()) failed->stuck.active = false;
    // It is held where it is until it leaves that.
    if (job.record.hold != Hold::at_node || job.record.hold_node != job.record.report.where) {
        job.record.hold = Hold::none;
        job.record.hold_node.clear();
    }
    job.once.reset();
    job.reason = ReasonCode::moved_by_hand;
    lent_.ask(job, std::string(site), node.empty() ? NodeName{} : name, {});
    work_.touch(job);
    return "job " + job.id().text() + " goes to site " + std::string(site) +
           (node.empty() ? "" : ", node " + std::string(node));
}

Result<std::string> Operators::freeze(const JobId& id, bool hold, uint32_t uid) {
    trace_.heard(Input::freeze, id);
    TRY_ASSIGN(Job* const job, operated(id, uid, true));
    // A user does not lift the pauses that follow failures.
    if (Failed* const failed = job->failed.stored(); failed && uid == root_uid)
        failed->stuck.active = false;
    lent_.take_back(*job, {});
    job->via.clear();
    job->record.hold = !hold ? Hold::none : uid == root_uid ? Hold::frozen : Hold::by_user;
    job->record.hold_node.clear();
    job->once.reset();
    const JobPhase phase = job->phase();
    const bool still = (phase == JobPhase::waiting || phase == JobPhase::frozen) &&
                       !job->record.order && !Places::stands(*job);
    if (!hold && !still) job->once = NodeName{};
    job->reason = ReasonCode::frozen_by_hand;
    job->displaced = false;
    book_.save(*job);
    work_.touch(*job);
    if (still)
        return "job " + id.text() + " is " + to_string(phase) +
               (hold ? " and is held" : " already");
    return "job " + id.text() + " is being frozen" + (hold ? " and held" : "");
}

Result<std::string> Operators::thaw(const JobId& id, const NodeName& name, bool hold,
                                    uint32_t uid) {
    trace_.heard(Input::thaw, id, name);
    if (!name.empty()) {
        auto moved = move(id, name, hold, uid);
        if (moved) book_.find(id)->reason = ReasonCode::thawed_by_hand;
        return moved;
    }
    TRY_ASSIGN(Job* const job, operated(id, uid, !hold));
    lent_.take_back(*job, {});
    const bool running = job->phase() == JobPhase::running;
    job->record.hold = hold ? (running ? Hold::at_node : Hold::stay) : Hold::none;
    job->record.hold_node = hold && running ? job->record.report.where : NodeName{};
    job->once.reset();
    if (Failed* const failed = job->failed.stored(); failed && uid == root_uid) {
        failed->stuck.active = false;
        for (auto& [node, bar] : failed->bars) bar.active = false;
    }
    book_.save(*job);
    work_.touch(*job);
    if (running) return "job " + id.text() + " runs on " + job->record.report.where;
    return "job " + id.text() + " goes on where its bid wins a place";
}

Result<std::string> Operators::release(const JobId& id, uint32_t uid) {
    trace_.heard(Input::release, id);
    TRY_ASSIGN(Job* const job, operated(id, uid, true));
    // To release a job from a hold does not answer for a filter that has yet to.
    const FilterWord& word = *job->record.filter;
    const bool is_asked = word.state == FilterWord::State::asked && word.why.empty();
    const bool passes =
        uid == root_uid && (job->record.hold == Hold::none || !is_asked) && filter_.let_pass(*job);
    if (job->record.hold == Hold::none && !passes)
        return fail(CauseCode::not_possible, "job " + id.text() + " is not held");
    job->record.hold = Hold::none;
    job->record.hold_node.clear();
    job->once.reset();
    job->reason.clear();
    book_.save(*job);
    work_.touch(*job);
    return "job " + id.text() + " is released";
}

Result<std::string> Operators::give(const JobId& id, uint32_t to, uint32_t uid) {
    trace_.heard(Input::give, id);
    TRY_ASSIGN(Job* const job, owned(id, uid));
    const JobReport& r = job->record.report;
    if (!r.terms.booking->holds)
        return fail(CauseCode::not_possible,
                    "job " + id.text() +
                        " runs a program of its user: only a place without one can be given "
                        "(srun --allocate)");
    if (to != 0 && (to == r.uid || is_project(to)))
        return fail(CauseCode::invalid, "a place is given to another user");
    std::vector<Job*> all{job};
    if (is_component(*job)) all = gangs_.of(*job);
    for (Job* const one : all) {
        one->record.given = to;
        book_.save(*one);
        work_.touch(*one);
    }
    if (to == 0) return "the place of job " + id.text() + " is its user's alone";
    const auto user = book_.users().find(to);
    return (user == book_.users().end() ? "user " + std::to_string(to) : called(user->second)) +
           " may run programs in the place of job " + id.text() + ": srun --in " + id.text();
}

Operators::Outcome Operators::outcome(const JobId& id, const NodeName& name, bool freezes,
                                      uint64_t failures) const {
    const Job* const job = book_.find(id);
    if (!job || job->phase() == JobPhase::finished)
        return {true, false,
                "job " + id.text() + " has ended" +
                    (job && !job->record.report.why.empty() ? ": " + *job->record.report.why : "")};
    const JobReport& r = job->record.report;
    const JobPhase phase = job->phase();
    if (job->record.cancel) return {true, false, "job " + id.text() + " is being cancelled"};
    const bool still =
        (phase == JobPhase::frozen && !Places::stands(*job)) || phase == JobPhase::waiting;
    // "uni:" stands for each node there.
    const auto is_there = [&] {
        return name.empty() || r.where == name ||
               (of_site(name).rest.empty() && r.where.starts_with(name));
    };
    const bool there = freezes ? still : phase == JobPhase::running && is_there();
    if (there && !Orders::in_transit(*job)) {
        if (phase == JobPhase::waiting) return {true, true, "job " + id.text() + " waits"};
        // Its memory is not on disk, which is what was asked for.
        if (freezes && r.in_place) {
            const std::string text =
                "job " + id.text() + " is stopped in memory on " + r.where + ", and not on disk";
            return {true, false,
                    r.cannot_move.empty() ? souk::Cause(text) : r.cannot_move->within(text + ": ")};
        }
        return {true, true,
                "job " + id.text() + (freezes ? " is frozen on " : " runs on ") + r.where};
    }
    if (job->failed->times > failures && !job->failed->last.empty())
        return {true, false, job->failed->last};
    // Its other market says on which of its nodes.
    if (!freezes && phase == JobPhase::running && is_lent(*job) && !Orders::in_transit(*job) &&
        of_site(name).site == job->record.loan->site)
        return {true, false, "job " + id.text() + " runs on " + r.where};
    const std::string why = explain_.reason(*job).text();
    // A thaw is a wish like any other, and another bid may have the place.
    const bool decided = !allocation_.outside().is_used() && !settling_.is_on() &&
                         !Orders::in_transit(*job) && !allocation_.target_of(*job);
    if (!freezes && name.empty() && decided)
        return {true, false, "job " + id.text() + " is not thawed: " + why};
    if (!is_wished(*job, name, freezes) && !Orders::in_transit(*job)) {
        if (!job->failed->last.empty()) return {true, false, job->failed->last};
        return {true, false,
                souk::Cause(CauseCode::overtaken,
                            "another order came in between" + (why.empty() ? "" : ": " + why))};
    }
    return {false, false, why};
}

// Whether the order still stands. If not, somebody has wished otherwise since.
bool Operators::is_wished(const Job& job, const NodeName& name, bool freezes) {
    if (freezes) return holds_back(job.record.hold) || job.once == NodeName{};
    const Loan& loan = *job.record.loan;
    if (const std::string_view site = of_site(name).site; !site.empty())
        return loan.site == site && !loan.over;
    return name.empty() || job.record.hold_node == name || job.once == name;
}

Result<std::string> Operators::write_off(const NodeName& name, uint32_t uid) {
    trace_.heard(Input::write_off, {}, name);
    if (uid != root_uid)
        return fail(CauseCode::not_allowed, "only root may say that a node is lost");
    const auto it = book_.nodes().find(name);
    if (it == book_.nodes().end()) return fail(CauseCode::not_found, "no such node: " + name);
    if (it->second.connected)
        return fail(CauseCode::not_possible,
                    "node " + name + " is connected: pvdctl market off empties it");
    places_.write_off(name);
    unhold(name);
    for (const auto& [other, node] : book_.nodes())
        if (node.connected) notes_.lost(other, name);
    return "node " + name + " is lost: its jobs go on from their checkpoints";
}

// No job runs on the node any more: orders to go or stay there are over.
void Operators::unhold(const NodeName& name) {
    for (auto& [id, job] : book_.jobs()) {
        if (job.phase() == JobPhase::finished) continue;
        if (job.once == name) job.once.reset();
        if (job.record.hold != Hold::at_node || job.record.hold_node != name) continue;
        job.record.hold = Hold::none;
        job.record.hold_node.clear();
        job.reason = Reason(ReasonCode::hold_lost).with(Figure::node, name);
        book_.save(job);
        work_.touch(job);
    }
}

// Until when a job that is on its way and whose home is gone may begin to run: as long as its lease
// lasts, if it has one, and no longer than until the nodes where it was and goes to are lost, too.
Nanos Operators::may_begin_until(const Job& job, const Node& home) const {
    const JobReport& r = job.record.report;
    if (r.phase != JobPhase::starting && r.phase != JobPhase::moving &&
        r.phase != JobPhase::thawing)
        return Nanos{};
    Nanos places;
    for (const NodeName& name : {r.where, r.to}) {
        if (name.empty()) continue;
        const Node* node = book_.find_node(name);
        const bool lost = node && !node->connected;
        places = std::max(places, lost ? node->lost_at + context_.options.grace : Nanos::never());
    }
    return r.alone.ns > 0 ? std::min(places, home.lost_at + r.alone) : places;
}

// An error: a job of this home has not been cancelled, or may still run.
Status Operators::may_end_with(const Job& job, const Node& home, Nanos now) const {
    const JobReport& r = job.record.report;
    const std::string submitted = "job " + job.id().text() + " was submitted on node " + home.id();
    if (!job.record.cancel)
        return fail(CauseCode::not_possible,
                    submitted + " and has not ended: marketctl cancel " + job.id().text());
    if (job.run_since != Nanos::never())
        return fail(CauseCode::not_possible,
                    submitted + " and may still run on " + r.where + " until its lease ends");
    if (now >= may_begin_until(job, home)) return {};
    const NodeName& next = r.to.empty() ? r.where : r.to;
    return fail(CauseCode::not_possible, submitted + " and may begin to run on " + next +
                                             ": try again when its lease has ended, or agentd on " +
                                             next + " is stopped");
}

Status Operators::may_forget(const Node& node, Nanos now) const {
    const NodeName& name = node.id();
    if (node.connected)
        return fail(CauseCode::not_possible,
                    "node " + name +
                        " is connected: pvdctl market off empties it, and without agentd it can be "
                        "forgotten");
    for (const auto& [id, job] : book_.jobs()) {
        const JobReport& r = job.record.report;
        if (r.phase == JobPhase::finished) continue;
        const bool there = node.jobs.contains(id) || r.where == name || r.to == name ||
                           (job.record.order && job.record.order->node == name);
        if (id.home == name) {
            TRY(may_end_with(job, node, now));
        } else if (there) {
            return fail(CauseCode::not_possible, "job " + id.text() + " is on node " + name +
                                                     ": marketctl node lost " + name +
                                                     " says that it goes on without it");
        }
    }
    return {};
}

Result<std::string> Operators::forget(const NodeName& name, uint32_t uid, Nanos now) {
    trace_.heard(Input::forget, {}, name);
    if (uid != root_uid) return fail(CauseCode::not_allowed, "only root may have a node forgotten");
    const auto it = book_.nodes().find(name);
    if (it == book_.nodes().end()) return fail(CauseCode::not_found, "no such node: " + name);
    TRY(may_forget(it->second, now));
    funds_.begin_day(now);
    unhold(name);
    for (auto& [id, job] : book_.jobs()) {
        if (Failed* const failed = job.failed.stored()) failed->bars.erase(name);
        if (job.via == name) job.via.clear();
        if (job.record.payee == name) billing_.close_tab(job, now);
        if (id.home == name && job.phase() != JobPhase::finished) reports_.lose_home(job, now);
    }
    Node& node = it->second;
    if (const auto spec = solver_.provider(node.key)) {
        ProviderSpec gone = *spec;
        gone.accepting = false;
        if (context_.log) context_.log->told(node, gone);
        solver_.remove_provider(node.key);
    }
    places_.came_back(name);
    places_.forget_machine(node);
    places_.changed();
    notes_.forget(node);
    work_.forget(node);
    book_.forget(node);
    work_.decide();
    return "node " + name + " is forgotten; its account and its receipts stay";
}

}  // namespace souk::market
