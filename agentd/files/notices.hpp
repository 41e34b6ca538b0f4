// SPDX-License-Identifier: GPL-2.0-or-later
// Notices: has the kernel forget the attributes of files that have changed, now and not when they
// are a second old. Owned by the client of a mount.
//
// A notice waits while such a file is read. From a short answer the kernel concludes that the file
// ends there, but not if its attributes were forgotten since it asked. It then goes by the length
// that it knew, and a reader gets zeros at the end of a file that was cut. So a notice waits for
// the answers to reads that are on their way. The kernel trusts attributes for a second at most, so
// a notice that waits for longer is not missed.
//
// Names the kernel keeps for their second: a notice of a name waits for locks, whose holder may
// wait for this process, and FUSE_NOTIFY_INC_EPOCH (6.16) drops the names of open files, which CRIU
// needs.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include "agentd/files/slots.hpp"
#include "kernel/base/result.hpp"

namespace souk::files {

class Notices {
  public:
    // `fuse`: where the kernel's requests are read. `take`: takes all that are there into slots.
    Notices(int fuse, Slots& requests, std::function<Status()> take)
        : fuse_(fuse), slots_(requests), take_(std::move(take)) {}

    void changed(uint64_t node) { waiting_.insert(node); }
    bool is_waited_for(uint64_t node) const { return waiting_.contains(node); }
    // Tells what may be told now. False: the mount has ended. Errors: those of `take`.
    Result<bool> tell();

  private:
    bool is_read(uint64_t node);
    bool tell(uint64_t node) const;

    const int fuse_;
    Slots& slots_;
    const std::function<Status()> take_;
    std::set<uint64_t> waiting_;
};

}  // namespace souk::files
