// SPDX-License-Identifier: GPL-2.0-or-later
// Unsynced: which files of a mount the job may have changed since they were last synced. Before a
// move agentd syncs what the job has open for writing (agentd/cell/frozen_steps.hpp); a file that
// was not changed from here needs no round trip then, and no flush of the home's disk. An fsync(2)
// of the job's own always goes home. Pure. Owned by the client.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <unordered_map>

#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

class Unsynced {
  public:
    static constexpr size_t files_max = 65'536;

    // `from_first`: it has seen all requests of the mount. Else each fsync counts.
    explicit Unsynced(bool from_first) : sure_(from_first) {}
    // A request of the kernel, before it is sent; `seq` grows.
    void asked(ByteView request, uint64_t seq);
    // The answer to a request that was asked.
    void answered(ByteView request, ByteView answer, uint64_t seq);
    // Tells that the request is a sync from outside of the capsule, and the home need not be asked.
    bool is_synced(ByteView request) const;
    // Tells that nothing was changed from here that was not synced since.
    bool all_synced() const { return sure_ && changed_.empty(); }

  private:
    void changed(uint64_t node, uint64_t seq);
    void forgotten(uint64_t node);

    bool sure_;
    std::unordered_map<uint64_t, uint64_t> changed_;  // by node: the last that changed it
};

}  // namespace souk::files
