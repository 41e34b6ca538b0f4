// SPDX-License-Identifier: GPL-2.0-or-later
// DecisionTimes: how long orders took, from the first input of the step that decided on them to the
// order in the connection's queue, the commit in between included. A histogram whose steps are a
// quarter of a power of two, of a window of the newest so many orders and the one before. Pure;
// owned by Marketd.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "kernel/base/time.hpp"

namespace souk {

class DecisionTimes {
  public:
    void add(Nanos span) {
        if (count(newer_) >= window) older_ = std::exchange(newer_, {});
        ++newer_[step_of(span)];
    }
    // The least bound (a step's upper one) that `permille` of them stay within; 0 if there is none.
    Nanos within(int permille) const {
        const uint64_t all = count(newer_) + count(older_);
        uint64_t seen = 0;
        for (size_t i = 0; i < steps; ++i) {
            seen += newer_[i] + older_[i];
            if (all > 0 && seen * 1'000 >= all * static_cast<uint64_t>(permille))
                return upper_of(i);
        }
        return {};
    }

  private:
    static constexpr size_t steps = 4 * 48;
    static constexpr uint64_t window = 10'000;
    using Counts = std::array<uint32_t, steps>;
    static uint64_t count(const Counts& counts) {
        uint64_t n = 0;
        for (const uint32_t c : counts) n += c;
        return n;
    }
    static size_t step_of(Nanos span) {
        const auto us = static_cast<uint64_t>(std::max<int64_t>(span.ns / 1'000, 4));
        const auto power = static_cast<size_t>(std::bit_width(us)) - 1;
        return std::min(steps - 1, (power - 2) * 4 + (us >> (power - 2) & 3));
    }
    static Nanos upper_of(size_t step) {
        const size_t power = step / 4 + 2;
        return Nanos::from_us(static_cast<int64_t>((5 + step % 4) << (power - 2)));
    }
    Counts newer_{}, older_{};
};

}  // namespace souk
