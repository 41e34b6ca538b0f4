// SPDX-License-Identifier: GPL-2.0-or-later
// The owner wants memory, so some guests leave. The method is to try machines and guests at random,
// and to try out what any other choice of guests would free.
#include <algorithm>
#include <set>

#include "agentd/core/memory_wish.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/guest_bench.hpp"

namespace souk::unit {
namespace {

using namespace guests;

MemoryWish::Standing guest(uint64_t number, int64_t memory_mb, bool leaves = false) {
    return {{{"n1", number}, {1}}, memory_mb, leaves};
}
std::vector<uint64_t> numbers(const std::vector<GuestKey>& keys) {
    std::vector<uint64_t> all;
    all.reserve(keys.size());
    for (const GuestKey& key : keys) all.push_back(key.id.seq);
    return all;
}
using Numbers = std::vector<uint64_t>;

Bench& pause(Bench& b, bool on = true) {
    b.end([on](Guest& g, guest::Outputs& o) {
        g.set_paused(on ? souk::Cause(CauseCode::owner_uses, "he is") : souk::Cause(), o);
    });
    return b.ended(guest::Paused{on});
}
Bench& wanted(Bench& b, Nanos now) {
    b.end([now](Guest& g, guest::Outputs& o) { (void)g.tick(now, o); });
    return b.end([](Guest& g, guest::Outputs& o) { g.want_memory({key}, o); });
}
Bench& tick(Bench& b, Nanos now) {
    return b.end([now](Guest& g, guest::Outputs& o) { (void)g.tick(now, o); });
}

}  // namespace

START_TEST(nobody_leaves_while_as_much_is_free_as_he_wants) {
    const std::vector<MemoryWish::Standing> all = {guest(1, 500), guest(2, 700)};
    ck_assert((MemoryWish{1000, 1000}.who_leaves(all).empty()));
    ck_assert((MemoryWish{0, 0, 1000}.who_leaves(all).empty()));  // he does not ask for it
    ck_assert((MemoryWish{2000, 1000, 99}.who_leaves(all).empty()));
    ck_assert((MemoryWish{0, 1000}.who_leaves({}).empty()));
}
END_TEST

START_TEST(the_smallest_that_is_enough_leaves_else_the_largest_first) {
    const std::vector<MemoryWish::Standing> all = {guest(1, 500), guest(2, 700), guest(3, 100)};
    ck_assert((numbers(MemoryWish{900, 1000}.who_leaves(all)) == Numbers{3}));
    ck_assert((numbers(MemoryWish{600, 1000}.who_leaves(all)) == Numbers{1}));
    ck_assert((numbers(MemoryWish{100, 1000}.who_leaves(all)) == Numbers{2, 1}));
    ck_assert((numbers(MemoryWish{220, 1000}.who_leaves(all)) == Numbers{2, 3}));
    ck_assert((numbers(MemoryWish{0, 9000}.who_leaves(all)) == Numbers{2, 1, 3}));
    ck_assert((numbers(MemoryWish{2000, 1000, 100}.who_leaves(all)) == Numbers{3}));
}
END_TEST

START_TEST(who_is_on_his_way_counts_as_gone) {
    ck_assert((MemoryWish{500, 1000}.who_leaves({guest(1, 600, true), guest(2, 500)}).empty()));
    ck_assert((numbers(MemoryWish{200, 1000}.who_leaves(
                   {guest(1, 600, true), guest(2, 300), guest(3, 150)})) == Numbers{2}));
    ck_assert((MemoryWish{2000, 1000, 500}.who_leaves({guest(1, 0, true), guest(2, 5)}).empty()));
}
END_TEST

START_TEST(whatever_is_wanted_is_given_up_and_nobody_leaves_for_nothing) {
    Rng rng(23);
    for (int round = 0; round < 20'000; ++round) {
        MemoryWish wish{rng.between(0, 2'000), rng.between(0, 2'000),
                        static_cast<int32_t>(rng.below(200))};
        std::vector<MemoryWish::Standing> all;
        const int64_t count = rng.between(0, 8);
        for (int64_t i = 0; i < count; ++i)
            all.push_back(
                guest(static_cast<uint64_t>(i) + 1, rng.between(0, 600), rng.chance(0.2)));
        const auto leave = numbers(wish.who_leaves(all));
        const std::set<uint64_t> set(leave.begin(), leave.end());
        ck_assert_uint_eq(set.size(), leave.size());
        int64_t freed = 0, could = 0, least = INT64_MAX;
        for (const auto& g : all) {
            const int64_t mb = std::max<int64_t>(g.memory_mb, 1);
            if (g.leaves || set.contains(g.key.id.seq)) freed += mb;
            could += mb;
            if (g.leaves) ck_assert(!set.contains(g.key.id.seq));
            if (set.contains(g.key.id.seq)) least = std::min(least, mb);
        }
        const bool stalls = wish.wanted_mb > 0 && wish.stalls_permille >= 100;
        const int64_t missing =
            wish.wanted_mb == 0 ? 0 : std::max<int64_t>(wish.wanted_mb - wish.free_mb, stalls);
        ck_assert(freed >= std::min(missing, could));
        // No guest leaves in vain: without the smallest of them the memory would not be enough.
        if (!leave.empty()) ck_assert(freed - least < missing);
    }
}
END_TEST

START_TEST(whose_memory_is_wanted_is_told_to_leave_and_frozen_when_he_has_not) {
    Bench b;
    pause(b.running());
    ck_assert(b.g.standing().size() == 1 && !b.g.standing()[0].leaves);
    ck_assert_text(wanted(b, Nanos::from_s(100)).text(), "X");
    ck_assert(b.g.standing()[0].leaves && b.g.is_to_leave(key, "n2"));
    ck_assert_text(b.end([](Guest& g, guest::Outputs& o) { g.want_memory({key}, o); }).text(), "");
    ck_assert_text(tick(b, Nanos::from_s(109)).text(), "");
    ck_assert_text(tick(b, Nanos::from_s(111)).text(), "ready_criu/disk");
    ck_assert_text(b.criu_ready().text(), "dump_to_disk");
    b.dump_held().gone();
    // The guest's memory is the owner's again. Its image may stay.
    ck_assert(b.state() == GuestState::frozen && b.g.standing().empty());
    ck_assert(b.g.image_waits(key, "n2").empty() && !b.g.is_to_leave(key, "n2"));
}
END_TEST

START_TEST(who_stands_by_the_markets_word_goes_to_the_disk_at_once) {
    Bench b;
    b.running();
    GuestCommand c;
    c.id = job;
    c.epoch = {1};
    c.verb = GuestVerb::freeze;
    c.stand = true;
    b.out.clear();
    b.g.command("n1", c, b.out);
    b.ended(guest::Stood{});
    ck_assert(b.g.standing().size() == 1 && !b.g.standing()[0].leaves);
    wanted(b, Nanos::from_s(100));
    ck_assert(b.g.standing()[0].leaves);
    tick(b, Nanos::from_s(100));
    b.undone();
    ck_assert_text(b.text(), "ready_criu/disk");
}
END_TEST

START_TEST(when_it_is_wanted_no_more_who_has_not_begun_stays) {
    Bench b;
    pause(b.running());
    wanted(b, Nanos::from_s(100));
    b.end([](Guest& g, guest::Outputs&) { g.want_no_memory(); });
    ck_assert(!b.g.standing()[0].leaves);
    ck_assert_text(tick(b, Nanos::from_s(200)).text(), "");
    pause(b, false);
    ck_assert(b.g.standing().empty());  // it runs
}
END_TEST

START_TEST(who_cannot_leave_is_not_asked) {
    Bench b;
    pause(b.running());
    b.ended(guest::Movable{Trouble("it has an io_uring")});
    ck_assert(b.g.standing().empty());
    b.ended(guest::Movable{});
    ck_assert(b.g.standing().size() == 1);
}
END_TEST

UNIT_SUITE(memory_wish, nobody_leaves_while_as_much_is_free_as_he_wants,
           the_smallest_that_is_enough_leaves_else_the_largest_first,
           who_is_on_his_way_counts_as_gone,
           whatever_is_wanted_is_given_up_and_nobody_leaves_for_nothing,
           whose_memory_is_wanted_is_told_to_leave_and_frozen_when_he_has_not,
           who_stands_by_the_markets_word_goes_to_the_disk_at_once,
           when_it_is_wanted_no_more_who_has_not_begun_stays, who_cannot_leave_is_not_asked);

}  // namespace souk::unit
