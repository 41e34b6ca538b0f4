// SPDX-License-Identifier: GPL-2.0-or-later
// MemoryWish: which guests that stand in memory for the owner of this node are to leave, because he
// wants that memory. While he does not want it they stand, and can go on within milliseconds. He
// wants it when less of the machine's memory is free than he says, or when programs stand still for
// want of memory while guests do not run.
//
// Pure: the machine's figures and the standing guests come in, the guests that are to leave go out.
// Only as many leave as are needed: the memory of a guest on its way counts as free. The smallest
// guest that has enough leaves, because it is gone soonest; if none has enough, the largest first.
#pragma once

#include <cstdint>
#include <vector>

#include "agentd/core/guest_io.hpp"

namespace souk {

struct MemoryWish {
    // Thousandths of ten seconds. A user of the machine feels more than that.
    static constexpr int32_t stalls_max_permille = 100;

    int64_t free_mb = 0;          // of the machine, what programs could have
    int64_t wanted_mb = 0;        // that is to be free; 0: no guest leaves for that
    int32_t stalls_permille = 0;  // of the last ten seconds something waited for memory

    struct Standing {
        GuestKey key;
        int64_t memory_mb = 0;  // the guest holds so much
        bool leaves = false;    // it is on its way, or has been told to leave
    };
    // How much memory guests are to give up.
    int64_t missing_mb() const;
    std::vector<GuestKey> who_leaves(std::vector<Standing> standing) const;
};

}  // namespace souk
