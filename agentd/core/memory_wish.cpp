// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/memory_wish.hpp"

#include <algorithm>
#include <tuple>

namespace souk {

int64_t MemoryWish::missing_mb() const {
    if (wanted_mb <= 0) return 0;
    if (free_mb < wanted_mb) return wanted_mb - free_mb;
    return stalls_permille >= stalls_max_permille ? 1 : 0;
}

std::vector<GuestKey> MemoryWish::who_leaves(std::vector<Standing> standing) const {
    int64_t missing = missing_mb();
    for (const Standing& s : standing)
        if (s.leaves) missing -= std::max<int64_t>(s.memory_mb, 1);
    std::erase_if(standing, [](const Standing& s) { return s.leaves; });
    std::sort(standing.begin(), standing.end(), [](const Standing& a, const Standing& b) {
        return std::tie(a.memory_mb, a.key) < std::tie(b.memory_mb, b.key);
    });
    std::vector<GuestKey> leave;
    while (missing > 0 && !standing.empty()) {
        auto enough = std::find_if(standing.begin(), standing.end(),
                                   [&](const Standing& s) { return s.memory_mb >= missing; });
        if (enough == standing.end()) --enough;
        leave.push_back(enough->key);
        missing -= std::max<int64_t>(enough->memory_mb, 1);
        standing.erase(enough);
    }
    return leave;
}

}  // namespace souk
