// SPDX-License-Identifier: GPL-2.0-or-later
// HomeClaims: what a node says of a job that it has is a claim. Before Home acts on it, the numbers
// in it are brought within what its home has ordered and what the clock allows: CPU time within the
// job's CPUs times the time since it was told to start, images within twice the job's memory and
// what deleted files may add, spans of a move within a day. Who claims more is named once, in the
// job's log. Part of Home.
#pragma once

#include <map>

#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeClaims {
  public:
    // It is told to start now.
    void starts(const HomeJob& job, Nanos now);
    GuestEvent checked(const HomeJob& job, const NodeName& node, GuestEvent event,
                       const HomeTurn& turn);
    void forget(uint64_t seq) { jobs_.erase(seq); }

  private:
    struct State {
        Nanos since;  // and what it may have used by then
        Nanos used;
        bool told = false;
    };
    State& state(const HomeJob& job, const HomeTurn& turn);

    std::map<uint64_t, State> jobs_;
};

}  // namespace souk
