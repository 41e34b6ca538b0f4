// SPDX-License-Identifier: GPL-2.0-or-later
// Memory sent ahead of a move: what of it is still true (against a naive model; on real processes
// in test_sent_pages_live.cpp), its file, the store at the other end, and when rounds stop.
#include <sys/mman.h>

#include <map>
#include <set>

#include "checkpoint/images.hpp"
#include "checkpoint/pages.hpp"
#include "checkpoint/plan.hpp"
#include "checkpoint/precopy_store.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {
using Page = SentPages::Page;
constexpr uint64_t P = page_bytes;

uint64_t entry(uint64_t frame, bool dirty = false) {
    return frame | pagemap::present | (dirty ? pagemap::soft_dirty : 0);
}

START_TEST(only_private_memory_without_a_file_is_sent_ahead) {
    const auto maps = parse_maps(
        "55d0c0a00000-55d0c0a10000 r-xp 00000000 fe:00 1234                       /usr/bin/a name\n"
        "55d0c0b00000-55d0c0b21000 rw-p 00000000 00:00 0                          [heap]\n"
        "7f0000000000-7f0000100000 ---p 00000000 00:00 0 \n"
        "7f0000100000-7f0000200000 rw-s 00000000 00:01 77                         /dev/zero "
        "(deleted)\n"
        "7f0000200000-7f0000201000 r--p 00000000 00:00 0 \n"
        "7ffd1c000000-7ffd1c021000 rw-p 00000000 00:00 0                          [stack]\n"
        "7ffd1c1f0000-7ffd1c1f4000 r--p 00000000 00:00 0                          [vvar]\n"
        "7ffd1c1f4000-7ffd1c1f6000 r-xp 00000000 00:00 0                          [vdso]\n");
    ck_assert(maps.has_value());
    const std::vector<PrivateMapping> want = {{0x55d0c0b00000, 0x55d0c0b21000},
                                              {0x7f0000200000, 0x7f0000201000},
                                              {0x7ffd1c000000, 0x7ffd1c021000}};
    ck_assert(maps->mappings == want && !maps->has_aio);
    const auto aio =
        parse_maps("7f0000000000-7f0000001000 rw-s 00000000 00:0f 9 /[aio] (deleted)\n");
    ck_assert(aio.has_value() && aio->has_aio);
    for (const char* bad :
         {"x", "1000-0000 rw-p 0 0 0\n", "1000-2000\n", "1001-2000 rw-p 0 00:00 0 \n"})
        ck_assert(!parse_maps(bad).has_value());
    ck_assert(parse_maps("").has_value() && parse_maps("")->mappings.empty());
}
END_TEST

START_TEST(a_page_counts_as_long_as_it_is_the_same_and_not_marked) {
    SentPages s;
    ck_assert(s.look({{P, entry(1)}, {2 * P, entry(2, true)}, {9 * P, entry(3)}}) ==
              (std::vector<uint64_t>{P, 2 * P, 9 * P}));
    ck_assert(s.valid(7).empty());
    for (const uint64_t a : {P, 2 * P, 9 * P}) s.sent(a);
    ck_assert(s.valid(7) == (std::vector<PageRange>{{7, P, 2}, {7, 9 * P, 1}}));
    ck_assert(s.unchanged(P, entry(1)) && !s.unchanged(P, entry(1, true)) &&
              !s.unchanged(P, entry(4)) && !s.unchanged(3 * P, entry(1)));
    // Written to; another page at its place (of mremap, or a fork's copy); gone; new.
    ck_assert(s.look({{P, entry(1, true)}, {2 * P, entry(5)}, {10 * P, entry(6)}}) ==
              (std::vector<uint64_t>{P, 2 * P, 10 * P}));
    ck_assert(s.valid(7).empty());
    s.sent(P);
    // it was away meanwhile
    ck_assert(s.look({{P, entry(1)}, {9 * P, entry(3)}}) == (std::vector<uint64_t>{9 * P}));
    ck_assert(s.valid(7) == (std::vector<PageRange>{{7, P, 1}}));
    // A page in swap is the same only if it was sent from there.
    const uint64_t swapped = 77 | pagemap::swapped;
    ck_assert_uint_eq(s.look({{P, swapped}}).size(), 1);
    s.sent(P);
    ck_assert(s.look({{P, swapped}}).empty() &&
              s.look({{P, swapped | pagemap::soft_dirty}}).size() == 1);
}
END_TEST

