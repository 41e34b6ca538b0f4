// SPDX-License-Identifier: GPL-2.0-or-later
// Locks: locks of files that jobs hold, kept from the end of their processes until a CRIU that
// restores them has handed them over (checkpoint/kept_locks.h, criu_locks.c). A process keeps those
// of one dump: it outlives this one and agentd, as a capsule does, and ends when the directory of
// the capsule is removed, since then its job runs elsewhere or is over. It is found again by a
// token, which the image has, and by the user whose job it is: also by the souk-root of another
// node of the same kernel. It opens a door (kernel/sys/net/lock_door.hpp) to the server of the
// job's files, should the job go on at a node where that one holds its locks. At the door of such a
// server a process of its own asks, since the server is the user's and may let it wait.
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::root {

class Locks {
  public:
    // The end of a socket that a CRIU gets. `directory`: of its capsule; -1: its dump ends what it
    // has at once. At most as many as there are CRIUs.
    Result<Fd> open(int directory, uint32_t user);
    // Adds all that is to be waited for; look() gets them back in the same order.
    void wait_for(std::vector<pollfd>& all) const;
    void look(const pollfd* ready, size_t count);

  private:
    struct Talk {
        Fd socket;
        std::string directory;
        uint32_t user = 0;
        std::vector<Fd> kept;
        Pidfd giver;  // answers; until it has ended the CRIU is not heard
    };
    static bool hear(Talk& talk);
    std::vector<Talk> talks_;
};

}  // namespace souk::root
