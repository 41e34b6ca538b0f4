// SPDX-License-Identifier: GPL-2.0-or-later
// RunTimes: how much work programs took that have run to their own end with status 0, learned per
// user and program (the first word of the command). Work is run time on a standard machine (speed
// 100). Of each program the newest runs count, and of all programs, and of each user's, those that
// ended last. Owned by the Market; pure. It is not stored: marketd tells it again of the newest
// finished jobs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "market/core/market_io.hpp"

namespace souk::market {

class RunTimes {
  public:
    static constexpr size_t runs_most = 16, programs_most = 10'000, of_user_most = 500;
    // With fewer runs nothing is said.
    static constexpr size_t runs_least = 3;

    // A job has finished. Runs that say nothing are passed over: cancelled, failed, or no work.
    void ended(const JobRecord& job);

    struct Learned {
        Nanos usual;  // the median
        Nanos most;   // the longest, and a tenth: the upper end of the band
        size_t runs = 0;
    };
    std::optional<Learned> of(uint32_t uid, const std::string& command) const;

  private:
    struct Program {
        std::array<Nanos, runs_most> work{};
        size_t runs = 0;  // all; the newest stands at (runs - 1) % runs_most
        uint64_t newest = 0;
    };
    using Key = std::pair<uint32_t, std::string>;
    static Key key_of(uint32_t uid, const std::string& command);
    void forget_oldest(uint32_t uid);

    std::map<Key, Program> programs_;
    std::map<uint64_t, Key> by_age_;  // of each its newest run
    uint64_t clock_ = 0;
};

}  // namespace souk::market
