// SPDX-License-Identifier: GPL-2.0-or-later
// LogTrace: the steps of the machines (kernel/base/trace.hpp) as lines of the log at level debug,
// all with the same fields: STEP=, JOB=, EPOCH=, NODE=, TO= and WHY=.
#pragma once

#include "kernel/base/trace.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

class LogTrace final : public TraceListener {
  public:
    explicit LogTrace(Log& log) : log_(log) {}
    void tell(const TraceLine& line) override;
    // Returns this for a machine's tell_to, or null if nobody would see it.
    TraceListener* listener() { return log_.shows(Level::debug) ? this : nullptr; }

  private:
    Log& log_;
};

}  // namespace souk
