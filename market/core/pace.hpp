// SPDX-License-Identifier: GPL-2.0-or-later
// What a job that paces itself bids (srun --pace).
#pragma once

#include "market/core/messages.hpp"

namespace souk::market {

// The price per CPU-hour at which what is left of the budget lasts until the job's finish, `left`
// from now: while it runs for less it saves, and may bid more later; while it waits its bid rises.
// At most its maximum price, which is also the bid of a job that does not pace itself, or whose
// time is up; at least a micro-unit. Pure.
Money paced_bid(const JobTerms& terms, Money spent, Nanos left);

// How long a bid is good for with so much time left: a hundredth of it, between a second and a
// minute.
Nanos pace_step(Nanos left);

}  // namespace souk::market
