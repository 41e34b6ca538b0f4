// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/job_reports.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "market/core/claims.hpp"
#include "market/core/use_check.hpp"

namespace souk::market {

Status JobReports::take(const NodeName& node, const JobReport& report, Nanos now) {
    TRY_ASSIGN(Job* const known, let_in(node, report, now));
    if (!known) return {};
    Job& job = *known;
    notes_.of(job);
    if (job.record.finish_seq > 0) {  // its account is closed: its home hears so again
        job.note_due = true;
        work_.decide();
        return {};
    }
    const bool fresh = !std::exchange(job.reported, true);
    if (fresh) {
        job.doubt_since = Nanos::never();
        job.note_due = true;  // what was on its way may be lost
    }
    const Nanos ran = bill::run_time(job, now);
    JobReport before = std::exchange(job.record.report, report);
    claims::keep_ties(job.record.report, before);
    claims::keep_size(job.record.report, before);
    if (!is_on_its_way(job) || report.epoch != before.epoch) job.sending.reset();
    if (job.record.report.uid != before.uid) {  // its home has forgotten it
        job.record.report.uid = before.uid;
        job.record.report.user = before.user;
    }
    book_.replaced(job, before);
    filter_.reported(job, before.terms);
    if (report.terms.max_price.micro <= 0)
        return home_forgot(job, std::move(before), ran, now), Status();
    funds_.choose_payer(job, now);
    // A larger budget wakes the job. (The present one may have a rest too small to run for.)
    const Money budget = report.terms.budget;
    if (budget != before.terms.budget && (budget.micro == 0 || budget > job.record.account.amount))
        job.record.out_of_budget = false;
    bids_.set(job, now);
    if (report.phase == JobPhase::waiting && !claims::may_be_at(job, report.where, book_))
        job.record.report.where.clear();
    look_at_backing(job, now);
    if (job.record.unbacked)
        billing_.stop_clock(job, ran, now);
    else
        billing_.clock(job, before, ran, now);
    orders_.used(report.order_seq);
    Orders::judge(job, fresh, now);
    if (!job.record.unbacked) note_steady(job, now);
    note_lacking(job);
    Failed* const failed = job.failed.stored();
    if (failed && report.in_place && !report.cannot_move.empty())
        failed->stuck = {};  // it is stopped as far as it can be
    if (report.phase == JobPhase::finished) return finish(job, now), Status();
    if (report.phase == JobPhase::running) note_running(job);
    suspended_.note(job, now);
    rooms_.claim(job);
    work_.touch(job);
    book_.save(job);
    alarms_.set(job);
    return {};
}

// A home that has forgotten a job tells only that it has ended.
void JobReports::home_forgot(Job& job, JobReport before, Nanos ran, Nanos now) {
    before.phase = JobPhase::finished;
    before.why = job.record.report.why;
    job.record.report = std::move(before);
    billing_.account_until(job, ran, now);
    finish(job, now);
}

void JobReports::note_running(Job& job) {
    if (job.record.hold == Hold::stay) {
        job.record.hold = Hold::at_node;
        job.record.hold_node = job.record.report.where;
    }
    // A report from before a freeze that is decided says "running", too.
    if (solver_.place(job.key).n != 0) job.displaced = false;
}

// Finds the job that is reported, or makes it known. Null: there is nothing to be done about it.
Result<Job*> JobReports::let_in(const NodeName& node, const JobReport& report, Nanos now) {
    TRY(claims::sound(node, report));
    const bool is_known = book_.find(report.id);
    if (!is_known && report.phase == JobPhase::finished &&
        report.why->code == CauseCode::home_forgot)
        return nullptr;  // the market has asked for it
    const Result<Job*> found = book_.admit(report);
    if (!found) {
        turn_away(report, found.error(), now);
        return nullptr;
    }
    if (!is_known) refusals_.taken(node);
    Job& job = **found;
    if (context_.options.metered && !job.user->funds) funds_.open_account(*job.user);
    if (is_known) return &job;
    // A market of before had no record of a job that waits: its home is believed this once.
    const Nanos unix = context_.unix(now);
    job.record.arrived =
        std::max(Nanos{1}, book_.meta().arrivals ? unix : std::min(unix, report.submitted));
    claims::keep_ties(job.record.report, report);  // these hold for good
    if (report.phase == JobPhase::waiting || report.phase == JobPhase::frozen) filter_.came(job);
    return &job;
}

// The book has no room for the job. Its home keeps it, and tells its user why.
void JobReports::turn_away(const JobReport& report, const Error& why, Nanos now) {
    const Reason reason = Reason(ReasonCode::book_full).with(Figure::cause, why.message);
    JobNote note;
    note.id = report.id;
    note.comment = reason.text();
    note.code = to_string(reason.code);
    note.settled = report.phase == JobPhase::finished;
    notes_.of(note);
    const bool waits =
        report.phase == JobPhase::waiting || (report.phase == JobPhase::frozen && !report.in_place);
    refusals_.refused(report.id, waits, now);
}

void JobReports::ask_again(Nanos now, Outputs& out) {
    const auto has_room = [this](const NodeName& home) { return book_.has_room(home).has_value(); };
    const auto knows = [this](const JobId& id) { return book_.find(id) != nullptr; };
    for (const JobId& id : refusals_.due(now, has_room, knows))
        out.send.push_back({id.home, orders_.ask(id)});
    if (orders_.next_seq() > book_.meta().seq_limit) book_.save_meta();
}

void JobReports::note_lacking(Job& job) {
    if (!job.record.report.lacking.empty() && job.phase() == JobPhase::waiting) {
        lacking_.insert(job.id());
        work_.place(job);
    } else {
        lacking_.erase(job.id());
    }
}

Status JobReports::order_failed(const NodeName& node, const OrderFailed& failed, Nanos now) {
    if (failed.id.home != node)
        return fail("node " + node + " reports for job " + failed.id.text() + " of another home");
    Job* job = book_.find(failed.id);
    const Node* const meant =
        job && job->record.order ? book_.find_node(job->record.order->node) : nullptr;
    if (!job || !orders_.failed(*job, failed, now)) return {};
    if (meant && job->record.report.where != meant->id()) claims::came_to_nothing(*job, *meant);
    rooms_.claim(*job);
    work_.touch(*job);
    alarms_.set(*job);
    return {};
}

void JobReports::take_use(const NodeName& name, const UseReport& report, Nanos now) {
    funds_.begin_day(now);
    const auto it = book_.nodes().find(name);
    Node* const node = it == book_.nodes().end() ? nullptr : &it->second;
    for (const JobUse& use : report.jobs) {
        Job* const job = book_.find(use.id);
        if (node) claims::heard(*node, job, use);
        if (!job) continue;
        if (use.ended && job->lies_on == name && job->record.report.epoch == use.epoch)
            wants_proof_soon(*job, now);
        if (job->record.unbacked) back_by(use.id, now);
        // The report is as of now, so the charges must be.
        if (job->record.payee == name) billing_.account_running(*job, now);
        if (const auto d = use_check::heard(job->record, name, use))
            billing_.take_back(*job, *d, now);
        billing_.settle_use(*job, now);
        if (job->record.unbacked) back_by(use.id, now);  // what was there before the report
        book_.save(*job);
    }
    for (const JobSend& send : report.sends) {
        Job* const job = book_.find(send.id);
        const JobReport* const r = job ? &job->record.report : nullptr;
        if (r && is_on_its_way(*job) && r->where == name && r->epoch == send.epoch)
            job->sending = send;
    }
}

void JobReports::finish(Job& job, Nanos now) {
    billing_.close_tab(job, now);
    look_at_backing(job, now);
    job.record.order.reset();
    job.run_base = job.record.billed;
    job.run_since = Nanos::never();
    waits_.note(job, false, now);
    job.record.hold = Hold::none;
    job.reason.clear();
    suspended_.forget(job);
    job.stands_until = Nanos::never();
    book_.finish(job, context_.unix(now));
    rooms_.claim(job);
    work_.touch(job);
    alarms_.set(job);
    work_.leave_place(job);
    job.displaced = false;
    book_.save(job);
    notes_.of(job);
    job.note_due = true;
}

void JobReports::lose_home(Job& job, Nanos now) {
    billing_.account_until(job, bill::run_time(job, now), now);
    job.record.report.phase = JobPhase::finished;
    job.record.report.why = {CauseCode::home_forgot,
                             "its home node " + job.id().home + " no longer knows it"};
    finish(job, now);
}

void JobReports::alarm(Job& job, Nanos now) {
    if (orders_.is_forgotten(job, now)) return lose_home(job, now);
    if (orders_.gives_up(job, now)) rooms_.claim(job);
    if (job.run_since != Nanos::never() && now >= alarms_.surely_stopped(job)) {
        job.run_base = bill::run_time(job, now);
        billing_.account_until(job, job.run_base, now);
        job.run_since = Nanos::never();
    }
    if (now >= bill::budget_end(job)) {
        billing_.account_until(job, bill::run_time(job, now), now);
        job.record.out_of_budget = true;
    }
    if (now >= job.bid_until) bids_.set(job, now);
    if (now >= job.weighs_until)
        job.weighs_until = Nanos::never();  // to be reckoned anew, as it is touched below
    if (now >= job.stands_until) job.stood_enough = true;
    if (now >= job.proof_by) demand_proof(job, now);
    if (now >= job.called_back_at) job.called_back_at = Nanos::never();  // Placement asks
    Orders::end_back_offs(job, now);
    rooms_.root(job);
    work_.touch(job);
    alarms_.set(job);
}

void JobReports::resume(Job& job, Nanos now) {
    job.ordered_at = now;
    bids_.set(job, now);
    waits_.resume(job, now);
    resume_backing(job, now);
    rooms_.claim(job);
    work_.touch(job);
    alarms_.set(job);
}

void JobReports::place_came(const Node& place, Nanos now) {
    std::vector<JobId> awaited;
    for (auto it = awaited_.lower_bound({place.id(), {}});
         it != awaited_.end() && it->first == place.id(); ++it)
        awaited.push_back(it->second);
    for (const JobId& id : awaited) back_by(id, now);
    for (const auto& [id, job] : place.jobs) {
        work_.touch(*job);
        wants_proof_soon(*job, now);
    }
}

// A job is believed when its home reports it. One that the home does not report any more is lost.
void JobReports::home_came(Job& job, Nanos now) {
    job.reported = false;
    job.doubt_since = now;
    rooms_.root(job);
    work_.touch(job);
    alarms_.set(job);
}

void JobReports::home_left(Job& job) {
    job.reported = false;
    job.doubt_since = Nanos::never();
    rooms_.root(job);
    work_.touch(job);
    alarms_.set(job);
}

// A node that is away may be gone for good by now.
void JobReports::try_lacking() {
    for (const JobId& id : lacking_)
        if (Job* job = book_.find(id)) work_.place(*job);
    work_.decide();
}

// A place that was backed before the restart is backed again: the words of its home and the nodes
// follow.
void JobReports::resume_backing(Job& job, Nanos now) {
    const JobRecord& r = job.record;
    if (!r.unbacked)
        for (const NodeName& name : {r.report.where, r.report.to})
            if (!name.empty()) claims::ordered(job, book_.node(name));
    if (Orders::is_sent(job)) claims::ordered(job, book_.node(r.order->node));
    look_at_backing(job, now);
}

// Finds out whether the newest report of the job is backed. If it is not, the home is told after a
// while to freeze the job.
void JobReports::look_at_backing(Job& job, Nanos now) {
    const bool was = std::exchange(job.record.unbacked, !claims::back(job, book_));
    const NodeName awaited = job.awaits.empty() ? NodeName{} : *job.awaits;
    if (!job.awaits.empty()) awaited_.erase({awaited, job.id()});
    job.awaits.clear();
    if (!job.record.unbacked) {
        job.called_back_at = Nanos::never();
        return;
    }
    job.awaits = job.record.report.where;
    awaited_.insert({*job.awaits, job.id()});
    // The job has its time at each node, also after a restart, because the node may be about to
    // tell of it.
    if (!was || awaited != job.record.report.where)
        job.called_back_at = now + context_.options.confirm_patience;
}

// A node has come or said something, and may back the job.
void JobReports::back_by(const JobId& id, Nanos now) {
    Job& job = book_.jobs().at(id);
    funds_.begin_day(now);
    look_at_backing(job, now);
    if (job.record.unbacked) return;
    const JobReport report = job.record.report;
    billing_.clock(job, report, bill::run_time(job, now), now);
    note_steady(job, now);
    suspended_.note(job, now);
    rooms_.claim(job);
    work_.touch(job);
    book_.save(job);
    alarms_.set(job);
}

void JobReports::wants_proof_later(Job& job, const Node& to, Nanos now) {
    constexpr int64_t slow_mb_per_s = 10;  // its memory goes there first, perhaps by a slow line
    const int64_t limit_mb = job.record.report.terms.memory_mb;
    const int64_t memory_mb = limit_mb > 0 ? limit_mb : to.record.report.memory_mb;
    job.proof_by = now + context_.options.order_patience + Nanos::from_s(memory_mb / slow_mb_per_s);
    job.is_steady = false;
}

// After a report that is backed: the place of a job that has arrived tells of it soon.
void JobReports::note_steady(Job& job, Nanos now) {
    const JobReport& r = job.record.report;
    const bool comes = r.phase == JobPhase::running || (r.phase == JobPhase::frozen && r.in_place);
    // A report that crosses an order says where the job was before.
    if (!comes || Orders::is_sent(job) || std::exchange(job.is_steady, true)) return;
    job.proof_by = now + context_.options.confirm_patience;
}

// The node of the job has come, or says that the job has ended there. A node does not tell of a job
// that is on its way to it.
void JobReports::wants_proof_soon(Job& job, Nanos now) {
    if (Orders::is_sent(job) || claims::relation_of(job.record.report).room_to ||
        job.phase() == JobPhase::starting)
        return;
    job.proof_by = now + context_.options.confirm_patience;
    alarms_.set(job);
}

// A node that was to have the job does not know it: the job is not there, whatever was ordered.
void JobReports::demand_proof(Job& job, Nanos now) {
    job.proof_by = Nanos::never();
    const Node* const silent =
        job.record.unbacked ? nullptr : claims::place_without_word(job, book_);
    if (!silent) return;
    claims::came_to_nothing(job, *silent);
    look_at_backing(job, now);
    if (!job.record.unbacked) return;
    orders_.bar(job, silent->id(), souk::Cause(silent->id() + " does not say that it has the job"),
                now);
    billing_.stop_clock(job, bill::run_time(job, now), now);
    suspended_.note(job, now);
    rooms_.claim(job);
    book_.save(job);
}

}  // namespace souk::market
