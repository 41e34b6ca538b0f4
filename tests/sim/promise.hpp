// SPDX-License-Identifier: GPL-2.0-or-later
// PromiseWatch: whether the owners of simulated nodes have what they were promised. It knows when
// an owner came and what is really there (world.hpp), and nothing of the machines that are to see
// to it. While he is there, from each promised time on, at every moment:
//   cpu     no guest uses a CPU that the kernel has not told to let the owner go first
//   memory  no process of a guest is there, or of those that are no more than he leaves them
//   empty   nor a capsule, nor an image of a job of another home
// Else the node has written down that it missed that promise, and why. And whatever the node says
// is so, is so. The time begins with the first sign of him that a living daemon could notice, and
// again when that daemon has died.
#pragma once

#include <map>
#include <string>

#include "tests/sim/world.hpp"

namespace souk::sim {

// The share of his node that an owner lends, as numbers: thousandths of a CPU, MB; 0: he has not
// said.
struct ShareSaid {
    int64_t here_milli = 0, here_mb = 0;     // while he is here
    int64_t clock_milli = 0;                 // in one minute of the day, by the clock on the wall
    int32_t from_minute = 0, to_minute = 0;  // that one
    bool lends_here() const { return here_milli > 0 || here_mb > 0; }
};

class PromiseWatch {
  public:
    struct Promised {
        Nanos cpu, memory, empty;  // 0: nothing
        int64_t memory_mb = -1;    // that guests may hold; below 0: none may be there
    };
    // The node's own account of its owner's return. `has`: he has that back now; `missed`: he did
    // not have it in time, and since when.
    struct Said {
        bool has_cpu = false, stopped = false, has_memory = false, is_empty = false;
        std::string cpu_missed, memory_missed, empty_missed;
    };
    void came(const NodeName& node, Nanos now) { since_.try_emplace(node, now); }
    void gone(const NodeName& node) { since_.erase(node); }
    bool any() const { return !since_.empty(); }
    // How long the owner has been here; below 0: he is away.
    Nanos here_for(const NodeName& node, Nanos now) const {
        const auto since = since_.find(node);
        return since == since_.end() ? Nanos{-1} : now - since->second;
    }
    bool holds(const NodeName& node) const { return since_.contains(node); }
    // Says what is wrong there, or nothing. `lowered`: the kernel lets the owner go first. If
    // nothing changes there, the answer stays the same until `again`, which this brings forward.
    std::string look(const World& world, const NodeName& node, Nanos now, bool lowered,
                     const Promised& promised, const Said& said, Nanos& again) const;

  private:
    std::map<NodeName, Nanos> since_;
};

}  // namespace souk::sim
