// SPDX-License-Identifier: GPL-2.0-or-later
// FilesMeter: how much a job's files take through the network each second, from counts that only
// grow, for the market (docs/market.md). Only what is counted while the job is elsewhere than at
// home says anything: what it would take does not change because it is at home. Told is a figure
// that is off by more than a quarter, so that the market does not hear of every breath. Pure.
#pragma once

#include <optional>

#include "market/core/messages.hpp"

namespace souk {

class FilesMeter {
  public:
    // The least span of a measure. A quarter of each measure goes into the mean.
    static constexpr Nanos window = Nanos::from_s(10);

    // From now on its files are read over the network; `use` has the counts. Nothing happens if
    // they are already.
    void begin(Nanos now, const FilesUse& use);
    // They are not any more; the mean stays.
    void end() { since_.reset(); }
    // `use` has the counts as they are now. True: what it says of each second has changed.
    bool measure(Nanos now, Nanos round_trip, FilesUse& use);
    // It reads the same files without the network where it is now. True as above.
    bool clear(FilesUse& use);

  private:
    std::optional<Nanos> since_;
    uint64_t bytes_ = 0, requests_ = 0;  // counted by then
    uint64_t bytes_mean_ = 0, requests_mean_ = 0;
};

}  // namespace souk