// A process whose pages are written to, moved without a mark, dropped and made anew, as the kernel
// does it: marks go with the page, and are cleared at a look. Whatever is called true in the end
// must be the content of that moment.
START_TEST(what_counts_in_the_end_is_what_the_memory_holds) {
    struct Model {
        uint64_t frame = 0, content = 0;
        bool dirty = false;
    };
    for (uint64_t seed = 0; seed < 300; ++seed) {
        Rng rng(seed);
        std::map<uint64_t, Model> memory;
        std::map<uint64_t, uint64_t> store;  // address -> content, over there
        uint64_t frames = 0, contents = 0;
        SentPages s;
        const auto at = [&] { return (1 + rng.below(24)) * P; };
        const auto happen = [&] {
            const uint64_t a = at(), b = at();
            switch (rng.below(6)) {
                case 0:
                case 1:
                    memory[a] = {memory.contains(a) ? memory[a].frame : ++frames, ++contents, true};
                    return;
                case 2: memory.erase(a); return;
                case 3:  // mremap of whole page tables: no mark
                    if (a == b || !memory.contains(a)) return;
                    memory[b] = memory[a];
                    memory.erase(a);
                    return;
                case 4:  // moved in the machine, or a copy after a fork was written to
                    if (memory.contains(a)) memory[a].frame = ++frames;
                    return;
                default:
                    if (memory.contains(a) && memory.contains(b)) std::swap(memory[a], memory[b]);
            }
        };
        for (uint64_t round = 0, rounds = 1 + rng.below(5); round <= rounds; ++round) {
            std::vector<Page> now;
            now.reserve(memory.size());
            for (const auto& [address, m] : memory)
                now.push_back({address, entry(m.frame, m.dirty)});
            const auto left = s.look(now);
            if (round == rounds) break;
            for (auto& [address, m] : memory) m.dirty = false;
            for (const uint64_t address : left) {
                if (rng.chance(0.5)) happen();
                const auto it = memory.find(address);
                if (it == memory.end() ||
                    !s.unchanged(address, entry(it->second.frame, it->second.dirty)))
                    continue;
                store[address] = it->second.content;
                s.sent(address);
            }
            for (uint64_t i = rng.below(20); i > 0; --i) happen();
        }
        for (const PageRange& r : s.valid(1))
            for (uint64_t i = 0; i < r.pages; ++i) {
                const auto it = memory.find(r.start + i * P);
                ck_assert_msg(it != memory.end() && store[it->first] == it->second.content,
                              "seed %lu", seed);
            }
    }
}
END_TEST

