// SPDX-License-Identifier: GPL-2.0-or-later
// Ageing: what a wait makes of a bid. A job that has waited for a place for t in all ranks as if it
// bid 2^(t / ageing) times as much, in steps of an eighth of `ageing`, up to 4096 times. It pays by
// its own bid all the same, and has no place whose owner asks more than that. Pure.
//
// What it bounds: of two jobs that wait, none gains on the other but within a step. So while a job
// that bids b waits, one that comes later and bids B ranks before it only if it comes within
// ageing x log2(B / b) of the time that the first has waited (the next step, if that is none). Who
// is passed over so long has to wait then for those alone who were there before.
// tests/unit/test_age.cpp holds the market to that.
#pragma once

#include <cstdint>

#include "kernel/base/time.hpp"

namespace souk::market {

// JobDemand::weight of a job that has waited so long, at least 0. `ageing` 0: it is that of all.
int32_t weight_after(Nanos waited, Nanos ageing);
// How long it has to have waited for the next step; never(): there is none.
Nanos next_weight_at(Nanos waited, Nanos ageing);

}  // namespace souk::market
