// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/licences.hpp"

#include <algorithm>

namespace souk::market {

const Licences::Holders& Licences::holders_of(uint32_t name) const {
    static const Holders nobody;
    const auto held = held_.find(name);
    return held == held_.end() ? nobody : held->second;
}

void Licences::hold(const Ranked& job, const NamedAmounts& amounts) {
    for (const NamedAmount& one : amounts) held_[one.name][job] = one.count;
}

void Licences::leave(const Ranked& job, const NamedAmounts& amounts) {
    for (const NamedAmount& one : amounts) {
        const auto held = held_.find(one.name);
        if (held == held_.end()) continue;
        held->second.erase(job);
        if (held->second.empty()) held_.erase(held);
    }
}

void Licences::want(const Ranked& job, const NamedAmounts& amounts) {
    for (const NamedAmount& one : amounts) wanted_[one.name].insert(job);
}

void Licences::unwant(const Ranked& job, const NamedAmounts& amounts) {
    for (const NamedAmount& one : amounts) {
        const auto wanted = wanted_.find(one.name);
        if (wanted == wanted_.end()) continue;
        wanted->second.erase(job);
        if (wanted->second.empty()) wanted_.erase(wanted);
    }
}

int64_t Licences::left_of(const NamedAmount& amount, const Rank& before) const {
    const NamedOffer* const offer = find_named(all_, amount.name);
    int64_t left = offer ? offer->count : 0;
    for (const auto& [job, count] : holders_of(amount.name)) {
        if (job.first >= before) break;
        left -= count;
    }
    return left;
}

bool Licences::left(const NamedAmounts& amounts, const Rank& rank) const {
    return std::all_of(amounts.begin(), amounts.end(),
                       [&](const NamedAmount& one) { return left_of(one, rank) >= one.count; });
}

std::pair<Rank, bool> Licences::displaced(const NamedAmounts& amounts) const {
    Rank strongest = Rank::top();
    for (const NamedAmount& one : amounts) {
        int64_t left = left_of(one, rank_last);
        const Holders& holders = holders_of(one.name);
        for (auto at = holders.rbegin(); left < one.count; ++at) {
            if (at == holders.rend() || at->first.first.is_top()) return {strongest, false};
            left += at->second;
            const Rank& rank = at->first.first;
            strongest = strongest.is_top() ? rank : std::min(strongest, rank);
        }
    }
    return {strongest, true};
}

uint32_t Licences::in_the_way(const NamedAmounts& amounts, const Rank& rank) const {
    const std::pair<const Ranked, int32_t>* weakest = nullptr;
    for (const NamedAmount& one : amounts) {
        if (left_of(one, rank_last) >= one.count) continue;
        const Holders& holders = holders_of(one.name);
        if (holders.empty() || holders.rbegin()->first.first <= rank) continue;
        if (!weakest || weakest->first < holders.rbegin()->first) weakest = &*holders.rbegin();
    }
    return weakest ? weakest->first.second : none;
}

uint32_t Licences::beyond() const {
    for (const auto& [name, holders] : held_)
        if (!holders.rbegin()->first.first.is_top() && left_of({name, 0}, rank_last) < 0)
            return holders.rbegin()->first.second;
    return none;
}

std::vector<Licences::Ranked> Licences::wanting(const NamedAmounts& amounts,
                                                const Rank& after) const {
    std::vector<Ranked> jobs;
    for (const NamedAmount& one : amounts)
        if (const auto wanted = wanted_.find(one.name); wanted != wanted_.end())
            jobs.insert(jobs.end(), wanted->second.upper_bound({after, UINT32_MAX}),
                        wanted->second.end());
    return jobs;
}

std::vector<uint32_t> Licences::holders_beyond() const {
    std::vector<uint32_t> jobs;
    for (const auto& [name, held] : held_)
        for (const auto& [job, count] : held)
            if (left_of({name, 0}, rank_last) < 0) jobs.push_back(job.second);
    return jobs;
}

}  // namespace souk::market
