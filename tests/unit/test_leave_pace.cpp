// SPDX-License-Identifier: GPL-2.0-or-later
// How fast what leaves for the owner may go. Method: senders that want much or little at random
// times, and a list of what went when, of which every span is added up; promises and sizes at
// random, and a plain count of what is left, second by second.
#include <algorithm>
#include <deque>
#include <vector>

#include "agentd/core/leave_pace.hpp"
#include "kernel/base/rate_limit.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }
constexpr uint64_t MB = 1'000'000, piece = 64 << 10;

struct Gone {
    Nanos at;
    uint64_t bytes;
};

// More in some span than the rate allows. Sums from each piece on.
bool too_fast(const std::vector<Gone>& all, uint64_t rate, uint64_t beside) {
    for (size_t from = 0; from < all.size(); ++from) {
        uint64_t sum = 0;
        for (size_t to = from; to < all.size() && to < from + 400; ++to) {
            sum += all[to].bytes;
            const double span = (all[to].at - all[from].at + RateLimit::slack).seconds();
            if (static_cast<double>(sum) >
                span * static_cast<double>(rate) + static_cast<double>(beside))
                return true;
        }
    }
    return false;
}

// Asks as BulkSender does; what it may, it sends, in parts.
struct Sender {
    explicit Sender(RateLimit& limit) : share(&limit, piece) {}
    RateShare share;
    uint64_t wants = 0, sent = 0;
    Nanos next;
};

LeavePace::Left left(uint64_t memory, uint64_t images = 0) { return {memory, images}; }

}  // namespace

START_TEST(without_a_rate_nothing_waits) {
    RateLimit limit;
    RateShare share(&limit), none;
    for (int i = 0; i < 100; ++i) {
        ck_assert_uint_eq(share.room(1 << 30, s(1)), 1 << 30);
        ck_assert_uint_eq(none.room(1 << 30, s(1)), 1 << 30);
        share.went(1 << 30);
    }
    ck_assert(!share.limited() && !none.limited() && share.wait(s(1)).ns == 0);
}
END_TEST

