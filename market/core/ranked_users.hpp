// SPDX-License-Identifier: GPL-2.0-or-later
// RankedUsers: the first competing jobs in rank order, and which of them are whose; for prices that
// take a user as one bidder, where every job needs one CPU. Built for one reckoning and dropped.
// Nothing here fails.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "market/core/allocator.hpp"

namespace souk::market {

// Steps that prices by user may take in one reckoning; where it would be more, each job is priced
// for itself.
inline constexpr int64_t pivot_steps_max = 4'000'000;

class RankedUsers {
  public:
    struct User {
        std::span<const int64_t> at;  // its jobs, by rank among all

        // The rank among all of the t-th job that is left when the user's jobs from `first` on are
        // taken out.
        int64_t other(int64_t t, size_t first = 0) const;
        // How many of its jobs from `first` on rank before `end`.
        int64_t before(int64_t end, size_t first) const;
    };

    // The first so many competing jobs in rank order.
    RankedUsers(const Allocator& market, const JobOrder& order, size_t jobs);

    const std::vector<int64_t>& values() const { return values_; }
    size_t size() const { return begins_.size() - 1; }
    User user(size_t u) const {
        return {std::span(at_).subspan(begins_[u], begins_[u + 1] - begins_[u])};
    }
    User user_of(int64_t rank) const { return user(of_[static_cast<size_t>(rank)]); }
    // Which of the users has this number; nullopt: none of its jobs is here.
    std::optional<size_t> find(uint32_t uid) const {
        const uint32_t u = index_.find(uint64_t{uid} + 1);
        if (u == KeyMap::none) return std::nullopt;
        return u;
    }
    // The most jobs that one has.
    size_t most() const;

  private:
    std::vector<int64_t> values_;
    std::vector<uint32_t> of_;      // by rank: whose
    std::vector<uint32_t> begins_;  // by user, in at_; and one behind all
    std::vector<int64_t> at_;
    KeyMap index_;  // by uid + 1: 0 is no key
};

// So many jobs that a price by user can be reckoned from them. `placed`: the first so many in rank
// order have a place. Whoever goes, no more places are taken than now; so as many jobs of others as
// there are placed ones is all that can matter. Twice that many in rank order hold them, unless one
// user has more than half of these: then it is all jobs.
RankedUsers rank_users(const Allocator& market, const JobOrder& order, size_t placed);

}  // namespace souk::market
