// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/orders.hpp"

#include <algorithm>
#include <utility>

#include "market/core/site_guests.hpp"

namespace souk::market {

void Backoff::again(const souk::Cause& because, Nanos now, Nanos min, Nanos max) {
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
            // one that cannot be dumped has left as far as it can
            if (r.phase == JobPhase::frozen)
                return order.stand || !r.in_place || !r.cannot_move.empty();
            return r.phase == JobPhase::waiting;
        case Order::Kind::abort:
        case Order::Kind::give_up: return false;
    }
    return false;
}

}  // namespace

Order Orders::make(const Job& job, Order::Kind kind, const NodeName& node, std::string reason) {
    Order order;
    order.id = job.id();
    order.seq = next_seq_++;
    order.kind = kind;
    order.node = node;
    order.reason = std::move(reason);
    return order;
}

// The job stays as it is, and is reported; at a home of the version before one that runs stands.
Order Orders::ask(const JobId& id) {
    Order order;
    order.id = id;
    order.seq = next_seq_++;
    order.kind = Order::Kind::suspend;
    order.stand = order.asks = true;
    order.reason = "the market may take it now";
    return order;
}

std::optional<Ticket> Orders::ticket(const Job& job, const Order& order) {
    const JobReport& r = job.record.report;
    const NodeName& home = order.id.home;
    if (order.kind != Order::Kind::run) return std::nullopt;
    const bool begins = job.phase() == JobPhase::waiting;
    // nobody else has a part in it
    if (order.node == home && (begins || r.where == home)) return std::nullopt;
    Ticket t;
    t.id = order.id;
    t.number = order.seq;
    t.uid = is_of_site(t.id) ? r.uid_there : r.uid;
    t.user = r.user;
    if (is_of_site(t.id)) {
        t.realm = of_site(home).site;
        t.user.erase(0, t.realm.size() + 1);
        t.account = job.record.filter->account;
    }
    if (!begins) t.source = r.where;
    t.destination = order.node;
    t.address = order.address;
    t.cpus = r.terms.cpus;
    t.memory_mb = r.terms.memory_mb;
    t.job_address = r.address;
    t.names_address = true;
    t.resources = *r.terms.resources;
    return t;
}

void Orders::give(Job& job, const Order& order, Nanos now) {
    job.record.order = order;
    job.ordered_at = now;
    job.doubt_since = Nanos::never();
}

bool Orders::in_transit(const Job& job) {
    return job.record.order.has_value() || !steady(job.phase());
}

