// SPDX-License-Identifier: GPL-2.0-or-later
// The choice of rooms of several sites for one gang (market/core/combined_offers.hpp) beside a
// reference that tries every way there is, and cases in which a greedy packing is known to fail.
#include <map>
#include <set>

#include "kernel/base/rng.hpp"
#include "market/core/combined_offers.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

struct Outcome {
    double first, second;
    int64_t away;
    bool operator<(const Outcome& o) const {
        return std::tie(first, second, away) < std::tie(o.first, o.second, o.away);
    }
    bool operator==(const Outcome& o) const = default;
};

using Needs = std::vector<CombinedNeed>;
using Rooms = std::vector<CombinedRoom>;

// nullopt: they do not fit so.
std::optional<Outcome> outcome_of(const Needs& needs, const Rooms& rooms, const CombinedWish& wish,
                                  const std::vector<size_t>& way) {
    std::map<size_t, std::pair<int64_t, int64_t>> used;
    double clear_s = 0, slowest = 1e9, rate = 0;
    int64_t away = 0;
    for (size_t i = 0; i < needs.size(); ++i) {
        const CombinedRoom& room = rooms.at(way[i]);
        auto& [cpus, mb] = used[way[i]];
        cpus += needs[i].cpus;
        mb += needs[i].memory_mb;
        if (cpus > room.cpus || mb > room.memory_mb) return std::nullopt;
        clear_s = std::max(clear_s, room.starts_in.seconds());
        slowest = std::min(slowest, static_cast<double>(room.speed));
        rate += static_cast<double>(room.price.micro) * needs[i].cpus;
        away += room.site != 0;
    }
    const double span_s = wish.work.seconds() * 100 / slowest, end = clear_s + span_s;
    return wish.cheapest ? Outcome{rate * span_s, end, away} : Outcome{end, rate * span_s, away};
}

struct All {
    std::optional<Outcome> best;
    std::set<std::vector<size_t>> ways;  // those that are the best
};

All by_hand(const Needs& needs, const Rooms& rooms, const CombinedWish& wish) {
    All all;
    std::vector<size_t> way(needs.size(), 0);
    for (bool more = !rooms.empty(); more;) {
        if (const auto o = outcome_of(needs, rooms, wish, way)) {
            if (!all.best || *o < *all.best) all.best = o, all.ways.clear();
            if (*o == *all.best) all.ways.insert(way);
        }
        size_t i = 0;
        while (i < way.size() && ++way[i] == rooms.size()) way[i++] = 0;
        more = i < way.size();
    }
    return all;
}

// Small numbers whose quotients are whole, so that equals are frequent and exact.
Rooms draw_rooms(Rng& rng, int64_t most) {
    Rooms rooms;
    for (int64_t n = rng.between(0, most); n > 0; --n)
        rooms.push_back({static_cast<size_t>(rng.below(3)), rng.between(1, 10),
                         rng.between(1, 4) * 100, Money{rng.between(0, 3)},
                         rng.chance(0.5) ? 50 : 100, Nanos::from_s(rng.between(0, 1) * 600)});
    return rooms;
}

Needs draw_needs(Rng& rng, int64_t most) {
    Needs needs;
    for (int64_t n = rng.between(1, most); n > 0; --n)
        needs.push_back({static_cast<int32_t>(rng.between(1, 5)), rng.between(0, 2) * 100});
    return needs;
}

CombinedRoom room(int64_t cpus, size_t site = 0, int64_t price = 1, int64_t speed = 100) {
    return {site, cpus, 1'000, Money::units(price), speed, {}};
}

Needs of(const std::vector<int32_t>& cpus) {
    Needs needs;
    for (const int32_t n : cpus) needs.push_back({n, 10});
    return needs;
}

const CombinedWish soonest{false, Nanos::from_s(3'600)}, cheapest{true, Nanos::from_s(3'600)};

}  // namespace

