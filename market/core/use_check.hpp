// SPDX-License-Identifier: GPL-2.0-or-later
// Compares what two parties tell of the use that a job is charged for: its home says how long it
// has run, and the place measures that itself. Neither is believed alone. Pure functions of one
// job's record.
//
// A job is charged by its home's word as it runs, since that comes first. The word of a home grows
// no faster than the market's own clock (`believable`). The place's word (JobUse) is of one stay
// (node, epoch). While a stay goes on, what is charged beyond the place's word and the tolerance is
// taken back as soon as that word comes; when it is over, once both have said all. A place that
// says nothing (it is lost, or an older version's) has no say: the home's word holds. A place that
// measures more than the home says is not paid for that; the difference is counted.
#pragma once

#include <algorithm>
#include <optional>

#include "market/core/market_io.hpp"

namespace souk::market::use_check {

// Two clocks hear of one thing at different moments.
inline constexpr Nanos tolerance_min = Nanos::from_s(5);
inline constexpr int64_t tolerance_permille = 10;
constexpr Nanos tolerance(Nanos run) {
    return std::max(tolerance_min, Nanos{run.ns / 1'000 * tolerance_permille});
}
inline constexpr size_t stays_max = 64;
// A home's sum of run time and the market's reckoning differ by what messages take: by so much.
inline constexpr Nanos clock_tolerance = Nanos::from_s(2);

// The most that a home's sum of run time can be. `ran`: what the market reckoned with until now;
// `now`: Unix time.
Nanos believable(const JobRecord& r, Nanos ran, Nanos now);
// That is what is reckoned with now. A sum that is not complete may be less than what has run.
void believed(JobRecord& r, Nanos total, bool complete, Nanos now);

// It runs at `node` under that epoch from now on, unless it has until now.
void begins(JobRecord& r, const NodeName& node, Epoch epoch);
// It was frozen, and goes on where it was: how much of the total is of the stay before. nullopt: it
// has not.
std::optional<Nanos> before_thaw(const JobRecord& r, Nanos total);
// The run time at which the newest stay ended, where its home says that this was at `said` and has
// run for `total` by now. What was charged beyond it is taken back from that stay, for which it was
// charged: no more than two clocks differ by, than was charged, or than the place has not measured.
Nanos end_of_newest(const JobRecord& r, Nanos said, Nanos total);
// The least that can be charged for now: what other stays than the newest have earned is theirs.
Nanos least(const JobRecord& r);
// So much was charged (or taken back) for running at its newest stay.
void charged(JobRecord& r, Nanos span, Money cost);
// It runs there no more.
void ended(JobRecord& r);

struct Difference {
    NodeName node;
    Epoch epoch;
    Nanos charged, measured;  // as the home and the place have it
    Nanos back;               // taken back: the place's word is the lesser; 0: it is not
    Money cost;               // of that
};
// The place's word. What is to be taken back is taken off the stay; the account and the ledger are
// the caller's. nullopt: they agree, or not all has been said yet, or no such stay is known.
std::optional<Difference> heard(JobRecord& r, const NodeName& node, const JobUse& use);
// Finds the first stay that both have said all of and on which they do not agree. To be called
// until there is none. Stays of which all is said and settled are forgotten, but for the newest.
std::optional<Difference> settle(JobRecord& r);

}  // namespace souk::market::use_check
