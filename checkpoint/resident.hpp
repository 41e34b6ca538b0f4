// SPDX-License-Identifier: GPL-2.0-or-later
// Resident: how much memory several processes have, each page counted once however many of them map
// it: the kernel's proportional sums (/proc/PID/smaps_rollup). It walks their page tables, at about
// 10 ns a page.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/reach.hpp"
#include "kernel/base/result.hpp"

namespace souk {

struct Resident {
    uint64_t proportional = 0;  // of a page that n processes map, an n-th for each
    uint64_t anonymous = 0;     // of each process its own
    uint64_t anonymous_proportional = 0;
    // Returns an upper bound of the anonymous pages that several of the processes map, each counted
    // once.
    uint64_t shared_max() const;
    bool operator==(const Resident&) const = default;
};

// Parses the text of one smaps_rollup. Fails if it is none.
Result<Resident> parse_rollup(std::string_view text);
// Returns the sum for all these processes. Processes that are gone count nothing. Fails if none is
// there, or the kernel does not tell.
Result<Resident> resident_of(const PidsInside& pids, const LookAt& look = look_from_here);

}  // namespace souk
