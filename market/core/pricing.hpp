// SPDX-License-Identifier: GPL-2.0-or-later
// Pricing: what each running job pays per CPU-hour. Pure functions of an allocation; the Solver
// caches them.
//
// critical: for every step of speed that the job has, the bid at which it would lose that step.
// With x(b) the speed that a job would get for bid b, the others unchanged and all placed from
// nothing, it pays (v x(v) - integral of x) / s_1: the sum over all jumps of x up to its speed of b
// x jump / s_1 (Myerson, "Optimal auction design", 1981). A jump is made by another bid, which
// takes the place when b is below it, or by a reserve, which keeps the place from a bid below it.
// Where one-CPU jobs meet machines ranked by speed and nobody asks anything that is
//     sum over k >= i of (s_k - s_{k+1}) / s_1 x v_{k+1},
// the generalised Vickrey payment of ranked slots; with equal speeds and any reserves it is the
// critical bid: the least with which the job still gets a place. With mixed CPUs and memory the
// jumps are found by running the greedy without the job, from nothing (pricing_integral.hpp). That
// makes the price a function of the other bids and the reserves alone, whatever the history. It is
// then raised to the reserve of the job's provider and never above its bid.
//
// What holds, in one decision, jobs placed from nothing, under worth v x s / s_1
// (tests/tools/test_prices.py and tests/unit/test_pricing.cpp search for counterexamples; x is
// monotone in every market that they try):
//   equal speeds, any reserves    the definition is at least the reserve, so nothing is raised: no
//                                 job gains by misreporting its value
//   any speeds, no reserves       the same
//   speeds and reserves           the payment is as defined, and at least the reserve. A job may
//                                 gain by a lower bid: the greedy gives it the fastest machine that
//                                 it can pay, not the one where it gains most
// That is greedy_migration; the welfare algorithm has prices of its own for one-CPU jobs
// (user_prices.hpp), and these with the least values of its classes as reserves for others
// (welfare.hpp). docs/market.md has one table of both. That no lie pays does not hold over time (a
// bid now changes what is free later; a job that stays where it is may sit elsewhere than the
// greedy would put it), for pinned jobs, and for who lies about CPUs and memory.
//
// A user is one bidder (`by_user`): each job is priced without those of its user that rank after
// it. Where the greedy's allocation is the best one (the first two lines above, one CPU each), the
// sum is what the others lose by all jobs of the user (Clarke, "Multipart pricing of public goods",
// 1971): they lose it step by step as its jobs come, the highest ranked first. docs/market.md
// defines a price step by step.
//
// first: the own bid, as far as the place is worth it: bid x speed / fastest speed, raised to its
// provider's reserve. uniform (k-pricing): one price for all, R + k x (B - R) with B the lowest bid
// that runs and R the highest reserve in use, held for each job between its provider's reserve and
// its bid.
#pragma once

#include <optional>
#include <vector>

#include "market/core/allocator.hpp"

namespace souk::market {

// Price per CPU-hour by job index; meaningless for jobs that do not run. O(jobs placed + classes)
// for one-CPU jobs where memory does not bind and nobody is barred, O(jobs placed x log + running
// jobs x speeds) with bars and pins (pricing_unit.hpp), else O(running jobs x jobs) of some
// nanoseconds each. `steps`, if given: how many jobs were looked at or placed, about what it cost
// (up to 100 ns each).
std::vector<Money> critical_prices(Allocator& market, bool by_user = false,
                                   uint64_t* steps = nullptr);
std::vector<Money> first_prices(const Allocator& market);
std::vector<Money> uniform_prices(const Allocator& market, int32_t k_permille);

// The general method for every job, also where the closed form holds (the tests compare them).
std::vector<Money> critical_prices_by_integral(Allocator& market, bool by_user = false);

// A running job is worth so much per CPU-hour where it runs: value x speed / fastest speed, rounded
// down.
Money worth_of(const Allocator& market, uint32_t job);
Surplus surplus_of(const Allocator& market, const std::vector<Money>& prices);

}  // namespace souk::market
