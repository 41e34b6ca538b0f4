// SPDX-License-Identifier: GPL-2.0-or-later
// JobLog: what became of the job, a line with its time for each step, at the end of a file (srun
// --log). Owned by the Session; without a file it says nothing.
#pragma once

#include <string>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::tools {

class JobLog {
  public:
    // Errors: the file cannot be opened. An empty name: there is none.
    Status open(const std::string& file);
    // One write; what a full disk refuses is lost.
    void line(const std::string& text) const;

  private:
    Fd fd_;
};

}  // namespace souk::tools
