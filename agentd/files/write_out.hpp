// SPDX-License-Identifier: GPL-2.0-or-later
// WriteOut: begins to bring to the home's disk what is written to a file in one long run, while
// the run goes on. So an fsync at its end, and a move that waits for it, find most of it there.
// A file that is short, or written here and there, is the kernel's own business.
//
// A thread of its own does it, since that waits while the disk is busy; one range at a time over
// all files of a session, and what comes meanwhile grows into the next. Owned by a session.
#pragma once

#include <cstdint>
#include <memory>

namespace souk::files {

// Says how far the run has come that is written to an open file now.
struct WriteRun {
    uint64_t begin = 0, end = 0;  // of what is not on its way to the disk
};

class WriteOut {
  public:
    static constexpr uint64_t worth_bytes = 8 << 20;
    WriteOut();

    // So much was written there. True: the run is on its way to the disk now.
    bool wrote(int fd, uint64_t offset, uint64_t bytes, WriteRun& run);
    // A range is on its way.
    bool busy() const;

  private:
    std::shared_ptr<bool> busy_;  // its thread may outlive the session
};

}  // namespace souk::files
