// SPDX-License-Identifier: GPL-2.0-or-later
// The critical price where every competing job needs one CPU and memory is never in the way, with
// whatever bars, pins, protected jobs and reserves: what pricing_integral gives, in O(jobs x log)
// for all of them and some steps more for each.
//
// Take a job q away from the greedy from nothing (the *base*), and there is one place too many: the
// *hole*, first where q was. The next bid that would rather have it than its own place (or none)
// takes it, and leaves a hole at its own; so there is one hole at any time, it only goes down the
// order of choice, and where it goes from bid b's place does not depend on q. (For a pinned q the
// hole is the room that it holds.) What q could get for a bid that falls is the better of the hole
// and the first place with room in the base, if the bid meets its reserve; and both are known: the
// base is reckoned once, and for each place the bid that fills it; for each bid the one that takes
// its place when it is the hole, and the one that takes the hole out of machines of that speed.
// Each bid or reserve at which the better of the two gets slower is a step of the price. (Needs of
// more than one CPU leave holes of many shapes, and memory makes of one hole many: then each price
// is an integral of its own.) Pure, owned by nobody.
#pragma once

#include <vector>

#include "market/core/allocator.hpp"

namespace souk::market {

// Sets the price of every running job that is not done and that this can give, and notes it as
// done. None if the market is not of that kind, or its ranks are not those of bids. `by_user`: jobs
// of one user do not price each other, as in pricing_integral.hpp. A job with later ones of its
// user is then left to that, while those take at most so many steps.
constexpr int64_t own_later_steps_max = 4'000'000;
void unit_prices(Allocator& market, std::vector<Money>& prices, std::vector<bool>& done,
                 bool by_user = false);

}  // namespace souk::market
