// SPDX-License-Identifier: GPL-2.0-or-later
// welfare: a job goes where value x speed / fastest speed - price is greatest. Prices are per class
// of machines (equal speed and reserve), each at least the reserve: the lowest competitive prices
// of the assignment market (assignment.hpp).
//
// What holds in one decision with the plain rules (tests/tools/test_welfare.py searches for
// counterexamples in random markets by the text protocol, against an optimum by exhaustion, and
// finds deliberate bugs):
//   every competing job needs one CPU, memory is in nobody's way, no bars, nobody pinned or
//   protected; any speeds and
//   reserves:   welfare (the sum of value x speed / fastest - reserve) is the greatest there is;
//               payments are those of Vickrey, Clarke and Groves by user (user_prices.hpp), to a
//               micro-unit; so no user gains by false values of its jobs, nobody prefers another
//               class at its price, no provider gets less than its reserve, and a higher bid never
//               runs slower
//   sizes differ, memory binds, or bars:  each class takes bids from a least value on
//               (limits_by_value), and ranks choose the fastest class that takes them and has room:
//               greedy with such values in place of reserves. The critical prices of that
//               (pricing_integral.hpp), each job for itself, are at least the reserves with no
//               raise. The least values depend on the jobs at the margin of each class: only by
//               moving one of them can a false bid gain
// Migration-aware rules are the Allocator's: protected jobs keep their places, which are not in the
// market meanwhile; with a horizon who gains less by a move than it costs stays; moves_max caps
// also moves to cheaper classes. Over time, as with greedy_migration, truth is not always best.
//
// The cost: an event is repaired in O(classes x log) (class_market.hpp), and the Allocator moves
// those whose class is another now.
#pragma once

#include <memory>

#include "market/core/algorithm.hpp"
