// SPDX-License-Identifier: GPL-2.0-or-later
// Market, sixth part: what people ask for, and what is shown to them. See market.hpp.
#include <algorithm>

#include "market/core/market.hpp"

namespace souk::market {
// A job that an operator may act upon.
Result<Job*> Market::operated(const JobId& id, uint32_t uid) {
    if (uid != root_uid)
        return fail(CauseCode::not_allowed, "only root may move, freeze, thaw or release a job");
    Job* job = mutable_job(id);
    if (!job) return fail(CauseCode::not_found, "no such job: " + id.text());
    if (job->phase() == JobPhase::finished)
        return fail(CauseCode::not_possible, "job " + id.text() + " is finished");
    if (job->record.cancel)
        return fail(CauseCode::not_possible, "job " + id.text() + " is being cancelled");
    return job;
}

Result<std::string> Market::cancel(const JobId& id, uint32_t uid) {
    heard(Input::cancel, id);
    Job* job = mutable_job(id);
    if (!job) return fail(CauseCode::not_found, "no such job: " + id.text());
    if (uid != root_uid && uid != job->record.report.uid)
        return fail(CauseCode::not_allowed, "job " + id.text() + " belongs to another user");
    if (job->phase() == JobPhase::finished)
        return fail(CauseCode::not_possible, "job " + id.text() + " is finished");
    job->record.cancel = true;
    book_.save(*job);
    notes_.of(*job);
    touch(*job);
    const Node* home = find_node(id.home);
    if (!home || !home->connected)
        return "job " + id.text() + " is cancelled as soon as its home node " + id.home +
               " is connected";
    return "job " + id.text() + " is being cancelled";
}

Result<std::string> Market::move(const JobId& id, const NodeName& name, bool hold, uint32_t uid) {
    heard(Input::move, id, name);
    TRY_ASSIGN(Job* const job, operated(id, uid));
    TRY(places_.destination(*job, name));
    if (Failed* const failed = job->failed.stored()) {
        failed->bars.erase(name);  // the operator knows better
        failed->stuck.active = false;
    }
    job->record.hold = hold ? Hold::at_node : Hold::none;
    job->record.hold_node = hold ? name : NodeName{};
    job->once.reset();
    if (!hold) job->once = name;
    job->reason = ReasonCode::moved_by_hand;
    book_.save(*job);
    touch(*job);
    if (job->phase() == JobPhase::running && job->record.report.where == name &&
        !in_transit(*job)) {
        job->once.reset();
        return "job " + id.text() + " runs on " + name + (hold ? " and is held there" : " already");
    }
    return "job " + id.text() + " goes to " + name + (hold ? " and is held there" : "");
}

Result<std::string> Market::freeze(const JobId& id, bool hold, uint32_t uid) {
    heard(Input::freeze, id);
    TRY_ASSIGN(Job* const job, operated(id, uid));
    if (Failed* const failed = job->failed.stored()) failed->stuck.active = false;
    job->via.clear();
    job->record.hold = hold ? Hold::frozen : Hold::none;
    job->record.hold_node.clear();
    job->once.reset();
    const JobPhase phase = job->phase();
    const bool still = (phase == JobPhase::waiting || phase == JobPhase::frozen) &&
                       !job->record.order && !Places::stands(*job);
    if (!hold && !still) job->once = NodeName{};
    job->reason = ReasonCode::frozen_by_hand;
    job->displaced = false;
    book_.save(*job);
    touch(*job);
    if (still)
        return "job " + id.text() + " is " + to_string(phase) +
               (hold ? " and is held" : " already");
    return "job " + id.text() + " is being frozen" + (hold ? " and held" : "");
}

Result<std::string> Market::thaw(const JobId& id, const NodeName& name, bool hold, uint32_t uid) {
    heard(Input::thaw, id, name);
    if (!name.empty()) {
        auto moved = move(id, name, hold, uid);
        if (moved) mutable_job(id)->reason = ReasonCode::thawed_by_hand;
        return moved;
    }
    TRY_ASSIGN(Job* const job, operated(id, uid));
    const bool running = job->phase() == JobPhase::running;
    job->record.hold = hold ? (running ? Hold::at_node : Hold::stay) : Hold::none;
    job->record.hold_node = hold && running ? job->record.report.where : NodeName{};
    job->once.reset();
    if (Failed* const failed = job->failed.stored()) {
        failed->stuck.active = false;
        for (auto& [node, bar] : failed->bars) bar.active = false;
    }
    book_.save(*job);
    touch(*job);
    if (running) return "job " + id.text() + " runs on " + job->record.report.where;
    return "job " + id.text() + " goes on where its bid wins a place";
}

Result<std::string> Market::release(const JobId& id, uint32_t uid) {
    heard(Input::release, id);
    TRY_ASSIGN(Job* const job, operated(id, uid));
    if (job->record.hold == Hold::none)
        return fail(CauseCode::not_possible, "job " + id.text() + " is not held");
    job->record.hold = Hold::none;
    job->record.hold_node.clear();
    job->once.reset();
    job->reason.clear();
    book_.save(*job);
    touch(*job);
    return "job " + id.text() + " is released";
}

Market::Outcome Market::outcome(const JobId& id, const NodeName& name, bool freezes,
                                uint64_t failures) const {
    const Job* const job = find(id);
    if (!job || job->phase() == JobPhase::finished)
        return {true, false,
                "job " + id.text() + " has ended" +
                    (job && !job->record.report.why.empty() ? ": " + *job->record.report.why : "")};
    const JobReport& r = job->record.report;
    const JobPhase phase = job->phase();
    if (job->record.cancel) return {true, false, "job " + id.text() + " is being cancelled"};
    const bool still =
        (phase == JobPhase::frozen && !Places::stands(*job)) || phase == JobPhase::waiting;
    const bool there =
        freezes ? still : phase == JobPhase::running && (name.empty() || r.where == name);
    if (there && !in_transit(*job)) {
        if (phase == JobPhase::waiting) return {true, true, "job " + id.text() + " waits"};
        return {true, true,
                "job " + id.text() + (freezes ? " is frozen on " : " runs on ") + r.where};
    }
    if (job->failed->times > failures && !job->failed->last.empty())
        return {true, false, job->failed->last};
    const std::string why = comment(*job);
    // A thaw is a wish like any other: another bid may have the place.
    const bool decided =
        !outside_.is_used() && !settling() && !in_transit(*job) && !target_of(*job);
    if (!freezes && name.empty() && decided)
        return {true, false, "job " + id.text() + " is not thawed: " + why};
    // Somebody has wished otherwise since.
    const bool wished = freezes
                            ? job->record.hold == Hold::frozen || job->once == NodeName{}
                            : name.empty() || job->record.hold_node == name || job->once == name;
    if (!wished && !in_transit(*job)) {
        if (!job->failed->last.empty()) return {true, false, job->failed->last};
        return {true, false,
                souk::Cause(CauseCode::overtaken,
                            "another order came in between" + (why.empty() ? "" : ": " + why))};
    }
    return {false, false, why};
}

Result<std::string> Market::write_off(const NodeName& name, uint32_t uid) {
    heard(Input::write_off, {}, name);
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

// It will not run there any more: what held it there is over.
void Market::unhold(const NodeName& name) {
    for (auto& [id, job] : book_.jobs()) {
        if (job.phase() == JobPhase::finished) continue;
        if (job.once == name) job.once.reset();
        if (job.record.hold != Hold::at_node || job.record.hold_node != name) continue;
        job.record.hold = Hold::none;
        job.record.hold_node.clear();
        job.reason = Reason(ReasonCode::hold_lost).with(Figure::node, name);
        book_.save(job);
        touch(job);
    }
}

// Until when a job that is on its way, whose home is gone, may begin to run: as long as its lease
// lasts, if it has one, and not where it was and goes to once these nodes are lost too.
Nanos Market::may_begin_until(const Job& job, const Node& home) const {
    const JobReport& r = job.record.report;
    if (r.phase != JobPhase::starting && r.phase != JobPhase::moving &&
        r.phase != JobPhase::thawing)
        return Nanos{};
    Nanos places;
    for (const NodeName& name : {r.where, r.to}) {
        if (name.empty()) continue;
        const Node* node = find_node(name);
        const bool lost = node && !node->connected;
        places = std::max(places, lost ? node->lost_at + options_.grace : Nanos::never());
    }
    return r.alone.ns > 0 ? std::min(places, home.lost_at + r.alone) : places;
}

Status Market::may_forget(const Node& node, Nanos now) const {
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
        if (id.home != name) {
            if (there)
                return fail(CauseCode::not_possible, "job " + id.text() + " is on node " + name +
                                                         ": marketctl node lost " + name +
                                                         " says that it goes on without it");
        } else if (!job.record.cancel) {
            return fail(CauseCode::not_possible,
                        "job " + id.text() + " was submitted on node " + name +
                            " and has not ended: marketctl cancel " + id.text());
        } else if (job.run_since != Nanos::never()) {
            return fail(CauseCode::not_possible, "job " + id.text() + " was submitted on node " +
                                                     name + " and may still run on " + r.where +
                                                     " until its lease ends");
        } else if (now < may_begin_until(job, node)) {
            const NodeName& next = r.to.empty() ? r.where : r.to;
            return fail(CauseCode::not_possible,
                        "job " + id.text() + " was submitted on node " + name +
                            " and may begin to run on " + next +
                            ": try again when its lease has ended, or agentd on " + next +
                            " is stopped");
        }
    }
    return {};
}

Result<std::string> Market::forget(const NodeName& name, uint32_t uid, Nanos now) {
    heard(Input::forget, {}, name);
    if (uid != root_uid) return fail(CauseCode::not_allowed, "only root may have a node forgotten");
    const auto it = book_.nodes().find(name);
    if (it == book_.nodes().end()) return fail(CauseCode::not_found, "no such node: " + name);
    TRY(may_forget(it->second, now));
    begin_day(now);
    unhold(name);
    for (auto& [id, job] : book_.jobs()) {
        if (Failed* const failed = job.failed.stored()) failed->bars.erase(name);
        if (job.via == name) job.via.clear();
        if (job.record.payee == name) close_tab(job, now);
        if (id.home == name && job.phase() != JobPhase::finished) lose_home(job, now);
    }
    Node& node = it->second;
    if (const auto spec = solver_.provider(node.key)) {
        ProviderSpec gone = *spec;
        gone.accepting = false;
        if (log_) log_->told(node, gone);
        solver_.remove_provider(node.key);
    }
    places_.came_back(name);
    places_.changed();
    notes_.forget(node);
    speeds_.forget(name);
    touched_nodes_.erase(node);
    book_.forget(node);
    dirty_ = true;
    return "node " + name + " is forgotten; its account and its receipts stay";
}

const char* Market::provider_state(const Node& node, Nanos now) const {
    const ProviderReport& r = node.record.report;
    if (!node.connected) return now < node.lost_at + options_.grace ? "disconnected" : "lost";
    if (!node.record.has_report || !r.on_market) return "off";
    if (!r.cannot.empty()) return "unable";
    return node.used_cpus > 0 ? "busy" : "free";
}

int32_t Market::guests_left(const Node& node) {
    int32_t left = 0;
    for (const auto& [id, job] : node.jobs) {
        const JobReport& r = job->record.report;
        const bool there = r.phase == JobPhase::running || r.phase == JobPhase::moving ||
                           r.phase == JobPhase::freezing || r.in_place;
        left += there && r.where == node.id();
    }
    return left;
}

std::string Market::audit() const {
    std::map<NodeName, std::pair<int64_t, int64_t>> used;
    Money paid = book_.meta().retired, earned = earned_by_forgotten();
    std::map<Holder, Money> open;  // in no receipt yet
    for (const auto& [id, job] : book_.jobs()) {
        const JobRecord& r = job.record;
        const JobTerms& t = r.report.terms;
        if (r.finish_seq == 0) paid += r.account.amount;
        if (!r.tab.empty()) open[Holder::provider(r.payee)] += r.tab.amount;
        if (t.budget.micro > 0 && r.account.amount > t.budget && !r.out_of_budget &&
            r.finish_seq == 0)
            return id.text() + " has spent more than its budget";
        for (const NodeName& name : job.claims) {
            if (name.empty()) continue;
            used[name].first += job.claim_cpus;
            used[name].second += job.claim_mb;
        }
        const bool holds = r.order || !job.claims[0].empty() || !job.claims[1].empty();
        if (r.report.phase == JobPhase::finished && holds)
            return id.text() + " is finished and holds room or an order";
    }
    for (const auto& [name, node] : book_.nodes()) {
        earned += node.record.earned;
        const Holder holder = Holder::provider(name);
        if (ledger_.by_use(holder) + open[holder] != node.record.earned)
            return name + " has earned " + format_money(node.record.earned) +
                   ", the ledger says otherwise";
        const auto& [cpus, mb] = used[name];
        if (cpus != node.used_cpus || mb != node.used_mb)
            return name + " counts its guests' room wrong";
    }
    if (std::string users = audit_users(); !users.empty()) return users;
    if (!places_.supply_is_right()) return "what providers hold has changed unseen";
    if (ledger_.sum().micro != 0)
        return "the ledger's balances add up to " + format_money(ledger_.sum());
    if (paid != earned)
        return "paid " + format_money(paid) + " and earned " + format_money(earned) + " differ";
    return {};
}

}  // namespace souk::market
