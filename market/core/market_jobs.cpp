// SPDX-License-Identifier: GPL-2.0-or-later
// Market, second part: what homes report of their jobs, orders and their ends, back-off. See
// market.hpp.
#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "market/core/claims.hpp"
#include "market/core/market.hpp"
#include "market/core/use_check.hpp"

namespace souk::market {

void Market::list_at(Job& job, const NodeName& name, bool add) {
    if (name.empty()) return;
    Node& node = node_of(name);
    if (add)
        node.jobs.emplace(job.id(), &job);
    else
        node.jobs.erase(job.id());
    touch(node);
}

// Makes its room count where it is and where it goes.
void Market::claim(Job& job) {
    const JobReport& r = job.record.report;
    const bool finished = r.phase == JobPhase::finished;
    const bool backed = !job.record.unbacked;
    std::array<NodeName, 2> places;
    const bool in_place =
        (r.phase == JobPhase::frozen || r.phase == JobPhase::freezing) && r.in_place;
    if (backed && claims::relation_of(r).room_where) places[0] = r.where;
    // An order is the market's own word.
    const bool goes = !finished && in_transit(job) && (backed || is_sent(job));
    const NodeName to = goes ? Orders::heading_for(job) : NodeName{};
    if (to != places[0]) places[1] = to;
    // What is stopped where it stands has its memory there and no CPU, until it is told to go on.
    const int32_t cpus = in_place && to.empty() ? 0 : r.terms.cpus;
    const NodeName lies_on = finished || !backed ? NodeName{} : r.where;
    root(job);
    if (places == job.claims && lies_on == job.lies_on && job.claim_cpus == cpus &&
        job.claim_mb == r.terms.memory_mb)
        return;
    User& user = *job.user;
    days_.changed(user.record.uid);
    admission_.changed(user.record.uid);
    if (user.claiming.erase(job.id()) > 0) user.cpus -= job.claim_cpus;
    for (const NodeName& name : job.claims) {
        if (name.empty()) continue;
        node_of(name).used_cpus -= job.claim_cpus;
        node_of(name).used_mb -= job.claim_mb;
        list_at(job, name, false);
    }
    list_at(job, job.lies_on, false);
    job.claims = places;
    job.lies_on = lies_on;
    job.claim_cpus = cpus;
    job.claim_mb = r.terms.memory_mb;
    if (cpus > 0 && places != std::array<NodeName, 2>{}) {
        user.claiming.insert(job.id());
        user.cpus += job.claim_cpus;
    }
    for (const NodeName& name : job.claims) {
        if (name.empty()) continue;
        node_of(name).used_cpus += job.claim_cpus;
        node_of(name).used_mb += job.claim_mb;
        list_at(job, name, true);
    }
    list_at(job, job.lies_on, true);
}

// What it holds of a node's memory that is nobody's to give, and what goes to who wins it.
void Market::root(Job& job) {
    const JobReport& r = job.record.report;
    const auto note = [&](bool holds, Sparse<NodeName>& on, int64_t& mb, int64_t Node::*sum) {
        const NodeName now_on = holds ? r.where : NodeName{};
        const int64_t now_mb = holds ? r.terms.memory_mb : 0;
        if (on == now_on && mb == now_mb) return false;
        for (const bool add : {false, true}) {
            if (!on.empty()) {
                Node& node = node_of(on);
                node.*sum += add ? mb : -mb;
                touch(node);
            }
            if (add) break;
            on = now_on;
            mb = now_mb;
        }
        return true;
    };
    const bool fast = Places::stands_fast(job);
    note(Places::stands(job) && !fast, job.standing_on, job.standing_mb, &Node::standing_mb);
    if (note(Places::is_rooted(job) || fast, job.rooted_on, job.rooted_mb, &Node::rooted_mb))
        places_.note_rooted(job);
}

Status Market::order_failed(const NodeName& node, const OrderFailed& failed, Nanos now) {
    if (failed.id.home != node)
        return fail("node " + node + " reports for job " + failed.id.text() + " of another home");
    Job* job = mutable_job(failed.id);
    const Node* const meant =
        job && job->record.order ? find_node(job->record.order->node) : nullptr;
    if (!job || !orders_.failed(*job, failed, now)) return {};
    if (meant && job->record.report.where != meant->id()) claims::came_to_nothing(*job, *meant);
    claim(*job);
    touch(*job);
    set_alarm(*job);
    return {};
}

// -------------------------------------------------------------------------------------------------
// claims (claims.hpp), and jobs for which the book has no room
//
// An order backs the home's word for a while alone: from when the job is steady there, or the order
// is old, a node that tells how long its guests run must have told of this one.

// An order to run somewhere is outstanding.
bool Market::is_sent(const Job& job) {
    return job.record.order && job.record.order->kind == Order::Kind::run;
}

// A place that was backed is backed again, by its home's and nodes' words at the latest.
void Market::resume_backing(Job& job, Nanos now) {
    const JobRecord& r = job.record;
    if (!r.unbacked)
        for (const NodeName& name : {r.report.where, r.report.to})
            if (!name.empty()) claims::ordered(job, node_of(name));
    if (is_sent(job)) claims::ordered(job, node_of(r.order->node));
    look_at_backing(job, now);
}

// The book has no room for it. Its home keeps it, and tells its user why.
void Market::turn_away(const JobReport& report, const Error& why, Nanos now) {
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

void Market::ask_again(Nanos now, Outputs& out) {
    const auto has_room = [this](const NodeName& home) { return book_.has_room(home).has_value(); };
    const auto knows = [this](const JobId& id) { return find(id) != nullptr; };
    for (const JobId& id : refusals_.due(now, has_room, knows))
        out.send.push_back({id.home, orders_.ask(id)});
    if (orders_.next_seq() > book_.meta().seq_limit) book_.save_meta();
}

// Whether what its newest report claims counts. A home that says more than the market knows is
// asked for the job after a while: it is to freeze it to its disk, from where the market may place
// it.
void Market::look_at_backing(Job& job, Nanos now) {
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
    // It has its time at each node, also after a restart: that one may be about to tell of it.
    if (!was || awaited != job.record.report.where)
        job.called_back_at = now + options_.confirm_patience;
}

// A node has said something or come: what it may confirm.
void Market::back_by(const JobId& id, Nanos now) {
    Job& job = book_.jobs().at(id);
    begin_day(now);
    look_at_backing(job, now);
    if (job.record.unbacked) return;
    const JobReport report = job.record.report;
    clock(job, report, run_time(job, now), now);
    note_steady(job, now);
    note_standing(job, now);
    claim(job);
    touch(job);
    book_.save(job);
    set_alarm(job);
}

// It runs nowhere that the market knows of. It pays for what it has run until now where it was.
void Market::stop_clock(Job& job, Nanos ran, Nanos now) {
    job.run_base = account_until(job, ran, now);
    close_tab(job, now);
    job.run_since = Nanos::never();
    days_.changed(job.user->record.uid);
    use_check::ended(job.record);
    settle_use(job, now);
    if (bill::is_used_up(job)) job.record.out_of_budget = true;
}

// It was ordered somewhere just now. Its memory goes there first, perhaps by a slow line.
void Market::wants_proof_later(Job& job, const Node& to, Nanos now) {
    constexpr int64_t slow_mb_per_s = 10;
    const int64_t limit_mb = job.record.report.terms.memory_mb;
    const int64_t memory_mb = limit_mb > 0 ? limit_mb : to.record.report.memory_mb;
    job.proof_by = now + options_.order_patience + Nanos::from_s(memory_mb / slow_mb_per_s);
    job.is_steady = false;
}

// After a report that is backed: a job that has come where it goes is told of there soon.
void Market::note_steady(Job& job, Nanos now) {
    const JobReport& r = job.record.report;
    const bool comes = r.phase == JobPhase::running || (r.phase == JobPhase::frozen && r.in_place);
    // A report that crosses an order says where it was before.
    if (!comes || is_sent(job) || std::exchange(job.is_steady, true)) return;
    job.proof_by = now + options_.confirm_patience;
}

// Its node comes, or says that it has ended. A node does not tell of what is on its way to it.
void Market::wants_proof_soon(Job& job, Nanos now) {
    if (is_sent(job) || claims::relation_of(job.record.report).room_to ||
        job.phase() == JobPhase::starting)
        return;
    job.proof_by = now + options_.confirm_patience;
    set_alarm(job);
}

// A node that was to have it does not know it: it is not there, whatever was ordered.
void Market::demand_proof(Job& job, Nanos now) {
    job.proof_by = Nanos::never();
    const Node* const silent =
        job.record.unbacked ? nullptr : claims::place_without_word(job, book_);
    if (!silent) return;
    claims::came_to_nothing(job, *silent);
    look_at_backing(job, now);
    if (!job.record.unbacked) return;
    orders_.bar(job, silent->id(), souk::Cause(silent->id() + " does not say that it has the job"),
                now);
    stop_clock(job, run_time(job, now), now);
    note_standing(job, now);
    claim(job);
    book_.save(job);
}

// -------------------------------------------------------------------------------------------------
// reports

// The job that is reported; null: there is nothing to be done about it.
Result<Job*> Market::let_in(const NodeName& node, const JobReport& report, Nanos now) {
    TRY(claims::sound(node, report));
    const bool is_known = find(report.id);
    if (!is_known && report.phase == JobPhase::finished &&
        report.why->code == CauseCode::home_forgot)
        return nullptr;  // it was asked for it
    const Result<Job*> found = book_.admit(report);
    if (!found) {
        turn_away(report, found.error(), now);
        return nullptr;
    }
    if (!is_known) refusals_.taken(node);
    Job& job = **found;
    if (options_.metered && !job.user->funds) open_account(*job.user);
    if (!is_known) claims::keep_ties(job.record.report, report);  // of now, for good
    return &job;
}

void Market::note_lacking(Job& job) {
    if (!job.record.report.lacking.empty() && job.phase() == JobPhase::waiting) {
        lacking_.insert(job.id());
        pending_.insert(job);
    } else {
        lacking_.erase(job.id());
    }
}

Status Market::job_report(const NodeName& node, const JobReport& report, Nanos now) {
    TRY_ASSIGN(Job* const known, let_in(node, report, now));
    if (!known) return {};
    Job& job = *known;
    notes_.of(job);
    if (job.record.finish_seq > 0) {  // its account is closed: say so again
        job.note_due = true;
        dirty_ = true;
        return {};
    }
    const bool fresh = !std::exchange(job.reported, true);
    if (fresh) {
        job.doubt_since = Nanos::never();
        job.note_due = true;  // what was on its way may be lost
    }
    const Nanos ran = run_time(job, now);
    JobReport before = std::exchange(job.record.report, report);
    claims::keep_ties(job.record.report, before);
    if (!is_on_its_way(job) || report.epoch != before.epoch) job.sending.reset();
    if (job.record.report.uid != before.uid) {  // its home does not know it any more
        job.record.report.uid = before.uid;
        job.record.report.user = before.user;
    }
    // its home does not know it: only the end of it is told
    if (report.terms.max_price.micro <= 0) {
        before.phase = JobPhase::finished;
        before.why = report.why;
        job.record.report = std::move(before);
        account_until(job, ran, now);
        finish(job, now);
        return {};
    }
    choose_payer(job, now);
    // A larger budget wakes it. (That of now may have a rest too small to run for.)
    const Money budget = report.terms.budget;
    if (budget != before.terms.budget && (budget.micro == 0 || budget > job.record.account.amount))
        job.record.out_of_budget = false;
    set_bid(job, now);
    if (report.phase == JobPhase::waiting && !claims::may_be_at(job, report.where, book_))
        job.record.report.where.clear();
    look_at_backing(job, now);
    if (job.record.unbacked)
        stop_clock(job, ran, now);
    else
        clock(job, before, ran, now);
    orders_.used(report.order_seq);
    Orders::judge(job, fresh, now);
    if (!job.record.unbacked) note_steady(job, now);
    note_lacking(job);
    Failed* const failed = job.failed.stored();
    if (failed && report.in_place && !report.cannot_move.empty())
        failed->stuck = {};  // as far as it can
    if (report.phase == JobPhase::finished) return finish(job, now), Status();
    if (report.phase == JobPhase::running) {
        if (job.record.hold == Hold::stay) {
            job.record.hold = Hold::at_node;
            job.record.hold_node = report.where;
        }
        // One from before a freeze that is decided says "running" too.
        if (solver_.place(job.key).n != 0) job.displaced = false;
    }
    note_standing(job, now);
    claim(job);
    touch(job);
    book_.save(job);
    set_alarm(job);
    return {};
}

// A component of a gang waits for others, and one that stopped or moved is of several speeds.
void Market::note_speed(const Job& job) {
    const JobReport& r = job.record.report;
    const JobStats& s = r.stats;
    const bool whole = r.places.size() == 1 && s.migrations == 0 && s.freezes == 0 &&
                       s.thaws == 0 && s.resumes == 0;
    if (!whole || r.wait_status != 0 || !r.why.empty() || !r.gang.empty() || r.cancelled) return;
    // It was paid for there, or nobody has seen it run.
    if (job.record.payee != r.places.front() || find_node(r.places.front()) == nullptr) return;
    Node& node = node_of(r.places.front());
    const int64_t before = speed_found(node);
    const int64_t claimed = node.record.report.speed;
    if (!speeds_.ended({node.id(), claimed, r.uid, r.command, job.record.billed, s.cpu_time}))
        return;
    const int64_t found = speed_found(node);
    if (found != before) speed_marks_.push_back({node.id(), claimed, found});
}

void Market::finish(Job& job, Nanos now) {
    close_tab(job, now);
    note_speed(job);
    look_at_backing(job, now);
    job.record.order.reset();
    job.run_base = job.record.billed;
    job.run_since = Nanos::never();
    note_wait(job, false, now);
    job.record.hold = Hold::none;
    job.reason.clear();
    standing_.forget(job.key.n);
    job.stands_until = Nanos::never();
    book_.finish(job, now + calendar_);
    claim(job);
    touch(job);
    set_alarm(job);
    pending_.erase(job);
    job.displaced = false;
    book_.save(job);
    notes_.of(job);
    job.note_due = true;
}

// -------------------------------------------------------------------------------------------------
// time

// One alarm a job: the first of all that time can change about it.
void Market::set_alarm(Job& job) {
    Nanos at = Nanos::never();
    if (job.phase() != JobPhase::finished) {
        at = std::min({orders_.due(job), bill::budget_end(job), job.bid_until, job.weighs_until,
                       job.called_back_at, job.proof_by});
        if (!job.stood_enough) at = std::min(at, job.stands_until);
        if (job.run_since != Nanos::never()) {
            at = std::min(at, surely_stopped(job));
        }
    }
    alarms_.set(job.alarm, job.id(), at);
}

// When a job that runs, as far as is known, is sure not to, or cannot be vouched for: its node is
// lost, or its home is away for longer than its node lets it run alone.
Nanos Market::surely_stopped(const Job& job) const {
    const JobReport& r = job.record.report;
    Nanos at = Nanos::never();
    if (const Node* node = find_node(r.where); node && !node->connected)
        at = node->lost_at + options_.grace;
    const Node* home = home_of(job);
    if (r.alone.ns > 0 && home && !home->connected) at = std::min(at, home->lost_at + r.alone);
    return at;
}

// Nobody answers for it any more: as far as the market is concerned it has ended.
void Market::lose_home(Job& job, Nanos now) {
    account_until(job, run_time(job, now), now);
    job.record.report.phase = JobPhase::finished;
    job.record.report.why = {CauseCode::home_forgot,
                             "its home node " + job.id().home + " no longer knows it"};
    finish(job, now);
}

void Market::job_alarm(Job& job, Nanos now) {
    if (orders_.is_forgotten(job, now)) return lose_home(job, now);
    if (orders_.gives_up(job, now)) claim(job);
    if (job.run_since != Nanos::never() && now >= surely_stopped(job)) {
        job.run_base = run_time(job, now);
        account_until(job, job.run_base, now);
        job.run_since = Nanos::never();
    }
    if (now >= bill::budget_end(job)) {
        account_until(job, run_time(job, now), now);
        job.record.out_of_budget = true;
    }
    if (now >= job.bid_until) set_bid(job, now);
    if (now >= job.weighs_until) job.weighs_until = Nanos::never();  // it is touched below
    if (now >= job.stands_until) job.stood_enough = true;
    if (now >= job.proof_by) demand_proof(job, now);
    if (now >= job.called_back_at) job.called_back_at = Nanos::never();  // place_one asks
    Orders::end_back_offs(job, now);
    root(job);
    touch(job);
    set_alarm(job);
}

}  // namespace souk::market
