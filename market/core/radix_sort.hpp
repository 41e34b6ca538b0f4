// SPDX-License-Identifier: GPL-2.0-or-later
// Sorting indices by a number that spreads: least significant digit first over its leading bits,
// then whatever these do not tell apart by comparison. Faster than comparing alone from some
// hundred indices on; at worst (one number far from all others) not slower than that by much.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace souk::market {

// Sorts `items` by before(a, b), a total order in which a smaller number_of(item) (int64_t) goes
// first.
template <class Item, class NumberOf, class Before>
void radix_sort(std::vector<Item>& items, NumberOf&& number_of, Before&& before) {
    constexpr int digits = 3, bits = 8;
    struct Tagged {
        uint32_t tag;
        Item item;
    };
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (const Item& x : items) {
        low = std::min<int64_t>(low, number_of(x));
        high = std::max<int64_t>(high, number_of(x));
    }
    if (items.size() < 2) return;
    const auto above_low = [&](const Item& x) {
        return static_cast<uint64_t>(number_of(x)) - static_cast<uint64_t>(low);
    };
    const int width = std::bit_width(static_cast<uint64_t>(high) - static_cast<uint64_t>(low));
    const int drop = std::max(0, width - digits * bits);
    uint32_t begins[digits][1 << bits] = {};
    std::vector<Tagged> from, to(items.size());
    from.reserve(items.size());
    for (const Item& x : items) {
        const auto tag = static_cast<uint32_t>(above_low(x) >> drop);
        from.push_back({tag, x});
        for (int d = 0; d < digits; ++d) ++begins[d][tag >> d * bits & ((1 << bits) - 1)];
    }
    for (int d = 0; d < digits && d * bits < width - drop; ++d) {
        uint32_t sum = 0;
        for (uint32_t& n : begins[d]) sum += std::exchange(n, sum);
        for (const Tagged& x : from) to[begins[d][x.tag >> d * bits & ((1 << bits) - 1)]++] = x;
        from.swap(to);
    }
    for (size_t i = 0; i < from.size(); ++i) items[i] = from[i].item;
    for (size_t i = 0, end; i < from.size(); i = end) {
        for (end = i + 1; end < from.size() && from[end].tag == from[i].tag;) ++end;
        const auto first = items.begin() + static_cast<ptrdiff_t>(i),
                   last = items.begin() + static_cast<ptrdiff_t>(end);
        if (end - i > 1 && !std::is_sorted(first, last, before)) std::sort(first, last, before);
    }
}

}  // namespace souk::market