START_TEST(ranges_are_split_by_what_was_sent_and_written_down_so) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
        Rng rng(seed);
        const auto some = [&] {
            std::vector<PageRange> ranges;
            for (pid_t pid = 1; pid < 4; ++pid)
                for (uint64_t page = 1 + rng.below(3), n; page < 60; page += n + 1 + rng.below(4))
                    ranges.push_back({pid, page * P, n = 1 + rng.below(9)});
            return ranges;
        };
        const auto pages = [](const std::vector<PageRange>& ranges) {
            std::set<std::pair<pid_t, uint64_t>> all;
            for (const PageRange& r : ranges)
                for (uint64_t i = 0; i < r.pages; ++i)
                    ck_assert(all.insert({r.pid, r.start + i * P}).second);
            return all;
        };
        const auto ranges = some(), of = some();
        const SplitRanges split = split_ranges(ranges, of);
        const auto in = pages(split.in), out = pages(split.out), of_pages = pages(of);
        for (const auto& page : pages(ranges))
            ck_assert_int_ne(in.contains(page), out.contains(page));
        ck_assert_uint_eq(in.size() + out.size(), pages(ranges).size());
        for (const auto& page : in) ck_assert(of_pages.contains(page));
        for (const auto& page : out) ck_assert(!of_pages.contains(page));
        ck_assert_uint_eq(bytes_of(split.in), in.size() * P);
        const PrecopyList list{split.in, rng.chance(0.5) ? "0123456789abcdef" : ""};
        const std::string file = encode_precopy(list);
        ck_assert(decode_precopy(file) == list);
        std::string bad = file;
        bad[rng.below(bad.size())] = static_cast<char>(rng.next());
        (void)decode_precopy(bad);  // refused or another list, never worse
        ck_assert(!decode_precopy(file.substr(0, file.size() - 1)).has_value());
    }
    ck_assert(!decode_precopy("").has_value());
    // overlap
    ck_assert(!decode_precopy(encode_precopy({{{1, 2 * P, 4}, {1, 3 * P, 1}}, ""})).has_value());
    ck_assert(!decode_precopy(encode_precopy({{{2, P, 1}, {1, P, 1}}, ""})).has_value());
}
END_TEST

START_TEST(the_store_gives_the_newest_of_each_page_and_only_what_it_has) {
    const std::string a(2 * P, 'a'), b(P, 'b'), c(3 * P, 'c');
    const uint64_t high = uint64_t{0x7ffff0000000};
    PrecopyStore store(6 * P);
    ck_assert(store.put({5, high, 2}, a).has_value() &&
              store.put({5, high + P, 1}, b).has_value() && store.put({6, high, 3}, c).has_value());
    ck_assert(!store.put({5, high, 1}, a).has_value());  // not that many bytes
    ck_assert_uint_eq(store.bytes_taken(), 6 * P);
    ck_assert(!store.use({{{5, high + P, 2}}, ""}).has_value());
    ck_assert(!store.use({{{9, high, 1}}, ""}).has_value());
    Digest digest;
    digest.add(std::string(P, 'a') + b + c);
    const PrecopyList list{{{5, high, 2}, {6, high, 3}}, digest.hex()};
    ck_assert(store.use(list).has_value());
    ck_assert_uint_eq(store.bytes_to_use(), 5 * P);
    const auto wish = store.at({5, high + P, 16});
    ck_assert(wish.has_value() && wish->range == (PageRange{5, high + P, 1}) && wish->bytes == b);
    ck_assert(store.at({5, high + 2 * P, 1})->range.pages == 0 &&
              store.at({4, high, 1})->range.pages == 0);
    std::string all;
    for (;;) {
        const auto piece = store.next();
        ck_assert(piece.has_value());
        if (piece->range.pages == 0) break;
        all += piece->bytes;
    }
    ck_assert(all == std::string(P, 'a') + b + c);
    // Never more than was announced; and a digest that is not the job's is found.
    PrecopyStore small(2 * P), wrong(2 * P);
    ck_assert(small.put({5, 0x1000, 2}, a).has_value() && small.put({5, 0x2000, 1}, b).has_value());
    ck_assert(!small.put({5, 0x9000, 1}, b).has_value());
    ck_assert(wrong.put({5, 0x1000, 2}, a).has_value());
    ck_assert(!wrong.use({{{5, 0x1000, 2}}, digest.hex()}).has_value());
    ck_assert(!room_precopy(uint64_t{1} << 60).has_value() && room_precopy(1 << 20).has_value());
}
END_TEST