START_TEST(no_span_has_more_than_the_rate_and_all_get_the_same) {
    Rng rng(19);
    for (int round = 0; round < 60; ++round) {
        RateLimit limit;
        const uint64_t rate = MB * static_cast<uint64_t>(rng.between(1, 200));
        limit.set(rate, {});
        const auto count = static_cast<size_t>(rng.between(1, 6));
        std::vector<Sender> senders(count, Sender(limit));
        const bool greedy = rng.chance(0.5);
        const Nanos late = Nanos::from_us(rng.chance(0.5) ? 0 : rng.between(0, 3'000));  // timers
        for (Sender& x : senders) x.wants = greedy ? UINT64_MAX : 0;
        std::vector<Gone> gone;
        Nanos now;
        const Nanos end = s(2);
        while (now < end) {
            for (Sender& x : senders) {
                if (!greedy && rng.chance(0.01)) x.wants += rng.below(2 * MB);
                while (x.wants > 0 && now >= x.next) {
                    const uint64_t room = x.share.room(std::min<uint64_t>(x.wants, 1 << 20), now);
                    if (room == 0) {
                        const Nanos wait = x.share.wait(now);
                        ck_assert(wait.ns > 0 && wait <= RateShare::look_again);
                        x.next = now + wait + Nanos{rng.between(0, late.ns)};
                        break;
                    }
                    ck_assert(room <= piece);
                    const uint64_t part = rng.chance(0.2) ? 1 + rng.below(room) : room;
                    x.share.went(part);
                    gone.push_back({now, part});
                    x.sent += part;
                    if (!greedy) x.wants -= std::min(x.wants, part);
                }
            }
            now += Nanos::from_us(rng.between(1, 500));
        }
        ck_assert(!too_fast(gone, rate, (count + 1) * piece));
        if (!greedy) continue;
        uint64_t all = 0, least = UINT64_MAX, most = 0;
        for (const Sender& x : senders) {
            all += x.sent;
            least = std::min(least, x.sent);
            most = std::max(most, x.sent);
        }
        // Late timers cost nothing as long as others, or the slack, make up for them.
        ck_assert_msg(all > rate * 2 / 10 * 9, "%llu of %llu", static_cast<unsigned long long>(all),
                      static_cast<unsigned long long>(rate * 2));
        // (What makes up for them goes to whoever asks first.)
        if (late.ns == 0 && rate <= 50 * MB) ck_assert(most - least <= most / 20 + 2 * piece);
    }
}
END_TEST

START_TEST(another_rate_holds_for_what_is_booked) {
    RateLimit limit;
    limit.set(MB, {});
    RateShare one(&limit, MB), two(&limit, MB);
    ck_assert_uint_eq(one.room(MB, s(0)), MB);
    one.went(MB);
    ck_assert_uint_eq(two.room(MB, s(0)), 0);  // in a second
    RateShare three(&limit, MB);
    limit.set(4 * MB, s(0));
    // Two MB are booked before it: half a second by now.
    ck_assert_uint_eq(three.room(MB, Nanos::from_ms(499) - RateLimit::slack), 0);
    ck_assert_uint_eq(three.room(MB, Nanos::from_ms(501)), MB);
    limit.set(0, Nanos::from_ms(501));
    ck_assert_uint_eq(two.room(MB, Nanos::from_ms(501)), MB);
}
END_TEST

START_TEST(what_cannot_wait_goes_and_others_wait_for_it) {
    RateLimit limit;
    limit.set(MB, s(1));
    RateShare urgent(&limit), other(&limit);
    urgent.went_at_once(2 * MB, s(1));
    ck_assert_uint_eq(other.room(piece, s(1)), 0);
    ck_assert_uint_eq(other.room(piece, s(2)), 0);
    ck_assert_uint_eq(other.room(piece, s(3)), piece);
}
END_TEST

START_TEST(nobody_waits_for_ever_however_many_they_are) {
    RateLimit limit;
    limit.set(1, {});
    RateShare first(&limit), second(&limit);
    ck_assert(first.room(piece, {}) > 0);
    ck_assert_uint_eq(second.room(piece, {}), 0);
    ck_assert(second.room(piece, RateShare::wait_max) > 0);
}
END_TEST

START_TEST(the_owners_rate_holds_while_he_is_here_and_only_then) {
    LeavePace pace;
    const LeavePace::Owner he{s(100)};
    ck_assert_uint_eq(pace.rate(s(0), 50 * MB, std::nullopt, left(1000 * MB)), 0);
    ck_assert_uint_eq(pace.rate(s(100), 50 * MB, he, {}), 50 * MB);
    ck_assert_uint_eq(pace.rate(s(101), 50 * MB, he, left(1000 * MB)), 50 * MB);
    ck_assert_uint_eq(pace.rate(s(102), 0, he, left(1000 * MB)), 0);
    ck_assert_uint_eq(pace.rate(s(103), 50 * MB, std::nullopt, left(1000 * MB)), 0);
}
END_TEST

START_TEST(a_promise_raises_it_and_its_end_ends_it) {
    LeavePace pace;
    const LeavePace::Owner he{s(0), {{}, s(80), s(200)}};
    // 600 MB of memory within 60 s, 700 within 150.
    ck_assert_uint_eq(pace.rate(s(0), MB, he, left(600 * MB, 100 * MB)), 10 * MB + 1);
    ck_assert_uint_eq(pace.rate(s(30), MB, he, left(600 * MB, 0)), 20 * MB + 1);
    ck_assert_uint_eq(pace.rate(s(60), MB, he, left(1, 0)), 0);
    // Its memory is his; the image is to be gone as well.
    ck_assert_uint_eq(pace.rate(s(60), MB, he, left(0, 900 * MB)), 10 * MB + 1);
    ck_assert_uint_eq(pace.rate(s(150), MB, he, left(0, 1)), 0);
    ck_assert_uint_eq(pace.rate(s(151), MB, he, {}), MB);
}
END_TEST

START_TEST(whatever_is_to_leave_has_gone_in_time) {
    Rng rng(7);
    for (int round = 0; round < 2'000; ++round) {
        LeavePace pace;
        LeavePace::Owner he{s(rng.between(0, 1'000))};
        if (rng.chance(0.5)) he.promise.free_memory = s(rng.between(4, 400));
        if (rng.chance(0.5)) he.promise.empty = s(rng.between(4, 800));
        const uint64_t configured = MB * static_cast<uint64_t>(rng.between(1, 100));
        const Nanos from = he.since + s(rng.between(0, 100));
        uint64_t memory = rng.below(64'000 * MB), images = rng.below(64'000 * MB);
        // The last moments of a bound go at any rate: the machine can do so much.
        const uint64_t most = 400'000 * MB;
        Nanos gone = Nanos::never(), memory_gone = Nanos::never();
        for (Nanos now = from; now <= from + s(2'000); now += s(1)) {
            if (memory == 0) memory_gone = std::min(memory_gone, now);
            if (memory == 0 && images == 0) {
                gone = now;
                break;
            }
            const uint64_t rate = pace.rate(now, configured, he, left(memory, images));
            ck_assert(rate == 0 || rate >= configured);
            uint64_t goes = rate == 0 ? most : rate;
            const uint64_t part = std::min(memory, goes);
            memory -= part;
            goes -= part;
            images -= std::min(images, goes);
        }
        ck_assert(gone <= from + LeavePace::longest + s(1));
        const auto kept = [&](Nanos promised, Nanos when) {
            return promised.ns == 0 || when <= std::max(he.since + promised, from + s(2));
        };
        ck_assert(kept(he.promise.free_memory, memory_gone) && kept(he.promise.empty, gone));
    }
}
END_TEST

START_TEST(who_leaves_later_has_his_own_time) {
    LeavePace pace;
    const LeavePace::Owner he{s(0)};
    ck_assert_uint_eq(pace.rate(s(1'000), 10 * MB, he, left(3 * MB)), 10 * MB);
    ck_assert_uint_eq(pace.rate(s(1'300), 10 * MB, he, left(3 * MB)), 0);
    ck_assert_uint_eq(pace.rate(s(1'301), 10 * MB, he, {}), 10 * MB);
    ck_assert_uint_eq(pace.rate(s(1'302), 10 * MB, he, left(3 * MB)), 10 * MB);
}
END_TEST

UNIT_SUITE(leave_pace, without_a_rate_nothing_waits,
           no_span_has_more_than_the_rate_and_all_get_the_same,
           another_rate_holds_for_what_is_booked, what_cannot_wait_goes_and_others_wait_for_it,
           nobody_waits_for_ever_however_many_they_are,
           the_owners_rate_holds_while_he_is_here_and_only_then,
           a_promise_raises_it_and_its_end_ends_it, whatever_is_to_leave_has_gone_in_time,
           who_leaves_later_has_his_own_time);

}  // namespace souk::unit
