// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/gangs.hpp"

namespace souk::market {

uint32_t Gangs::with(uint64_t key) const {
    auto after = by_first_key_.upper_bound(key);
    if (after == by_first_key_.begin()) return none;
    const uint32_t g = std::prev(after)->second;
    return key <= all_[g].last ? g : none;
}

uint32_t Gangs::add(uint64_t first, size_t components, const Rank& rank, const GangLayout& layout) {
    auto index = static_cast<uint32_t>(all_.size());
    if (free_.empty()) {
        all_.emplace_back();
    } else {
        index = free_.back();
        free_.pop_back();
    }
    Gang& g = all_[index] = {};
    g.first = first;
    g.last = first + components - 1;
    g.rank = rank;
    g.layout = layout;
    by_first_key_[first] = index;
    note_waiting(g, true);
    return index;
}

void Gangs::add_component(uint32_t g, uint32_t job, bool optional) {
    (optional ? all_[g].optional : all_[g].required).push_back(job);
}

void Gangs::remove_component(uint32_t g, uint32_t job) {
    std::erase(all_[g].required, job);
    std::erase(all_[g].optional, job);
}

void Gangs::remove(uint32_t g) {
    by_first_key_.erase(all_[g].first);
    note_waiting(all_[g], false);
    all_[g] = {};
    free_.push_back(g);
}

void Gangs::rerank(uint32_t g, int64_t first) {
    note_waiting(all_[g], false);
    all_[g].rank.first = first;
    note_waiting(all_[g], true);
}

void Gangs::note_waiting(const Gang& g, bool waits) {
    const Ranked entry{g.rank, index_of(g)};
    if (waits)
        waiting_.insert(entry);
    else
        waiting_.erase(entry);
}

}  // namespace souk::market