START_TEST(few_offers_are_combined_as_well_as_any_way_there_is) {
    Rng rng(3);
    size_t none = 0, several = 0, away = 0;
    for (uint64_t round = 0; round < 4'000; ++round) {
        const Needs needs = draw_needs(rng, 5);
        const Rooms rooms = draw_rooms(rng, 5);
        const CombinedWish wish{rng.chance(0.5), Nanos::from_s(rng.between(1, 3) * 600)};
        const All all = by_hand(needs, rooms, wish);
        const auto choice = combine_offers(needs, rooms, wish, round);
        ck_assert_msg(choice.has_value() == all.best.has_value(), "round %d",
                      static_cast<int>(round));
        none += !choice;
        if (!choice) continue;
        ck_assert(choice->exact);
        ck_assert_msg(all.ways.contains(choice->rooms), "round %d", static_cast<int>(round));
        several += all.ways.size() > 1;
        away += all.best->away > 0;
    }
    ck_assert(none > 300 && several > 300 && away > 300);
}
END_TEST

START_TEST(what_packs_only_by_exact_sizes_is_found) {
    // The first largest room for each is refused, though all fit.
    const Rooms rooms = {room(10), room(9, 1)};
    const auto choice = combine_offers(of({5, 5, 3, 3, 3}), rooms, soonest, 1);
    ck_assert(choice.has_value());
    ck_assert(choice->rooms == std::vector<size_t>({0, 0, 1, 1, 1}));
    ck_assert(combine_offers(of({5, 5, 3, 3, 3}), Rooms{room(10), room(8)}, soonest, 1) ==
              std::nullopt);
    ck_assert(!combine_offers({}, rooms, soonest, 1) && !combine_offers(of({1}), {}, soonest, 1));
}
END_TEST

START_TEST(the_slowest_machine_counts_for_all_and_home_wins_what_is_equal) {
    // One component on a slow machine makes all slow, so the fast ones elsewhere are better.
    const Rooms rooms = {room(1, 0, 1, 200), room(1, 0, 1, 50), room(2, 1, 9, 200)};
    const auto fast = combine_offers(of({1, 1}), rooms, soonest, 1);
    ck_assert(fast.has_value() && fast->rooms[0] != 1 && fast->rooms[1] != 1);
    // The fewest of them go away, as one at home costs less.
    ck_assert(fast->rooms[0] == 0 || fast->rooms[1] == 0);
    // Alike in all, it stays.
    const Rooms alike = {room(2, 1), room(2, 0), room(2, 2)};
    for (uint64_t seed = 0; seed < 20; ++seed)
        ck_assert(combine_offers(of({1, 1}), alike, cheapest, seed)->rooms ==
                  std::vector<size_t>({1, 1}));
}
END_TEST

START_TEST(a_coin_decides_between_equal_sites) {
    const Rooms rooms = {room(1, 1), room(1, 2)};
    size_t first = 0;
    for (uint64_t seed = 0; seed < 1'000; ++seed) {
        const auto one = combine_offers(of({1}), rooms, soonest, seed);
        ck_assert(one->rooms == combine_offers(of({1}), rooms, soonest, seed)->rooms);
        first += one->rooms[0] == 0;
    }
    ck_assert_msg(first > 400 && first < 600, "%zu of 1000", first);
}
END_TEST

START_TEST(many_offers_are_combined_in_bounded_time_and_fit) {
    Rng rng(5);
    size_t found = 0, inexact = 0;
    for (uint64_t round = 0; round < 60; ++round) {
        Needs needs = draw_needs(rng, 64);
        Rooms rooms = draw_rooms(rng, 128);
        const CombinedWish wish{rng.chance(0.5), Nanos::from_s(600)};
        const auto choice = combine_offers(needs, rooms, wish, round);
        if (!choice) continue;
        ck_assert(outcome_of(needs, rooms, wish, choice->rooms).has_value());
        ++found;
        inexact += !choice->exact;
    }
    ck_assert_msg(found > 20 && inexact > 0, "%zu found, %zu of them not exact", found, inexact);
}
END_TEST

UNIT_SUITE(combined_offers, few_offers_are_combined_as_well_as_any_way_there_is,
           what_packs_only_by_exact_sizes_is_found,
           the_slowest_machine_counts_for_all_and_home_wins_what_is_equal,
           a_coin_decides_between_equal_sites, many_offers_are_combined_in_bounded_time_and_fit);