START_TEST(rounds_go_on_as_long_as_each_leaves_clearly_less) {
    RoundFacts f;
    f.memory_bytes = f.left_bytes = 100 << 20;
    ck_assert(another_round(f));
    f.rounds = 1;
    f.took = Nanos::from_s(1);
    f.sent_bytes = f.left_before = 100 << 20;
    f.left_bytes = 50 << 20;
    ck_assert(another_round(f));
    f.left_bytes = 90 << 20;
    ck_assert(!another_round(f));  // it writes as fast as it is sent
    f.left_bytes = 256 << 10;
    ck_assert(!another_round(f));  // that is sent in 2.5 ms
    f.left_bytes = 0;
    ck_assert(!another_round(f));
    f.left_bytes = 50 << 20;
    f.rounds = precopy_rounds_max;
    ck_assert(!another_round(f));
    f.rounds = 3;
    f.sent_bytes = uint64_t{390} << 20;
    ck_assert(!another_round(f));
    f.sent_bytes = uint64_t{200} << 20;
    ck_assert(another_round(f));
    f.took = precopy_time_max;
    ck_assert(!another_round(f));
}
END_TEST

START_TEST(each_bound_of_the_rounds_is_met_before_it_is_passed) {
    constexpr uint64_t mb = 1 << 20;
    RoundFacts f;
    f.rounds = precopy_rounds_max - 1;
    f.memory_bytes = 100 * mb;
    f.left_before = 100 * mb;
    f.left_bytes = 75 * mb;  // precopy_falls_to of it
    f.sent_bytes = precopy_sends_max * f.memory_bytes - f.left_bytes;
    f.took = precopy_time_max - Nanos{1};
    ck_assert(another_round(f));
    RoundFacts over = f;
    over.left_bytes += 1;
    over.sent_bytes -= 1;
    ck_assert(!another_round(over));
    over = f;
    over.sent_bytes += 1;
    ck_assert(!another_round(over));
    // The pages that are left would take as long as the round before. If that is just the goal, it
    // is good enough.
    f.sent_bytes = f.left_bytes;
    f.took = precopy_left_goal;
    ck_assert(!another_round(f));
    f.took += Nanos::from_ms(1);
    ck_assert(another_round(f));
}
END_TEST

START_TEST(what_an_earlier_move_measured_decides_whether_memory_goes_ahead) {
    constexpr uint64_t mb = 1 << 20, memory = 512 * mb;
    constexpr double link = 1024.0 * mb;
    ck_assert_uint_eq(dirty_rate(100 * mb, Nanos::from_ms(500)), 200 * mb);
    ck_assert_uint_eq(dirty_rate(100 * mb, Nanos{}), 0);
    // A tenth of the link: rounds of a half second, 50 ms, and so on, until less than 5 ms are
    // left.
    const uint64_t slow = expected_left(memory, link, {102 * mb, 0});
    ck_assert_uint_le(slow, 5 * mb + mb / 2);
    ck_assert_uint_gt(slow, 4 * mb);
    // it always writes to these
    ck_assert_uint_eq(expected_left(memory, link, {102 * mb, 60 * mb}), 60 * mb);
    // as fast as it is sent
    ck_assert_uint_eq(expected_left(memory, link, {4096 * mb, 0}), memory);
    // as slowly as it is sent
    ck_assert_uint_eq(expected_left(memory, link / 20, {102 * mb, 0}), memory);
    // it had more then
    ck_assert_uint_eq(expected_left(memory, link, {0, 700 * mb}), memory);
    MoveFacts f;
    f.pages_possible = f.post_copy_possible = f.precopy_possible = true;
    f.memory_bytes = memory;
    f.link_bytes_per_s = link;
    f.policy = MovePolicy::safe;
    ck_assert(plan_move(f).precopy);
    const Nanos unknown = plan_move(f).forecast.pause;
    f.dirty = DirtyFacts{102 * mb, 10 * mb};
    ck_assert(plan_move(f).precopy && plan_move(f).forecast.pause < unknown);
    f.dirty = DirtyFacts{4096 * mb, memory};
    ck_assert(!plan_move(f).precopy);
    f.policy = MovePolicy::automatic;
    ck_assert(!plan_move(f).precopy && plan_move(f).forecast.form == MoveForm::post_copy);
    // After the rounds of this move only the figures of these rounds count.
    f.precopy = PrecopyFacts{600 * mb, Nanos::from_s(1), 8 * mb, link, 3, 50 * mb};
    const MoveForecast after = plan_move(f).forecast;
    ck_assert(after.left_bytes == 8 * mb && after.precopy_rounds == 3 &&
              after.dirty_bytes_per_s == 50 * mb);
    ck_assert(after.pause < unknown);
}
END_TEST

