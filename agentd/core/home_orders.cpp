// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_orders.hpp"

#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_gangs.hpp"

namespace souk {

HomeOrders::Deed HomeOrders::came(HomeJob& job, const Order& order, const HomeTurn& turn) {
    if (job.phase == JobPhase::finished) return Deed::report;
    if (order.seq <= job.order_seq) return Deed::nothing;
    job.order_seq = order.seq;
    if (order.kind == Order::Kind::run && job.phase != JobPhase::running) {
        if (job.price != order.price)
            job.story.add(turn.step(StoryStep::What::priced, order.node, {}, order.price));
        job.price = order.price;
    }
    if (order.kind == Order::Kind::abort) return job.cancelled ? Deed::nothing : Deed::cancel;
    if (order.kind == Order::Kind::give_up) return Deed::give_up;
    const bool in_no_step = job.phase == JobPhase::waiting || job.phase == JobPhase::running ||
                            job.phase == JobPhase::frozen;
    if (in_no_step && !job.cancelled && !job.going_back && !files_come_first(job))
        return Deed::take;
    pending_.insert_or_assign(job.id.seq, order);
    return Deed::nothing;
}

HomeOrders::How HomeOrders::how(const HomeJob& job, const Order& order, bool node_is_silent,
                                bool by_order) {
    if (order.asks) return How::as_it_is;
    const bool there = job.at.node == order.node;
    if (order.kind != Order::Kind::run && job.phase == JobPhase::running)
        return order.stand ? How::stand : How::freeze;
    if (order.kind != Order::Kind::run)
        return by_order && !order.stand ? How::freeze : How::as_it_is;
    if (node_is_silent && !there) return How::refuse;
    if (job.phase == JobPhase::waiting) return How::start;
    if (job.in_place && job.phase == JobPhase::frozen && there) return How::go_on;
    // Its move would be that of a job that runs: it would go on without its gang.
    if (job.in_place && job.phase == JobPhase::frozen && HomeGangs::is_component(job) &&
        !HomeGangs::is_optional(job))
        return How::stays;
    return job.phase == JobPhase::frozen || !there ? How::move : How::as_it_is;
}

std::optional<Order> HomeOrders::take_pending(const HomeJob& job) {
    auto entry = pending_.extract(job.id.seq);
    if (!entry) return std::nullopt;
    return std::move(entry.mapped());
}

const Order* HomeOrders::pending(const HomeJob& job) const {
    const auto it = pending_.find(job.id.seq);
    return it == pending_.end() ? nullptr : &it->second;
}

bool HomeOrders::note_price(HomeJob& job, const JobNote& note, const HomeTurn& turn) {
    const bool is_new = job.price != note.price;
    job.cost = note.cost;
    job.price = note.price;
    job.cost_run = HomeClock::run_time(job, turn.now);
    // durable with what is written next
    if (is_new && note.price.micro > 0 && job.phase != JobPhase::finished)
        job.story.add(turn.step(StoryStep::What::priced, job.at.node, {}, note.price));
    return is_new && job.terms.budget.micro > 0;
}

}  // namespace souk
