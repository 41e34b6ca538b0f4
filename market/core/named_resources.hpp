// SPDX-License-Identifier: GPL-2.0-or-later
// Named resources: what a job may ask for beside CPUs and memory, by a name and a count (gpu=2,
// matlab=5). A node has those of its owner, the market those that hold wherever a job runs
// (licences). The solver knows a name by a number, which ResourceBook gives. Pure values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernel/base/money.hpp"

namespace souk::market {

struct NamedAmount {
    static constexpr int32_t count_max = 1'000'000;
    uint32_t name = 0;
    int32_t count = 0;  // 1 to count_max
    bool operator==(const NamedAmount&) const = default;
};
// Each name once, in their order.
using NamedAmounts = std::vector<NamedAmount>;

struct NamedOffer {
    uint32_t name = 0;
    int32_t count = 0;
    Money reserve;  // each one of it is not given below this per hour
    bool operator==(const NamedOffer&) const = default;
};
using NamedOffers = std::vector<NamedOffer>;  // the same

// Null: there is none of that name.
template <class Named>
const Named* find_named(const std::vector<Named>& all, uint32_t name) {
    const auto at = std::lower_bound(all.begin(), all.end(), name,
                                     [](const Named& one, uint32_t n) { return one.name < n; });
    return at != all.end() && at->name == name ? &*at : nullptr;
}

// How much is left of what one job asks for. It may be below 0, where pinned jobs have more than
// there is.
class NamedRoom {
  public:
    NamedRoom(const NamedOffers& all, const NamedAmounts& needs) {
        left_.reserve(needs.size());
        for (const NamedAmount& need : needs) {
            const NamedOffer* const offer = find_named(all, need.name);
            left_.push_back({need.name, need.count, offer ? offer->count : 0});
        }
    }
    void take(const NamedAmounts& amounts, int sign = 1) {
        for (One& one : left_)
            if (const NamedAmount* const amount = find_named(amounts, one.name))
                one.left -= int64_t{sign} * amount->count;
    }
    void give(const NamedAmounts& amounts) { take(amounts, -1); }
    bool holds() const {
        return std::all_of(left_.begin(), left_.end(),
                           [](const One& one) { return one.left >= one.need; });
    }
    // Whether it would hold more with these given back.
    bool lacks_some_of(const NamedAmounts& amounts) const {
        return std::any_of(left_.begin(), left_.end(), [&](const One& one) {
            return one.left < one.need && find_named(amounts, one.name);
        });
    }

  private:
    struct One {
        uint32_t name = 0;
        int64_t need = 0, left = 0;
    };
    std::vector<One> left_;
};

}  // namespace souk::market
