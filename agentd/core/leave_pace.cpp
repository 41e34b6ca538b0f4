// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/leave_pace.hpp"

#include <algorithm>

namespace souk {

uint64_t LeavePace::rate(Nanos now, uint64_t configured, const std::optional<Owner>& owner,
                         const Left& left) {
    if (!owner || configured == 0 || left.none()) {
        begun_ = Nanos::never();
        return owner ? configured : 0;
    }
    begun_ = std::min(begun_, now);
    struct Bound {
        Nanos due;
        uint64_t bytes;
    };
    const auto most_of = [&](Nanos promised) {
        return promised.ns == 0 ? Nanos::never() : owner->since + Nanos{promised.ns / 4 * 3};
    };
    const uint64_t all = left.memory + left.images;
    const Bound bounds[] = {{begun_ + longest, all},
                            {most_of(owner->promise.free_memory), left.memory},
                            {most_of(owner->promise.empty), all}};
    uint64_t rate = configured;
    for (const Bound& b : bounds) {
        if (b.bytes == 0 || b.due == Nanos::never()) continue;
        if (now >= b.due) return 0;
        const double needed = static_cast<double>(b.bytes) / (b.due - now).seconds();
        if (needed >= static_cast<double>(uint64_t{1} << 40)) return 0;
        rate = std::max(rate, static_cast<uint64_t>(needed) + 1);
    }
    return rate;
}

}  // namespace souk
