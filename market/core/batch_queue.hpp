// SPDX-License-Identifier: GPL-2.0-or-later
// The parts that the queues of batch systems have in common (first_come.cpp, backfilling.cpp): who
// waits, and in which order machines are chosen. Pure.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include "market/core/allocator.hpp"

namespace souk::market {

// The machines that take jobs, in the order of choice: the fastest, then the lowest reserve, then
// the lowest key.
inline std::vector<uint32_t> machines_in_order(const Allocator& market) {
    std::vector<uint32_t> order;
    for (uint32_t m = 0; m < market.machines().size(); ++m)
        if (market.machines()[m].key.n != 0 && market.machines()[m].spec.accepting)
            order.push_back(m);
    const auto rank = [&](uint32_t m) {
        const auto& machine = market.machines()[m];
        return std::tuple(-machine.spec.speed, machine.spec.reserve, machine.key);
    };
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return rank(a) < rank(b); });
    return order;
}

// The machine could hold the job if it were empty.
inline bool could_hold(const Allocator& market, const Allocator::Machine& m, uint32_t j) {
    const auto& job = market.jobs()[j];
    return m.key.n != 0 && m.spec.cpus >= job.cpus && m.spec.memory_mb >= job.memory_mb &&
           market.eligible(m, j) && (!job.named || market.has_named(m, j));
}

// Those who compete and have no place, by arrival, but for those that no machine could hold.
inline std::vector<uint32_t> waiting_in_order(const Allocator& market) {
    std::vector<uint32_t> waiting;
    for (uint32_t j = 0; j < market.jobs().size(); ++j) {
        const auto& job = market.jobs()[j];
        if (job.key().n == 0 || !job.competing || job.slot != Allocator::none) continue;
        const auto& all = market.machines();
        if (std::any_of(all.begin(), all.end(),
                        [&](const auto& m) { return could_hold(market, m, j); }))
            waiting.push_back(j);
    }
    const auto turn = [&](uint32_t j) {
        return std::tuple(market.jobs()[j].arrival(), market.jobs()[j].key());
    };
    std::sort(waiting.begin(), waiting.end(),
              [&](uint32_t a, uint32_t b) { return turn(a) < turn(b); });
    return waiting;
}

}  // namespace souk::market
