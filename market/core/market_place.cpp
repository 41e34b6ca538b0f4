// SPDX-License-Identifier: GPL-2.0-or-later
// Market: from the solver's answer to orders. See market.hpp.
#include <algorithm>
#include <tuple>
#include <utility>

#include "market/core/claims.hpp"
#include "market/core/market.hpp"

namespace souk::market {

// Where the solver has it; null: nowhere.
const Node* Market::target_of(const Job& job) const {
    // What the solver does not know has no place, whoever had its key before.
    return job.in_solver ? book_.node_of(solver_.place(job.key)) : nullptr;
}

void Market::issue(Job& job, Order::Kind kind, const NodeName& node, const Reason& reason,
                   Nanos now, Outputs& out, bool stand) {
    Order order = orders_.make(job, kind, node, reason.text());
    order.stand = stand;
    job.order_reason = reason;
    if (kind == Order::Kind::run) {
        standing_.won(job.key.n, now);
        const Node& to = book_.nodes().at(node);
        claims::ordered(job, to);
        wants_proof_later(job, to, now);
        order.address = to.record.address;
        order.hold = of_gang(job) && job.phase() == JobPhase::waiting;
        order.layouts = order.near = of_gang(job);
        order.price = solver_.price_at_once(job.key).value_or(to.record.report.reserve);
        if (log_) log_->ordered(job, order.price);
        // it does not pay any other now
        if (job.phase() != JobPhase::running) job.record.price = order.price;
        if (log_) log_->in_force(job, now + calendar_);
    }
    if (orders_.next_seq() > book_.meta().seq_limit) book_.save_meta();
    Orders::give(job, order, now);
    book_.save(job);
    claim(job);
    touch(job);
    set_alarm(job);
    out.send.push_back({job.id().home, std::move(order)});
}

// Gives the order that brings a job where the solver has it. False: it waits for others to leave.
bool Market::place_one(Job& job, Nanos now, Outputs& out) {
    const Node* home = home_of(job);
    if (!job.reported || !home || !home->connected) return true;
    if (job.record.cancel) {
        const bool sent = job.record.order && job.record.order->kind == Order::Kind::abort;
        if (!sent && !job.failed->stuck.active)
            issue(job, Order::Kind::abort, {}, Reason::said("cancelled"), now, out);
        return true;
    }
    if (in_transit(job)) return true;
    if (job.record.unbacked) {
        const bool ask = job.phase() == JobPhase::running && job.called_back_at == Nanos::never();
        if (ask && !job.failed->stuck.active && !settling())
            issue(job, Order::Kind::suspend, {}, reason(job), now, out);
        return true;
    }
    if (!job.failed->stuck.active && !settling() && places_.no_node_is_left(job, now)) {
        issue(job, Order::Kind::give_up, {}, Reason::said("no node can execute its program"), now,
              out);
        return true;
    }
    if (!job.in_solver) return true;
    const Node* const target = target_of(job);
    const bool running = job.phase() == JobPhase::running;
    if (!target || job.record.report.where != target->id())
        if (const Reason why = why_to_disk(job); !why.empty()) {
            issue(job, Order::Kind::suspend, {}, why, now, out);
            return true;
        }
    if (!target) {
        if (running && !places_.cannot_leave(job))
            issue(job, Order::Kind::suspend, {}, reason(job), now, out, stands_first(job, now));
        return true;
    }
    if ((running && job.record.report.where == target->id()) || !places_.may_run_at(job, *target))
        return true;
    if (of_gang(job) && !running) return place_gang(job, now, out);
    if (!Admission::has_room(job)) {
        pending_.insert(job);
        return true;
    }
    if (!Places::fits(job, *target)) {
        wants_room_.push_back(&job);
        return false;
    }
    if (Places::stands(job) && job.record.report.where != target->id()) {
        if (!job.failed->stuck.active)
            issue(job, Order::Kind::suspend, {},
                  Reason(ReasonCode::place_elsewhere).with(Figure::node, target->id()), now, out);
        return true;
    }
    issue(job, Order::Kind::run, target->id(), job.reason, now, out);
    return true;
}

void Market::place(Nanos now, Outputs& out) {
    std::vector<Job*> order = pending_.take_any_order();
    std::erase_if(order, [](const Job* job) { return job->phase() == JobPhase::finished; });
    std::sort(order.begin(), order.end(), [](const Job* a, const Job* b) {
        const JobReport &x = a->record.report, &y = b->record.report;
        if (a->bid != b->bid) return a->bid > b->bid;
        return std::tie(x.submitted, x.id) < std::tie(y.submitted, y.id);
    });
    gangs_seen_.clear();
    wants_room_.clear();
    std::vector<Job*> blocked;
    for (Job* job : order)
        if (!place_one(*job, now, out)) {
            pending_.insert(*job);
            blocked.push_back(job);
        }
    for (const Job* job : wants_room_)
        if (const Node* const wanted = target_of(*job)) make_room(*job, *wanted, now, out);
    room_round_ = ++room_search_;
    for (const Job* job : blocked) break_cycle(*job, now, out);
}

// Whether somebody is on the way out of `node`, or will be when somebody who is on the way out
// elsewhere has left. Orders only send more on their way, so a yes holds for the whole round; that
// a node was seen says no until the search ends with yes, or an order is given.
bool Market::will_give_room(Node& node) {
    if (node.gives_room >= room_round_) return true;
    if (std::exchange(node.seen, room_search_) == room_search_) return false;
    const NodeName& name = node.id();
    for (const auto& [id, job] : node.jobs) {
        if (job->claims[0] != name && job->claims[1] != name) continue;
        bool leaves;
        if (in_transit(*job)) {
            leaves = Orders::heading_for(*job) != name;
        } else {
            const Node* const target = target_of(*job);
            leaves = target && target != &node && will_give_room(node_of(target->id()));
        }
        if (!leaves) continue;
        node.gives_room = room_round_;
        return true;
    }
    return false;
}

// Everybody in the way waits for a place that somebody in the same ring has: the least of those who
// are to leave is frozen, and thawed at its new place when the others have moved on.
void Market::break_cycle(const Job& blocked, Nanos now, Outputs& out) {
    const Node* const wanted = target_of(blocked);
    if (!wanted) return;
    if (will_give_room(node_of(wanted->id()))) {
        ++room_search_;
        return;
    }
    Job* least = nullptr;
    for (const auto& [id, job] : wanted->jobs) {
        if (job->phase() != JobPhase::running || in_transit(*job) ||
            job->record.report.where != wanted->id())
            continue;
        const Node* const target = target_of(*job);
        if (!target || target == wanted || places_.cannot_leave(*job)) continue;
        if (!least || job->bid < least->bid) least = job;
    }
    if (!least) return;
    least->via = target_of(*least)->id();
    const Reason reason = Reason(ReasonCode::makes_room)
                              .with(Figure::job, blocked.id().text())
                              .with(Figure::node, least->via);
    issue(*least, Order::Kind::suspend, {}, reason, now, out, stands_first(*least, now));
    ++room_search_;
}

}  // namespace souk::market
