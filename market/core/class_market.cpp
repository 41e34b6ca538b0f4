// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/class_market.hpp"

#include <algorithm>

namespace souk::market {

const JobOrder::Entry& ClassMarket::entry(int64_t t) const {
    const auto at = std::upper_bound(before_.begin(), before_.end(), t);
    const auto b = static_cast<size_t>(at - before_.begin());
    const auto& block = order_->block(b);
    const int64_t begin = b == 0 ? 0 : before_[b - 1];
    if (*at - begin == static_cast<int64_t>(block.size()))
        return block[static_cast<size_t>(t - begin)];
    int64_t left = t - begin;
    size_t i = 0;
    while (left >= block[i].cpus) left -= block[i++].cpus;
    return block[i];
}

// Reads what the competing jobs find: CPUs beside those that nobody can displace.
void ClassMarket::read_classes(const Allocator& market) {
    const std::vector<PlaceClass> old = std::move(classes_);
    const Cuts old_cuts = std::move(cuts_);
    classes_.clear();
    cuts_.clear();
    memory_per_cpu_ = INT64_MAX;
    const int32_t top = market.speed_top();
    market.machine_order().each([&](const MachineOrder::Entry& e) {
        const auto& m = market.machines()[e.machine];
        int64_t cpus = m.spec.cpus, memory_mb = m.spec.memory_mb;
        for (const auto& g : m.guests) {
            if (!g.rank.is_top()) break;
            cpus -= g.cpus;
            memory_mb -= g.memory_mb;
        }
        if (classes_.empty() || classes_.back().cls != e.cls)
            classes_.push_back(
                {e.cls, m.spec.speed, 0, static_cast<Wide>(m.spec.reserve.micro) * top});
        if (cpus <= 0) return true;
        classes_.back().slots += cpus;
        memory_per_cpu_ = std::min(memory_per_cpu_, memory_mb / cpus);
        return true;
    });
    size_t o = 0;
    int64_t cut = 0;
    for (const PlaceClass& c : classes_) {  // as many in each class as before, if there is room
        while (o < old.size() && old[o].cls < c.cls) ++o;
        if (o < old.size() && old[o].cls == c.cls && !old_cuts.empty())
            cut += std::min(c.slots, old_cuts[o] - (o == 0 ? 0 : old_cuts[o - 1]));
        cuts_.push_back(cut);
    }
}

void ClassMarket::read_jobs(const JobOrder& order) {
    order_ = &order;
    before_.resize(order.blocks());
    int64_t sum = 0;
    for (size_t b = 0; b < before_.size(); ++b) before_[b] = sum += order.cpus_of(b);
}

void ClassMarket::reckon() {
    for (int64_t& cut : cuts_) cut = std::min(cut, units());
    int64_t slots = 0;
    for (const PlaceClass& c : classes_) slots += c.slots;
    const int64_t most = std::min(slots, units());
    const auto of = [this](int64_t t) { return value(t); };
    // A step costs about as much as fifty slopes of a class.
    Wide gain = 0;
    if (improve_cuts(classes_, cuts_, units(), 16 + most / 100, of, gain)) return;
    std::vector<int64_t> values;
    values.reserve(static_cast<size_t>(most));
    order_->each([&](const JobOrder::Entry& e) {
        for (int32_t i = 0; i < e.cpus && static_cast<int64_t>(values.size()) < most; ++i)
            values.push_back(-e.rank.first);
        return static_cast<int64_t>(values.size()) < most;
    });
    cuts_ = best_cuts(classes_, values);
}

void ClassMarket::follow(Allocator& market) {
    const auto [cpus, memory_mb] = market.most_needed();
    read_jobs(market.order());
    if (room_version_ != market.room_version()) {
        read_classes(market);
        room_version_ = market.room_version();
    }
    exact_ = cpus <= 1 && market.competing_with_bars() == 0 && memory_mb <= memory_per_cpu_;
    reckon();
}

}  // namespace souk::market
