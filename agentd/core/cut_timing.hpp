// SPDX-License-Identifier: GPL-2.0-or-later
// CutTiming: how a gang was cut, for the story of a job: how many components it was, and how long
// it took from the first that stood to the last, as their home heard of it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernel/base/time.hpp"

namespace souk {

struct CutTiming {
    uint32_t components = 0;
    Nanos skew{-1};  // below 0: not known

    // `members` maps the number of each component to a struct with its `stood_at`.
    template <class Members>
    static CutTiming of(const Members& members) {
        CutTiming timing{static_cast<uint32_t>(members.size())};
        Nanos first = Nanos::never(), last{-1};
        for (const auto& [seq, m] : members) {
            if (m.stood_at == Nanos::never()) return timing;
            first = std::min(first, m.stood_at);
            last = std::max(last, m.stood_at);
        }
        if (!members.empty()) timing.skew = last - first;
        return timing;
    }
};

}  // namespace souk
