// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/placement.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "market/core/claims.hpp"
#include "market/core/equal_jobs.hpp"
#include "market/core/site_guests.hpp"

namespace souk::market {

namespace {

// The component was ordered to thaw, and is held for the others. The order may have left before its
// home said that the others are frozen, too.
bool is_thawing(const Job& job) {
    const auto& order = job.record.order;
    if (job.record.cancel || (order && order->kind != Order::Kind::run)) return false;
    return job.phase() == JobPhase::thawing || (order && job.phase() == JobPhase::frozen);
}

// Another site has given the component a place, where its home holds it for the others, or it runs.
bool has_begun_away(const Job& job) {
    const auto& order = job.record.order;
    const JobPhase p = job.phase();
    return (order && order->kind == Order::Kind::run) || p == JobPhase::starting ||
           p == JobPhase::thawing || p == JobPhase::running || p == JobPhase::moving;
}

// A job of this site runs on a node of another one that does not have it.
bool is_stray(const Job& job) {
    return job.phase() == JobPhase::running && !is_of_site(job.id()) &&
           !of_site(job.record.report.where).site.empty();
}

// The room that the components of a gang that is to begin take on each node.
class GangRoom {
  public:
    // False: the component does not fit there beside those that were put before.
    bool put(const Job& job, const Node& target) {
        if (job.booked == Booked::inside) return true;
        const JobTerms& t = job.record.report.terms;
        auto& [cpus, mb] = taken_[&target];
        const bool stands_there = Places::is_rooted(job) && job.record.report.where == target.id();
        const int64_t more_mb = stands_there ? 0 : t.memory_mb;
        if (target.used_cpus + cpus + t.cpus > target.record.report.cpus ||
            target.used_mb + mb + more_mb > Places::memory_of(target))
            return false;
        cpus += t.cpus;
        mb += more_mb;
        return true;
    }