NodeName Orders::heading_for(const Job& job) {
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

// The order is over and was not carried out.
void Orders::refused(Job& job, const Order& order, const NodeName& blame, const souk::Cause& why,
                     Nanos now) const {
    const JobReport& r = job.record.report;
    job.via.clear();
    job.once.reset();
    // Another component of its gang could not start: its own place is as good as before.
    if (why.code == CauseCode::components_taken_back || why.code == CauseCode::components_late)
        return;
    Failed& failed = job.failed.edit();
    ++failed.times;
    // Its report may still be on the way.
    const bool running = r.phase == JobPhase::running || r.phase == JobPhase::moving ||
                         r.phase == JobPhase::freezing;
    const bool frozen = r.phase == JobPhase::frozen || r.phase == JobPhase::thawing;
    const std::string what = order.kind == Order::Kind::suspend ? "the freeze"
                             : order.kind == Order::Kind::abort ? "the cancel"
                             : running                          ? "the move to " + order.node
                             : frozen                           ? "the thaw on " + order.node
                                                                : "the start on " + order.node;
    failed.last = why.within(what + " failed: ");
    if (running) {  // where it is it is not for what was meant with it
        job.reason = Reason(ReasonCode::order_failed).with(Figure::cause, failed.last);
        job.displaced = false;
    }
    if (order.kind == Order::Kind::run &&
        (blame != r.where || r.where == order.node || r.where.empty())) {
        bar(job, order.node, why, now);
    } else {
        failed.stuck.again(why, now, limits_.backoff_min, limits_.backoff_max);
    }
}

void Orders::bar(Job& job, const NodeName& node, const souk::Cause& why, Nanos now) const {
    constexpr size_t bars_max = 64;
    auto& bars = job.failed.edit().bars;
    if (bars.size() >= bars_max && !bars.contains(node))
        bars.erase(std::min_element(bars.begin(), bars.end(), [](const auto& a, const auto& b) {
            return a.second.until < b.second.until;
        }));
    bars[node].again(why, now, limits_.backoff_min, limits_.backoff_max);
}

bool Orders::failed(Job& job, const OrderFailed& failed, Nanos now) const {
    if (!job.record.order || job.record.order->seq != failed.seq) return false;
    const Order order = *std::exchange(job.record.order, {});
    job.doubt_since = Nanos::never();
    refused(job, order, failed.node, failed.why, now);
    return true;
}

void Orders::judge(Job& job, bool fresh, Nanos now) {
    const JobReport& r = job.record.report;
    if (!job.record.order) {
        // Its home has frozen it before an order could say so.
        const bool stands = r.in_place && r.cannot_move.empty();
        if (r.phase == JobPhase::frozen && !stands && job.once == NodeName{}) job.once.reset();
        return;
    }
    if (fulfils(r, *job.record.order)) {
        if (Failed* const failed = job.failed.stored()) {
            if (job.record.order->kind == Order::Kind::run)
                failed->bars.erase(job.record.order->node);
            failed->stuck = {};
            failed->last.clear();
        }
        // An order by hand is still to be carried out while the job is only stopped.
        const bool on_disk = r.phase != JobPhase::frozen || !r.in_place || !r.cannot_move.empty();
        const bool done =
            job.once &&
            (job.once->empty() ? on_disk : *job.once == r.where && r.phase == JobPhase::running);
        if (done || r.phase == JobPhase::finished) job.once.reset();
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

// -------------------------------------------------------------------------------------------------
// time

Nanos Orders::due(const Job& job) const {
    Nanos at = Nanos::never();
    if (job.record.order) at = std::min(at, job.ordered_at + limits_.order_patience);
    if (job.doubt_since != Nanos::never())
        at = std::min(at, job.doubt_since +
                              (job.reported ? limits_.doubt_patience : limits_.forgotten_patience));
    for (const auto& [name, bar] : job.failed->bars)
        if (bar.active) at = std::min(at, bar.until);
    if (job.failed->stuck.active) at = std::min(at, job.failed->stuck.until);
    return at;
}

bool Orders::is_forgotten(const Job& job, Nanos now) const {
    return job.doubt_since != Nanos::never() && !job.reported &&
           now >= job.doubt_since + limits_.forgotten_patience;
}

bool Orders::gives_up(Job& job, Nanos now) const {
    const JobReport& r = job.record.report;
    const bool in_doubt = job.doubt_since != Nanos::never() && job.reported &&
                          now >= job.doubt_since + limits_.doubt_patience;
    const bool silent = job.record.order && now >= job.ordered_at + limits_.order_patience;
    if (!job.record.order || (!in_doubt && !silent)) return false;
    const Order order = *std::exchange(job.record.order, {});
    job.doubt_since = Nanos::never();
    const souk::Cause why =
        in_doubt && !r.comment.empty()
            ? *r.comment
            : souk::Cause(CauseCode::not_carried_out, "its home node did not carry it out");
    refused(job, order, order.node, why, now);
    return true;
}

// A back-off that is over leaves its count behind for a while, so that the next one is longer.
void Orders::end_back_offs(Job& job, Nanos now) {
    Failed* const failed = job.failed.stored();
    if (!failed) return;
    for (auto& [name, bar] : failed->bars) bar.active = bar.active && now < bar.until;
    failed->stuck.active = failed->stuck.active && now < failed->stuck.until;
}

}  // namespace souk::market
