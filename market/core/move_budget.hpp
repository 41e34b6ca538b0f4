// SPDX-License-Identifier: GPL-2.0-or-later
// MoveBudget: how many moves Rules::moves_max still allows in its window. Moves that displaced jobs
// make count too, but none of those is refused. Owned by the Allocator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "market/core/move_costs.hpp"

namespace souk::market {

class MoveBudget {
  public:
    // Moves that have left the window count no more. True: it had refused one, and allows one now.
    bool begin(Nanos now, const Rules& rules) {
        capped_ = rules.moves_max > 0;
        while (!made_.empty() && made_.front() + rules.moves_window <= now) made_.pop_front();
        left_ = rules.moves_max - static_cast<int32_t>(std::min<size_t>(made_.size(), INT32_MAX));
        if (!refused_ || left_ <= 0) return false;
        refused_ = false;
        return true;
    }
    // A job that would move of its own will asks this. False: the budget does not allow it now.
    bool allows(int32_t moves_before = 0) {
        if (!capped_ || left_ - moves_before > 0) return true;
        refused_ = true;
        return false;
    }
    // Fewer than so many may be made: what else would be done is refused.
    void limit(size_t& moves) {
        if (!capped_ || left_ >= static_cast<int32_t>(moves)) return;
        refused_ = true;
        moves = static_cast<size_t>(std::max(0, left_));
    }
    void spend(int32_t moves) { left_ -= capped_ ? moves : 0; }
    // A change that was decided is a move.
    void note(Nanos now) {
        if (capped_) made_.push_back(now);
    }
    // When it may allow what it has refused.
    Nanos next_wake(const Rules& rules) const {
        return refused_ && !made_.empty() ? made_.front() + rules.moves_window : Nanos::never();
    }

  private:
    std::deque<Nanos> made_;  // in the window, oldest first
    bool capped_ = false;
    bool refused_ = false;
    int32_t left_ = 0;
};

}  // namespace souk::market
