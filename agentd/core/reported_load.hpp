// SPDX-License-Identifier: GPL-2.0-or-later
// ReportedLoad: the load of this node, and what the market was told of it. A change that matters (a
// twentieth of the machine, a new source) is told at once, at most once a second; any other change
// every half minute. A change that was held back goes with the next call. Part of Provider.
#pragma once

#include "agentd/core/provider_io.hpp"

namespace souk {

class ReportedLoad {
  public:
    // Takes a reading of a machine with so much memory. True: the market is to be told of it now.
    bool set(const LoadReading& load, Nanos now, int64_t machine_mb);
    const LoadReading& now() const { return load_; }

  private:
    bool matters(int64_t machine_mb) const;
    bool differs() const;

    LoadReading load_, told_;
    Nanos told_at_ = Nanos::never();
};

}  // namespace souk
