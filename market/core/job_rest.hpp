// SPDX-License-Identifier: GPL-2.0-or-later
// JobRest: how long a job goes on yet, as far as that is known: by its time limit (srun --time), by
// the run time that its user stated (--runtime), and where neither is stated by what the same
// program took before (run_times.hpp). What it has done counts by the speed of its places, as it is
// measured. Pure.
#pragma once

#include "market/core/market_state.hpp"
#include "market/core/run_times.hpp"

namespace souk::market {

// How sure the answer is: usual: what is likely; most: what it is not longer than, as far as is
// known.
enum class RestBand : uint8_t { usual, most };

// The work that the job has done by now, also what is not charged yet.
Nanos work_done(const Job& job, int64_t speed_there, Nanos now);
// `learned`: null: only what its terms say. `speed_there`: of the node where it runs.
JobRest rest_of(const Job& job, const RunTimes* learned, RestBand band, int64_t speed_there,
                Nanos now);

}  // namespace souk::market
