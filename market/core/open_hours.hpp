// SPDX-License-Identifier: GPL-2.0-or-later
// When a node is on the market, as far as its owner has said (ProviderReport::hours, a week that
// repeats). Pure.
#pragma once

#include <vector>

#include "market/core/messages.hpp"

namespace souk::market {

inline constexpr int64_t week_ns = int64_t{OpenHours::week_s} * 1'000'000'000;

// How far a moment (Unix time) is into the week that begins at `from`.
Nanos into_week(Nanos from, Nanos unix);
// The offer ends so long after this time (Unix time); 0: it does not cover it.
Nanos left_of(const OpenHours& hours, Nanos unix);
// The offer of the owner that holds at this time; null: the node is off the market then.
const OpenHours* hours_at(const ProviderReport& report, Nanos unix);

struct Closed {
    Nanos from, to;  // Unix time
};
// When the node is off the market between `unix`, which is now, and `until`, in their order. An
// owner's own word (on or off) holds until the next edge of his frames. never() as an end: nobody
// knows when it opens.
std::vector<Closed> closed_in(const ProviderReport& report, Nanos unix, Nanos until);

}  // namespace souk::market
