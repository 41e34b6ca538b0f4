// SPDX-License-Identifier: GPL-2.0-or-later
// Allocator: which components make a gang, how they rank, and what happens to it: it comes, a
// component leaves, its value changes. allocator_gangs.cpp says what places it gets.
#include <algorithm>
#include <map>

#include "market/core/allocator.hpp"

namespace souk::market {

Rank Allocator::guest_rank(uint32_t j) const {
    const Job& job = jobs_[j];
    if (job.held || job.pin == Pin::stay) return Rank::top();
    return required(j) ? gang_of(j).rank : job.rank;
}

Rank Allocator::last_required(const Gang& g) const {
    return g.required.empty() ? g.rank : jobs_[g.required.back()].rank;
}

uint32_t Allocator::leader(const Gang& g) const {
    for (const uint32_t j : g.required)
        if (jobs_[j].competing) return j;
    return none;
}

bool Allocator::runs(const Gang& g) const {
    return std::all_of(g.required.begin(), g.required.end(),
                       [&](uint32_t j) { return jobs_[j].slot != none; });
}

int32_t Allocator::speed_of(const Gang& g) const {
    int32_t speed = speed_max;
    for (const uint32_t j : g.required)
        if (jobs_[j].slot != none) speed = std::min(speed, machines_[jobs_[j].slot].spec.speed);
    return speed;
}

int32_t Allocator::speed_at_slot(uint32_t j) const {
    return required(j) ? speed_of(gang_of(j)) : machines_[jobs_[j].slot].spec.speed;
}

uint32_t Allocator::gang_with(uint64_t key) const {
    auto after = gang_keys_.upper_bound(key);
    if (after == gang_keys_.begin()) return none;
    const uint32_t g = std::prev(after)->second;
    return key <= gangs_[g].last ? g : none;
}

void Allocator::add_gang(JobKey first, std::span<const JobDemand> components, size_t required,
                         const GangLayout& layout) {
    auto index = static_cast<uint32_t>(gangs_.size());
    if (free_gangs_.empty()) {
        gangs_.emplace_back();
    } else {
        index = free_gangs_.back();
        free_gangs_.pop_back();
    }
    gangs_[index] = Gang{};
    gangs_[index].first = first.n;
    gangs_[index].layout = layout;
    gangs_[index].last = first.n + components.size() - 1;
    gangs_[index].rank =
        Rank::of(components[0].value, components[0].arrival, first, components[0].weight);
    gang_keys_[first.n] = index;
    note_waiting(gangs_[index], true);
    for (size_t i = 0; i < components.size(); ++i) {
        const uint32_t j = new_job();
        jobs_[j].component = true;
        details_[j].gang = index;
        details_[j].optional = i >= required;
        (i < required ? gangs_[index].required : gangs_[index].optional).push_back(j);
        enter(j, {first.n + i}, components[i]);
    }
}

// It has been detached.
void Allocator::leave_gang(uint32_t j) {
    const uint32_t index = details_[j].gang;
    Gang& g = gangs_[index];
    jobs_[j].component = false;
    details_[j].gang = none;
    std::erase(g.required, j);
    std::erase(g.optional, j);
    if (!g.required.empty()) dirty_.push_back(g.required.front());
    dirty_.insert(dirty_.end(), g.optional.begin(), g.optional.end());
    if (g.required.empty())  // they wait for nobody any more; a pass may end before their turn
        for (const uint32_t o : g.optional)
            if (jobs_[o].slot == none) set_bound(o, class_none);
    if (!g.required.empty() || !g.optional.empty()) return;
    gang_keys_.erase(g.first);
    note_waiting(g, false);
    g = Gang{};
    free_gangs_.push_back(index);
}

// Which machines are near each other is not what it was.
void Allocator::reconsider_near() {
    for (Gang& g : gangs_) {
        if (g.required.empty() || !g.layout.near) continue;
        g.clean = false;
        for (const uint32_t j : g.required) {
            set_bound(j, class_none);
            dirty_.push_back(j);
        }
    }
}

void Allocator::change_gang_value(Gang& g, Money value, int32_t weight) {
    std::vector<uint32_t> all = g.required, slots;
    all.insert(all.end(), g.optional.begin(), g.optional.end());
    for (const uint32_t j : all) {
        const Job& job = jobs_[j];
        if (job.slot != none && job.pin == Pin::free && machines_[job.slot].spec.reserve > value)
            evict(j, Cause::below_reserve, none);
        slots.push_back(job.slot);
        detach(j);
    }
    note_waiting(g, false);
    g.rank.first = -weighed(value, weight).micro;
    note_waiting(g, true);
    for (size_t i = 0; i < all.size(); ++i) {
        Job& job = jobs_[all[i]];
        job.value = value;
        weigh(all[i], weight);
        job.rank = rank_of(all[i]);
        job.bound = class_none;
        if (job.pin == Pin::free)
            enter_order(all[i]);
        else
            dirty_.push_back(all[i]);
        if (slots[i] != none) seat(all[i], slots[i]);
    }
}

}  // namespace souk::market
