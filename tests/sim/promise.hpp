// SPDX-License-Identifier: GPL-2.0-or-later
// PromiseWatch: whether the owners of simulated nodes have what they were promised. It knows when
// an owner came and what is really there (world.hpp), and nothing of the machines that are to see
// to it. While he is there, from each promised time on, at every moment:
//   cpu     no guest uses a CPU that the kernel has not told to let the owner go first
//   memory  no process of a guest is there
//   empty   nor a capsule, nor an image of a job of another home
// Else the node has written down that it missed that promise, and why. And whatever the node says
// is so, is so. The time begins with the first sign of him that a living daemon could notice, and
// again when that daemon has died.
#pragma once

#include <map>
#include <string>

#include "tests/sim/world.hpp"

namespace souk::sim {

class PromiseWatch {
  public:
    struct Promised {
        Nanos cpu, memory, empty;  // 0: nothing
    };
    // What a node says of his return. `has`: that is his now; `missed`: it was not in time, since.
    struct Said {
        bool has_cpu = false, stopped = false, has_memory = false, is_empty = false;
        std::string cpu_missed, memory_missed, empty_missed;
    };
    void came(const NodeName& node, Nanos now) { since_.try_emplace(node, now); }
    void gone(const NodeName& node) { since_.erase(node); }
    bool any() const { return !since_.empty(); }
    bool holds(const NodeName& node) const { return since_.contains(node); }
    // What is wrong there; empty: nothing. `lowered`: the kernel lets the owner go first.
    std::string look(const World& world, const NodeName& node, Nanos now, bool lowered,
                     const Promised& promised, const Said& said) const;

  private:
    std::map<NodeName, Nanos> since_;
};

}  // namespace souk::sim