  private:
    std::map<const Node*, std::pair<int64_t, int64_t>> taken_;  // CPUs, MB
};

}  // namespace

void Placement::issue(Job& job, Order::Kind kind, const NodeName& node, const Reason& reason,
                      Nanos now, Outputs& out, bool stand) {
    lent_.take_back(job, {});
    Order order = orders_.make(job, kind, node, reason.text());
    order.stand = stand;
    job.order_reason = reason;
    if (kind == Order::Kind::run) {
        suspended_.won(job, now);
        const Node& to = book_.nodes().at(node);
        claims::ordered(job, to);
        reports_.wants_proof_later(job, to, now);
        order.address = to.record.address;
        order.hold = is_component(job) && job.phase() == JobPhase::waiting;
        order.layouts = order.near = is_component(job);
        order.resources = *job.record.report.terms.resources;
        order.price = booked_price(job).value_or(
            solver_.price_at_once(job.key).value_or(to.record.report.reserve));
        order.books = true;
        order.speed = std::clamp<int64_t>(to.record.report.speed, 1, speed_max);
        if (context_.log && !booked_price(job)) context_.log->ordered(job, order.price);
        // A job that does not run pays no other price now.
        if (job.phase() != JobPhase::running) job.record.price = order.price;
        if (context_.log) context_.log->in_force(job, context_.unix(now));
    }
    if (orders_.next_seq() > book_.meta().seq_limit) book_.save_meta();
    Orders::give(job, order, now);
    book_.save(job);
    rooms_.claim(job);
    work_.touch(job);
    alarms_.set(job);
    out.send.push_back({job.id().home, std::move(order)});
}

void Placement::place(Nanos now, Outputs& out) {
    std::vector<Job*> order = work_.take_pending();
    std::erase_if(order, [](const Job* job) { return job->phase() == JobPhase::finished; });
    std::sort(order.begin(), order.end(), [](const Job* a, const Job* b) {
        if (a->bid != b->bid) return a->bid > b->bid;
        return std::pair(a->record.arrived, a->id()) < std::pair(b->record.arrived, b->id());
    });
    gangs_seen_.clear();
    wants_room_.clear();
    std::vector<Job*> blocked;
    for (Job* job : order)
        if (!place_one(*job, now, out)) {
            work_.place(*job);
            blocked.push_back(job);
        }
    for (const Job* job : wants_room_)
        if (const Node* const wanted = allocation_.target_of(*job))
            make_room(*job, *wanted, now, out);
    room_round_ = ++room_search_;
    for (const Job* job : blocked) break_cycle(*job, now, out);
}

// Gives the order that brings the job where the solver has it. False: the job waits for others to
// leave.
bool Placement::place_one(Job& job, Nanos now, Outputs& out) {
    const Node* home = book_.home_of(job);
    if (!job.reported || !home || !home->connected) return true;
    if (job.record.cancel) {
        const bool sent = job.record.order && job.record.order->kind == Order::Kind::abort;
        if (!sent && !job.failed->stuck.active)
            issue(job, Order::Kind::abort, {}, Reason::said("cancelled"), now, out);
        return true;
    }
    if (Orders::in_transit(job)) return true;
    if (is_lent(job)) return lent_.settle(job) || place_lent(job, now, out);
    if (is_stray(job)) {
        if (!job.failed->stuck.active && !settling_.is_on())
            issue(job, Order::Kind::suspend, {}, Reason::said("its own site takes it back"), now,
                  out);
        return true;
    }
    if (job.record.unbacked) {
        const bool ask = job.phase() == JobPhase::running && job.called_back_at == Nanos::never();
        if (ask && !job.failed->stuck.active && !settling_.is_on())
            issue(job, Order::Kind::suspend, {}, explain_.reason(job), now, out);
        return true;
    }
    if (!job.failed->stuck.active && !settling_.is_on() && places_.no_node_is_left(job, now)) {
        issue(job, Order::Kind::give_up, {}, Reason::said("no node can execute its program"), now,
              out);
        return true;
    }
    if (!job.in_solver) return true;
    const Node* const target = allocation_.target_of(job);
    if (target && job.booked == Booked::clears) {
        if (!places_.fits(job, *target)) wants_room_.push_back(&job);
        return true;
    }
    if (!target || job.record.report.where != target->id())
        if (const Reason why = suspended_.why_to_disk(job); !why.empty()) {
            issue(job, Order::Kind::suspend, {}, why, now, out);
            return true;
        }
    if (!target) {
        if (job.phase() == JobPhase::running && !places_.cannot_leave(job))
            issue(job, Order::Kind::suspend, {}, explain_.reason(job), now, out,
                  suspended_.stands_first(job, now));
        return true;
    }
    return place_at(job, *target, now, out);
}

// Another site has it: it is stopped there, or moves back when its place here is clear.
bool Placement::place_lent(Job& job, Nanos now, Outputs& out) {
    if (job.phase() != JobPhase::running) return true;
    if (lent_.must_stop(job)) {
        lent_.recall(job);
        if (!job.failed->stuck.active)
            issue(job, Order::Kind::suspend, {}, explain_.reason(job), now, out);
        return true;
    }
    const Node* to = lent_.way_back(job);
    if (!to) return true;
    if (lent_.wants_home(job)) {
        const Node* const won = allocation_.target_of(job);
        if (!won) return true;
        const Money price = solver_.price_at_once(job.key).value_or(won->record.report.reserve);
        if (won != to && !lent_.goes_to(job, *won, price)) {
            lent_.lost_place(job);
            return true;
        }
        to = won;
    }
    if (!places_.may_run_at(job, *to)) return true;
    if (!places_.fits(job, *to)) {
        wants_room_.push_back(&job);
        return false;
    }
    lent_.has_place(job);
    return true;
}

bool Placement::place_at(Job& job, const Node& target, Nanos now, Outputs& out) {
    const bool running = job.phase() == JobPhase::running;
    const bool is_there = job.record.report.where == target.id();
    if ((running && is_there) || !places_.may_run_at(job, target)) return true;
    if (is_component(job) && !running) return place_gang(job, now, out);
    if (!Admission::has_room(job)) {
        work_.place(job);
        return true;
    }
    if (!places_.fits(job, target)) {
        wants_room_.push_back(&job);
        return false;
    }
    if (Places::stands(job) && !is_there) {
        if (!job.failed->stuck.active)
            issue(job, Order::Kind::suspend, {},
                  Reason(ReasonCode::place_elsewhere).with(Figure::node, target.id()), now, out);
        return true;
    }
    issue(job, Order::Kind::run, target.id(), job.reason, now, out);
    return true;
}

// Gives orders to all required components that do not run, or to none: nobody is held for one that
// has no place yet. An optional one that has a place gets its order with them, or later. False: the
// gang waits for others to leave.
bool Placement::place_gang(Job& job, Nanos now, Outputs& out) {
    if (!gangs_seen_.insert(gang_name(job)).second) return true;
    std::vector<Job*> all = gangs_.of(job), begin;
    std::stable_partition(all.begin(), all.end(),
                          [](const Job* one) { return !is_optional(*one); });
    if (all.empty() || is_optional(*all.front())) return true;
    GangRoom room;
    const bool thaws = std::any_of(all.begin(), all.end(), [](const Job* one) {
        return !is_optional(*one) && is_thawing(*one);
    });
    bool refused = false;
    for (Job* one : all) {
        if (is_thawing(*one)) continue;  // and has its room
        if (is_away(*one)) {
            if (has_begun_away(*one)) continue;
            return true;
        }
        const bool settled =
            one->in_solver && one->reported && !one->record.cancel && !Orders::in_transit(*one);
        if (settled && one->phase() == JobPhase::running) continue;
        const Node* const target = settled ? allocation_.target_of(*one) : nullptr;
        const bool late = thaws && one->phase() != JobPhase::frozen;
        if (one->booked == Booked::clears) return true;
        if (!target || late || !places_.may_run_at(*one, *target)) {
            if (is_optional(*one)) continue;
            return true;
        }
        if (!Admission::has_room(*one)) {
            work_.place(*one);
            if (is_optional(*one)) continue;
            return true;
        }
        if (room.put(*one, *target)) {
            begin.push_back(one);
            continue;
        }
        wants_room_.push_back(one);
        if (is_optional(*one))
            work_.place(*one);
        else
            refused = true;
    }
    if (refused) return false;
    for (Job* one : begin)
        issue(*one, Order::Kind::run, allocation_.target_of(*one)->id(), one->reason, now, out);
    return true;
}

// Sends so many of the jobs that stand there to disk that all who have places there fit.
void Placement::make_room(const Job& blocked, const Node& node, Nanos now, Outputs& out) {
    for (Job* const job : suspended_.who_goes(node, now))
        issue(*job, Order::Kind::suspend, {},
              Reason(ReasonCode::memory_wanted)
                  .with(Figure::node, node.id())
                  .with(Figure::job, blocked.id().text()),
              now, out);
}

// Whether a job is on its way out of `node`, or will be when one that is on its way out elsewhere
// has left. Orders only send more jobs on their way, so a yes holds for the whole round. A node
// that was seen says no until the search ends with yes, or an order is given.
bool Placement::will_give_room(Node& node) {
    if (node.gives_room >= room_round_) return true;
    if (std::exchange(node.seen, room_search_) == room_search_) return false;
    const NodeName& name = node.id();
    for (const auto& [id, job] : node.jobs) {
        if (job->claims[0] != name && job->claims[1] != name) continue;
        bool leaves;
        if (Orders::in_transit(*job)) {
            leaves = Orders::heading_for(*job) != name;
        } else {
            const Node* const target = allocation_.target_of(*job);
            leaves = target && target != &node && will_give_room(book_.node(target->id()));
        }
        if (!leaves) continue;
        node.gives_room = room_round_;
        return true;
    }
    return false;
}

// Jobs wait in a ring for each other's places. The one with the lowest bid of those that are to
// leave is frozen, and thawed at its new place when the others have moved on.
void Placement::break_cycle(const Job& blocked, Nanos now, Outputs& out) {
    const Node* const wanted = allocation_.target_of(blocked);
    if (!wanted) return;
    if (will_give_room(book_.node(wanted->id()))) {
        ++room_search_;
        return;
    }
    Job* least = nullptr;
    for (const auto& [id, job] : wanted->jobs) {
        if (job->phase() != JobPhase::running || Orders::in_transit(*job) ||
            job->record.report.where != wanted->id())
            continue;
        const Node* const target = allocation_.target_of(*job);
        if (!target || target == wanted || places_.cannot_leave(*job)) continue;
        // Equal jobs that both run gain nothing by changing places, unless somebody wants it.
        const bool by_hand = blocked.record.hold == Hold::at_node;
        if (blocked.phase() == JobPhase::running && !by_hand && EqualJobs::are_equal(blocked, *job))
            continue;
        if (!least || job->bid < least->bid) least = job;
    }
    if (!least) return;
    least->via = allocation_.target_of(*least)->id();
    const Reason reason = Reason(ReasonCode::makes_room)
                              .with(Figure::job, blocked.id().text())
                              .with(Figure::node, least->via);
    issue(*least, Order::Kind::suspend, {}, reason, now, out, suspended_.stands_first(*least, now));
    ++room_search_;
}

}  // namespace souk::market
