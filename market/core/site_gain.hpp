// SPDX-License-Identifier: GPL-2.0-or-later
// SiteGain: the gain of a job that runs by a move to another site, and the cost of that move
// (docs/sites.md). Both are reckoned by what its user prefers: an early end in time, a low cost in
// money, within a horizon or until the job ends. A site that the job left lately must gain twice
// as much, as what it left for may soon be so again. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"

namespace souk {

// A gain later than this counts for nothing.
inline constexpr Nanos gain_horizon = Nanos::from_s(3'600);
// A site that was left so long ago was left lately.
inline constexpr Nanos left_lately_span = Nanos::from_s(3'600);
// A move costs so much time beside the job's pause: two markets and two networks work for it.
inline constexpr Nanos move_effort = Nanos::from_s(60);

// A place at some site.
struct SiteStay {
    Money price;  // per CPU-hour
    int64_t speed = 100;
    Nanos starts_in;  // so long it takes to clear it
};

struct SiteMove {
    SiteStay here;
    bool cheapest = false;  // the gain is money; else it is time
    int32_t cpus = 1;
    Money bid;    // per CPU-hour: so much its time is worth
    Nanos rest;   // it goes on for so long here, as far as is known
    Nanos pause;  // forecast
    Money carried;
    std::vector<std::string> lately;  // the sites that it left lately, an empty name for its own
};

struct SiteGain {
    bool is_money = false;
    bool is_doubled = false;  // the gain must be twice the cost
    bool pays = false;
    // One kind is set; below 0: the move would lose so much.
    Nanos time, time_cost;
    Money money, money_cost;
    // One line, in which `site` is the subject: "uni saves ...".
    std::string text(std::string_view site) const;
};

SiteGain gain_of(const SiteMove& move, const SiteStay& there, std::string_view site);

}  // namespace souk
