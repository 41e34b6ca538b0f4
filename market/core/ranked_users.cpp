// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/ranked_users.hpp"

#include <algorithm>
#include <utility>

namespace souk::market {

int64_t RankedUsers::User::other(int64_t t, size_t first) const {
    size_t low = first, high = at.size();
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (at[mid] - static_cast<int64_t>(mid - first) <= t)
            low = mid + 1;
        else
            high = mid;
    }
    return t + static_cast<int64_t>(low - first);
}

int64_t RankedUsers::User::before(int64_t end, size_t first) const {
    const auto from = at.begin() + static_cast<std::ptrdiff_t>(first);
    return std::lower_bound(from, at.end(), end) - from;
}

RankedUsers::RankedUsers(const Allocator& market, const JobOrder& order, size_t jobs) {
    values_.reserve(jobs);
    of_.reserve(jobs);
    order.each([&](const JobOrder::Entry& e) {
        if (values_.size() == jobs) return false;
        const uint64_t key = uint64_t{market.details(e.job).user} + 1;
        uint32_t u = index_.find(key);
        if (u == KeyMap::none) {
            index_.insert(key, u = static_cast<uint32_t>(begins_.size()));
            begins_.push_back(0);
        }
        ++begins_[u];
        values_.push_back(-e.rank.first);
        of_.push_back(u);
        return true;
    });
    // From how many to where they begin, which each then passes by.
    uint32_t sum = 0;
    for (uint32_t& begin : begins_) sum += std::exchange(begin, sum);
    begins_.push_back(sum);
    at_.resize(sum);
    for (size_t t = 0; t < of_.size(); ++t) at_[begins_[of_[t]]++] = static_cast<int64_t>(t);
    for (size_t u = begins_.size() - 1; u > 0; --u) begins_[u] = begins_[u - 1];
    begins_[0] = 0;
}

size_t RankedUsers::most() const {
    size_t most = 0;
    for (size_t u = 0; u < size(); ++u) most = std::max(most, user(u).at.size());
    return most;
}

RankedUsers rank_users(const Allocator& market, const JobOrder& order, size_t placed) {
    const size_t all = order.size(), limit = std::min(2 * placed, all);
    RankedUsers users(market, order, limit);
    return limit == all || users.most() <= limit - placed ? std::move(users)
                                                          : RankedUsers(market, order, all);
}

}  // namespace souk::market
