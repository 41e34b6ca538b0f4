// SPDX-License-Identifier: GPL-2.0-or-later
// MemoryWish: which guests that stand in memory for the owner of this node are to leave it, since
// he wants that memory. They stand for as long as he does not: they go on within milliseconds
// where they are. He wants it when less of the machine's memory is free than he says, or when
// programs stand still for want of it while guests do not run.
//
// Pure: what the machine says and who stands come in, who is to leave goes out. Only as many as
// are needed: the memory of who is on his way already counts as free. Of those who have enough the
// smallest one, as it is gone soonest; where nobody has, the largest first.
#pragma once

#include <cstdint>
#include <vector>

#include "agentd/core/guest_io.hpp"

namespace souk {

struct MemoryWish {
    // Of ten seconds, as thousandths: that is felt by who works there.
    static constexpr int32_t stalls_max_permille = 100;

    int64_t free_mb = 0;          // of the machine, what programs could have
    int64_t wanted_mb = 0;        // that is to be free; 0: no guest leaves for that
    int32_t stalls_permille = 0;  // of the last ten seconds something waited for memory

    struct Standing {
        GuestKey key;
        int64_t memory_mb = 0;  // that it holds
        bool leaves = false;    // it is on its way, or has been told to leave
    };
    // How much memory guests are to give up.
    int64_t missing_mb() const;
    std::vector<GuestKey> who_leaves(std::vector<Standing> standing) const;
};

}  // namespace souk
