// SPDX-License-Identifier: GPL-2.0-or-later
// The containers of the allocation core, each against the standard one that does the same, on
// random cases.
#include <algorithm>
#include <map>
#include <vector>

#include "kernel/base/rng.hpp"
#include "market/core/block_list.hpp"
#include "market/core/chunks.hpp"
#include "market/core/key_map.hpp"
#include "market/core/radix_sort.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

// Keys as callers have them: counting up, a node in the upper half, and anything.
uint64_t random_key(Rng& rng, int kind) {
    if (kind == 0) return 1 + rng.below(600);
    if (kind == 1) return rng.between(1, 30) << 32 | rng.between(1, 30);
    return rng.below(50) == 0 ? UINT64_MAX - rng.below(9) : 1 + rng.next() / 2;
}

START_TEST(a_key_map_finds_what_a_map_finds) {
    for (int kind = 0; kind < 3; ++kind) {
        Rng rng(static_cast<uint64_t>(kind) + 1);
        KeyMap map;
        std::map<uint64_t, uint32_t> truth;
        std::vector<uint64_t> seen;
        for (uint32_t i = 0; i < 20'000; ++i) {
            const bool old = !seen.empty() && rng.chance(0.5);
            const uint64_t key = old ? seen[rng.below(seen.size())] : random_key(rng, kind);
            seen.push_back(key);
            const auto it = truth.find(key);
            ck_assert_uint_eq(map.find(key), it == truth.end() ? KeyMap::none : it->second);
            if (it == truth.end()) {
                map.insert(key, i);
                truth[key] = i;
            } else if (rng.chance(0.7)) {
                map.erase(key);
                truth.erase(it);
            }
        }
        for (const auto& [key, index] : truth) ck_assert_uint_eq(map.find(key), index);
        ck_assert_uint_eq(map.find(0), KeyMap::none);
    }
}
END_TEST

START_TEST(chunks_keep_what_they_hold_where_it_is) {
    Chunks<uint64_t> chunks;
    std::vector<const uint64_t*> places;
    for (uint64_t i = 0; i < 50'000; ++i) {
        uint64_t& x = chunks.add();
        ck_assert_uint_eq(x, 0);
        x = i * i;
        places.push_back(&x);
    }
    ck_assert_uint_eq(chunks.size(), places.size());
    uint64_t i = 0;
    for (const uint64_t& x : chunks) {
        ck_assert(&x == places[i] && &x == &chunks[i]);
        ck_assert_uint_eq(x, i * i);
        ++i;
    }
}
END_TEST

struct Item {
    int64_t key = 0;
    int64_t weight = 0;
    int64_t order() const { return key; }
};
struct Heaviest {
    int64_t weight = INT64_MIN;
    void widen(const Item& x) { weight = std::max(weight, x.weight); }
};

START_TEST(a_block_list_holds_what_a_map_holds_and_no_summary_is_too_strict) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
        Rng rng(seed);
        BlockList<Item, Heaviest, 8> list;
        std::map<int64_t, int64_t> truth;
        for (int64_t key = 0; key < 100; ++key) {
            list.append({key * 3, key});
            truth[key * 3] = key;
        }
        for (int step = 0; step < 4'000; ++step) {
            const int64_t key = rng.between(-50, 400);
            if (!truth.contains(key)) {
                const int64_t weight = rng.between(-9, 9);
                list.insert({key, weight});
                truth[key] = weight;
            } else if (rng.chance(0.5)) {
                list.erase(key);
                truth.erase(key);
            } else {
                const auto place = list.find(key);
                ck_assert_int_eq(list[place].weight, truth[key]);
                list[place].weight = truth[key] = rng.between(-9, 9);
                list.widen(place.block, list[place]);
            }
            const int64_t probe = rng.between(-60, 410);
            const auto next = truth.upper_bound(probe);
            const size_t after = list.block_after(probe);
            ck_assert((after == list.blocks()) == (next == truth.end()));
            if (next != truth.end()) ck_assert(list.block(after).back().key >= next->first);
            if (after > 0) ck_assert(list.block(after - 1).back().key <= probe);
        }
        ck_assert_uint_eq(list.size(), truth.size());
        auto it = truth.begin();
        list.each([&](const Item& x) {
            ck_assert(it != truth.end() && it->first == x.key && it->second == x.weight);
            ++it;
            return true;
        });
        ck_assert(it == truth.end());
        for (size_t b = 0; b < list.blocks(); ++b) {
            int64_t heaviest = INT64_MIN;
            for (const Item& x : list.block(b)) heaviest = std::max(heaviest, x.weight);
            ck_assert_int_ge(list.summary(b).weight, heaviest);
            list.summarise(b);
            ck_assert_int_eq(list.summary(b).weight, heaviest);
        }
        while (!truth.empty()) {
            list.erase(truth.begin()->first);
            truth.erase(truth.begin());
        }
        ck_assert(list.empty() && list.size() == 0);
    }
}
END_TEST

START_TEST(a_radix_sort_orders_as_the_comparison_does) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        Rng rng(seed);
        std::vector<int64_t> number(rng.below(2'000));
        const int64_t span = int64_t{1} << rng.below(62);
        for (int64_t& n : number) n = rng.between(-span, span);
        if (seed % 3 == 0) std::fill(number.begin(), number.end(), seed);
        // far from all others
        if (seed % 5 == 0 && !number.empty()) number[0] = INT64_MIN, number.back() = INT64_MAX;
        std::vector<uint32_t> items;
        for (uint32_t i = 0; i < number.size(); ++i) items.push_back(i);
        std::vector<uint32_t> truth = items;
        const auto before = [&](uint32_t a, uint32_t b) {
            return number[a] != number[b] ? number[a] < number[b] : a < b;
        };
        for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[rng.below(i)]);
        std::sort(truth.begin(), truth.end(), before);
        radix_sort(
            items, [&](uint32_t i) { return number[i]; }, before);
        ck_assert(items == truth);
    }
}
END_TEST

}  // namespace

UNIT_SUITE(core_lists, a_key_map_finds_what_a_map_finds, chunks_keep_what_they_hold_where_it_is,
           a_block_list_holds_what_a_map_holds_and_no_summary_is_too_strict,
           a_radix_sort_orders_as_the_comparison_does);