START_TEST(memory_goes_ahead_where_that_saves_a_pause) {
    MoveFacts f;
    f.pages_possible = f.post_copy_possible = f.precopy_possible = true;
    f.memory_bytes = 512 << 20;
    const auto plan = [&](MovePolicy policy) {
        f.policy = policy;
        return plan_move(f);
    };
    ck_assert(plan(MovePolicy::automatic).precopy && plan(MovePolicy::safe).precopy);
    ck_assert(!plan(MovePolicy::fast).precopy &&
              plan(MovePolicy::fast).forecast.form == MoveForm::post_copy);
    f.memory_bytes = 8 << 20;
    ck_assert(!plan(MovePolicy::automatic).precopy && !plan(MovePolicy::safe).precopy);
    f.link_bytes_per_s = 10e6;  // a slow link makes less memory worth it
    ck_assert(plan(MovePolicy::automatic).precopy);
    f.memory_bytes = uint64_t{2} << 30;  // and so slow a one, that rounds would never end
    ck_assert(!plan(MovePolicy::automatic).precopy);
    f.link_bytes_per_s = 0;
    f.memory_bytes = 512 << 20;
    f.precopy_possible = false;  // here the kernel does not track it
    for (const MovePolicy policy : {MovePolicy::automatic, MovePolicy::safe, MovePolicy::fast})
        ck_assert(!plan(policy).precopy);
    f.precopy_possible = true;
    const Nanos before = [&] {
        MoveFacts without = f;
        without.precopy_possible = false;
        without.policy = MovePolicy::safe;
        return plan_move(without).forecast.pause;
    }();
    // The memory has gone ahead. The job then stands still while the rest is sent and all is
    // placed, or only for faults on the rest.
    f.precopy = PrecopyFacts{600 << 20, Nanos::from_s(1), 8 << 20, 600e6, 2, 0};
    const MovePlan safe = plan(MovePolicy::safe), any = plan(MovePolicy::automatic);
    ck_assert(!safe.precopy && safe.forecast.form == MoveForm::pages_first &&
              safe.forecast.pause < before);
    ck_assert(!any.precopy && any.forecast.form == MoveForm::post_copy &&
              any.forecast.pause < safe.forecast.pause);
    ck_assert(any.forecast.total > Nanos::from_s(1) && any.forecast.precopy_bytes == 600 << 20 &&
              any.forecast.precopy_time == Nanos::from_s(1));
    ck_assert_text(move_name(safe.forecast), "pre-copy");
    ck_assert_text(move_name(any.forecast), "pre-copy, post-copy");
    f.own_network = true;
    ck_assert(plan(MovePolicy::automatic).forecast.form == MoveForm::pages_first);
    f.pages_possible = false;  // a lock was taken meanwhile
    ck_assert(plan(MovePolicy::automatic).forecast.form == MoveForm::stop_and_copy);
}
END_TEST

}  // namespace

UNIT_SUITE(sent_pages, only_private_memory_without_a_file_is_sent_ahead,
           a_page_counts_as_long_as_it_is_the_same_and_not_marked,
           what_counts_in_the_end_is_what_the_memory_holds,
           ranges_are_split_by_what_was_sent_and_written_down_so,
           the_store_gives_the_newest_of_each_page_and_only_what_it_has,
           rounds_go_on_as_long_as_each_leaves_clearly_less,
           each_bound_of_the_rounds_is_met_before_it_is_passed,
           memory_goes_ahead_where_that_saves_a_pause,
           what_an_earlier_move_measured_decides_whether_memory_goes_ahead);

}  // namespace souk
