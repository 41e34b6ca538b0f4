// SPDX-License-Identifier: GPL-2.0-or-later
// Market, second part: what homes report of their jobs, orders and their ends, back-off. See
// market.hpp.
#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "market/core/market.hpp"

namespace souk::market {

void Backoff::again(const std::string& because, Nanos now, Nanos min, Nanos max) {
    if (failures > 0 && now > until + max) failures = 0;  // long ago
    Nanos span = min;
    for (uint32_t i = 0; i < failures && span < max; ++i) span = span + span;
    ++failures;
    active = true;
    until = now + std::min(span, max);
    why = because;
}

namespace {

bool steady(JobPhase phase) {
    return phase == JobPhase::waiting || phase == JobPhase::running || phase == JobPhase::frozen ||
           phase == JobPhase::finished;
}

bool fulfils(const JobReport& r, const Order& order) {
    if (r.phase == JobPhase::finished) return true;
    switch (order.kind) {
        case Order::Kind::run: return r.phase == JobPhase::running && r.where == order.node;
        case Order::Kind::suspend:
            return r.phase == JobPhase::frozen || r.phase == JobPhase::waiting;
        case Order::Kind::abort:
        case Order::Kind::give_up: return false;
    }
    return false;
}

}  // namespace

bool Market::in_transit(const Job& job) const {
    return job.record.order.has_value() || !steady(job.phase());
}

// Where a job in transit will run if all goes well; empty: nowhere.
NodeName Market::heading_for(const Job& job) const {
    if (job.record.order && job.record.order->kind == Order::Kind::run)
        return job.record.order->node;
    if (job.record.order && job.record.order->kind == Order::Kind::suspend) return {};
    switch (job.phase()) {
        case JobPhase::starting:
        case JobPhase::running: return job.record.report.where;
        case JobPhase::moving:
        case JobPhase::thawing: return job.record.report.to;
        default: return {};
    }
}

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
    const bool occupies = r.phase == JobPhase::running || r.phase == JobPhase::starting ||
                          r.phase == JobPhase::moving || r.phase == JobPhase::freezing;
    std::array<NodeName, 2> places;
    const bool in_place = r.phase == JobPhase::frozen && r.in_place;
    if (occupies || in_place) places[0] = r.where;
    const NodeName to = !finished && in_transit(job) ? heading_for(job) : NodeName{};
    if (to != places[0]) places[1] = to;
    // What is stopped where it stands has its memory there and no CPU, until it is told to go on.
    const int32_t cpus = in_place && to.empty() ? 0 : r.terms.cpus;
    const NodeName lies_on = finished ? NodeName{} : r.where;
    root(job);
    if (places == job.claims && lies_on == job.lies_on && job.claim_cpus == cpus &&
        job.claim_mb == r.terms.memory_mb)
        return;
    User& user = *job.user;
    days_due_.insert(user.record.uid);
    admit_due_.insert(user.record.uid);
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

void Market::root(Job& job) {
    const bool rooted = is_rooted(job);
    const NodeName on = rooted ? job.record.report.where : NodeName{};
    const int64_t mb = rooted ? job.record.report.terms.memory_mb : 0;
    if (on == job.rooted_on && mb == job.rooted_mb) return;
    for (const bool add : {false, true}) {
        if (!job.rooted_on.empty()) {
            Node& node = node_of(job.rooted_on);
            node.rooted_mb += add ? job.rooted_mb : -job.rooted_mb;
            touch(node);
        }
        if (add) break;
        job.rooted_on = on;
        job.rooted_mb = mb;
    }
    if (rooted)
        rooted_.insert(job.id());
    else
        rooted_.erase(job.id());
}

// The order is over and was not carried out.
void Market::refused(Job& job, const Order& order, const NodeName& blame, const std::string& why,
                     Nanos now) {
    constexpr size_t bars_max = 64;
    const JobReport& r = job.record.report;
    job.via.clear();
    job.once.reset();
    ++job.failures;
    // Its report may still be on the way.
    const bool running = r.phase == JobPhase::running || r.phase == JobPhase::moving ||
                         r.phase == JobPhase::freezing;
    const bool frozen = r.phase == JobPhase::frozen || r.phase == JobPhase::thawing;
    job.last_failed = (order.kind == Order::Kind::suspend ? "the freeze"
                       : order.kind == Order::Kind::abort ? "the cancel"
                       : running                          ? "the move to " + order.node
                       : frozen                           ? "the thaw on " + order.node
                                                          : "the start on " + order.node) +
                      " failed: " + why;
    if (running) {  // where it is it is not for what was meant with it
        job.comment = job.last_failed;
        job.displaced = false;
    }
    if (order.kind == Order::Kind::run &&
        (blame != r.where || r.where == order.node || r.where.empty())) {
        if (job.bars.size() >= bars_max && !job.bars.contains(order.node))
            job.bars.erase(std::min_element(
                job.bars.begin(), job.bars.end(),
                [](const auto& a, const auto& b) { return a.second.until < b.second.until; }));
        back_off(job.bars[order.node], why, now);
    } else {
        back_off(job.stuck, why, now);
    }
}

Status Market::order_failed(const NodeName& node, const OrderFailed& failed, Nanos now) {
    if (failed.id.home != node)
        return fail("node " + node + " reports for job " + failed.id.text() + " of another home");
    Job* job = mutable_job(failed.id);
    if (!job || !job->record.order || job->record.order->seq != failed.seq) return {};
    const Order order = *std::exchange(job->record.order, std::nullopt);
    job->doubt_since = Nanos::never();
    refused(*job, order, failed.node, failed.why, now);
    claim(*job);
    touch(*job);
    set_alarm(*job);
    return {};
}

// After a report: is the order done, lost, or not carried out? `fresh`: the first report since its
// home connected, so whatever was under way to the home before has arrived or never will.
void Market::judge_order(Job& job, bool fresh, Nanos now) {
    const JobReport& r = job.record.report;
    if (!job.record.order) {
        // Its home has frozen it before an order could say so.
        if (r.phase == JobPhase::frozen && job.once == NodeName{}) job.once.reset();
        return;
    }
    if (fulfils(r, *job.record.order)) {
        if (job.record.order->kind == Order::Kind::run) job.bars.erase(job.record.order->node);
        job.stuck = {};
        job.last_failed.clear();
        if (job.once && (job.once->empty() || *job.once == r.where)) job.once.reset();
        if (job.via == r.where && r.phase == JobPhase::running) job.via.clear();
        job.record.order.reset();
        job.doubt_since = Nanos::never();
        return;
    }
    const bool taken = r.order_seq >= job.record.order->seq;
    if (fresh && (steady(r.phase) || !taken)) {
        job.record.order.reset();
        job.doubt_since = Nanos::never();
    } else if (!steady(r.phase) || !taken) {
        job.doubt_since = Nanos::never();
    } else if (job.doubt_since == Nanos::never()) {
        job.doubt_since = now;  // what it says next will tell: its failure, or a later phase
    }
}

Result<Job*> Market::job_to_report(const JobReport& report) {
    if (Job* known = mutable_job(report.id)) return known;
    if (jobs_.size() >= options_.jobs_max)
        return fail("the market has " + std::to_string(options_.jobs_max) + " jobs already");
    Job& job = jobs_[report.id];
    job.record.report.id = report.id;
    job.record.report.uid = report.uid;
    job.user = &user_of(report.uid);
    job.record.billed = job.run_base = report.stats.run_time;  // before the market knew it
    job.record.tab.cpu = report.stats.cpu_time;
    job.key = {next_key_++};
    job_by_key_.insert(job.key.n, job);
    return &job;
}

Status Market::job_report(const NodeName& node, const JobReport& report, Nanos now) {
    if (report.id.home != node)
        return fail("node " + node + " reports job " + report.id.text() + " of another home");
    TRY_ASSIGN(Job* const found, job_to_report(report));
    Job& job = *found;
    noted_.insert(job);
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
    // a home that does not know it any more says no user
    if (job.record.report.uid != job.user->record.uid) {
        job.record.report.uid = job.user->record.uid;
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
    // A larger budget wakes it. (That of now may have a rest too small to run for.)
    const Money budget = report.terms.budget;
    if (budget != before.terms.budget && (budget.micro == 0 || budget > job.record.account.amount))
        job.record.out_of_budget = false;
    set_bid(job, now);
    clock(job, before, ran, now);
    next_seq_ = std::max(next_seq_, report.order_seq + 1);
    judge_order(job, fresh, now);
    if (!report.lacking.empty() && report.phase == JobPhase::waiting) {
        lacking_.insert(job.id());
        pending_.insert(job);
    } else {
        lacking_.erase(job.id());
    }
    if (report.in_place) job.stuck = {};  // it has left as far as it can
    if (report.phase == JobPhase::finished) {
        finish(job, now);
        return {};
    }
    if (report.phase == JobPhase::running) {
        if (job.record.hold == Hold::stay) {
            job.record.hold = Hold::at_node;
            job.record.hold_node = report.where;
        }
        job.displaced = false;
    }
    claim(job);
    touch(job);
    unsaved_.insert(job);
    set_alarm(job);
    return {};
}

void Market::finish(Job& job, Nanos now) {
    close_tab(job);
    job.record.order.reset();
    job.run_base = job.record.billed;
    job.run_since = Nanos::never();
    job.record.hold = Hold::none;
    job.record.finish_seq = ++meta_.finish_seq;
    job.record.ended = now + calendar_;
    job.comment.clear();
    meta_.retired += job.record.account.amount;
    meta_unsaved_ = true;
    finished_.emplace(job.record.finish_seq, job.id());
    claim(job);
    touch(job);
    set_alarm(job);
    pending_.erase(job);
    job.displaced = false;
    unsaved_.insert(job);
    noted_.insert(job);
    job.note_due = true;
}

// -------------------------------------------------------------------------------------------------
// time

// One alarm a job: the first of all that time can change about it.
void Market::set_alarm(Job& job) {
    Nanos at = Nanos::never();
    if (job.phase() != JobPhase::finished) {
        if (job.record.order) at = std::min(at, job.ordered_at + options_.order_patience);
        if (job.doubt_since != Nanos::never())
            at = std::min(at, job.doubt_since + (job.reported ? options_.doubt_patience
                                                              : options_.forgotten_patience));
        for (const auto& [name, bar] : job.bars)
            if (bar.active) at = std::min(at, bar.until);
        if (job.stuck.active) at = std::min(at, job.stuck.until);
        at = std::min({at, budget_end(job), job.bid_until});
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

void Market::job_alarm(Job& job, Nanos now) {
    const JobReport& r = job.record.report;
    const bool doubtful = job.doubt_since != Nanos::never();
    if (doubtful && !job.reported && now >= job.doubt_since + options_.forgotten_patience) {
        account_until(job, run_time(job, now), now);
        job.record.report.phase = JobPhase::finished;
        job.record.report.why = "its home node " + job.id().home + " no longer knows it";
        return finish(job, now);
    }
    const bool in_doubt =
        doubtful && job.reported && now >= job.doubt_since + options_.doubt_patience;
    const bool silent = job.record.order && now >= job.ordered_at + options_.order_patience;
    if (job.record.order && (in_doubt || silent)) {
        const Order order = *std::exchange(job.record.order, std::nullopt);
        job.doubt_since = Nanos::never();
        const std::string why =
            in_doubt && !r.comment.empty() ? r.comment : "its home node did not carry it out";
        refused(job, order, order.node, why, now);
        claim(job);
    }
    if (job.run_since != Nanos::never() && now >= surely_stopped(job)) {
        job.run_base = run_time(job, now);
        account_until(job, job.run_base, now);
        job.run_since = Nanos::never();
    }
    if (now >= budget_end(job)) {
        account_until(job, run_time(job, now), now);
        job.record.out_of_budget = true;
    }
    if (now >= job.bid_until) set_bid(job, now);
    // A back-off that is over leaves its count behind for a while, so that the next one is longer.
    for (auto& [name, bar] : job.bars) bar.active = bar.active && now < bar.until;
    job.stuck.active = job.stuck.active && now < job.stuck.until;
    touch(job);
    set_alarm(job);
}

}  // namespace souk::market
