// SPDX-License-Identifier: GPL-2.0-or-later
// HomeEnds: a job that is cancelled is asked to end before it is ended: each of its processes gets
// SIGTERM, and JobSpec::grace passes, in which it may save what it has. Part of Home. Not kept on
// disk: a home that comes back asks once more.
#pragma once

#include <cstdint>
#include <map>

#include "agentd/core/home_io.hpp"
#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeEnds {
  public:
    // Whether it still has time; asks it to end, the first time. `can_run`: it is not stopped.
    bool has_time(const HomeJob& job, bool can_run, const HomeTurn& turn);
    // It has none left: the owner of its node wants the machine.
    void hurry(const HomeJob& job, Nanos now);
    Nanos due(const HomeJob& job) const;
    void forget(uint64_t seq) { jobs_.erase(seq); }

  private:
    struct State {
        Nanos until;         // never(): it was over, and that is done
        bool asked = false;  // not while a checkpoint is made: its node would not take the signal
    };
    std::map<uint64_t, State> jobs_;
};

}  // namespace souk
