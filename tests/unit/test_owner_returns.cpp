// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/owner_returns.hpp"

#include "agentd/store/records.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr Nanos ms(int64_t n) { return Nanos::from_ms(n); }
constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }
constexpr OwnerPromise promise{ms(100), s(30), s(60)};

using Guests = OwnerReturns::Guests;
using Which = OwnerReturns::Which;

}  // namespace

START_TEST(each_return_is_measured_from_its_first_sign_and_what_is_promised_is_judged) {
    OwnerReturns all;
    all.configured(promise);
    ck_assert(!all.see(s(1), {}).kept && all.due() == Nanos::never());
    const Guests run{.running = 2, .in_memory = 2, .here = 3, .memory_mb = 500, .who = "n1.7 runs"};
    auto news = all.began(s(10), s(1'000), "load", "process 7 ran 10 ms", run);
    ck_assert(news.kept && news.kept->number == 1 && news.kept->guests == 2);
    ck_assert(all.open() && all.due() == s(10) + ms(100) + Nanos{1});
    Guests now = run;
    now.lowered = true;
    ck_assert(all.see(s(10) + ms(5), now).kept->free_cpu == ms(5));
    ck_assert(!all.see(s(10) + ms(6), now).kept);
    ck_assert(all.due() == s(40) + Nanos{1});
    now.running = 0;
    now.who = "n1.7: has a POSIX message queue open";
    ck_assert(all.see(s(11), now).kept->stopped == s(1));
    news = all.see(all.due(), now);
    ck_assert_text(news.kept->memory_missed, now.who);
    ck_assert(all.due() == s(70) + Nanos{1});
    now.in_memory = now.here = 0;
    now.who.clear();
    news = all.see(s(50), now);
    ck_assert(news.kept->free_memory == s(40) && news.kept->empty == s(40));
    ck_assert(all.due() == Nanos::never());
    news = all.ended(s(400), now);
    ck_assert(news.kept->away == s(390) && !all.open() && news.kept->empty_missed.empty());
    const auto memory = all.figures(Which::free_memory);
    ck_assert(memory.count == 1 && memory.missed == 1 && memory.p50 == s(40));
    ck_assert(all.figures(Which::free_cpu).missed == 0);
}
END_TEST

START_TEST(a_return_to_a_machine_without_guests_is_no_figure) {
    OwnerReturns all;
    all.configured(promise);
    for (int i = 0; i < 3; ++i) {
        all.began(s(10 + i), s(1'000 + i), "load", "", Guests{});
        all.ended(s(10 + i) + ms(500), Guests{});
    }
    ck_assert_uint_eq(all.all().size(), 3);
    for (const Which which : {Which::free_cpu, Which::free_memory, Which::empty})
        ck_assert_uint_eq(all.figures(which).count, 0);
}
END_TEST

START_TEST(who_goes_before_a_promise_ends_has_missed_nothing) {
    OwnerReturns all;
    all.configured(promise);
    const Guests run{.running = 1, .in_memory = 1, .here = 1, .lowered = true};
    all.began(s(10), s(1'000), "load", "", run);
    const auto news = all.ended(s(20), run);
    ck_assert(news.kept->free_memory.ns < 0 && news.kept->memory_missed.empty());
    ck_assert_uint_eq(all.figures(Which::free_memory).count, 0);
    // A guest that could not be lowered is missed with that reason.
    Guests high = run;
    high.lowered = false;
    high.trouble = "no cpu.idle";
    all.began(s(30), s(1'020), "wait", "", high);
    ck_assert_text(all.see(s(31), high).kept->cpu_missed, "no cpu.idle");
    // An empty node is the owner's at once.
    all.ended(s(32), high);
    const auto empty = all.began(s(40), s(1'030), "session", "", {});
    ck_assert(empty.kept->empty == Nanos{} && empty.kept->free_cpu == Nanos{});
}
END_TEST

START_TEST(what_guests_take_again_while_he_is_here_is_not_his) {
    OwnerReturns all;
    all.configured(promise);
    const Guests run{
        .running = 1, .in_memory = 1, .here = 1, .lowered = true, .who = "n1.7: it runs"};
    all.began(s(10), s(1'000), "load", "", {});
    // One guest comes early enough to be gone in time, and then one comes that is not.
    ck_assert(all.see(s(20), run).kept->free_memory.ns < 0 && all.due() == s(40) + Nanos{1});
    ck_assert(all.see(s(30), {}).kept->free_memory == s(20) && all.due() == Nanos::never());
    const auto news = all.see(s(50), run);
    ck_assert_text(news.kept->memory_missed, "n1.7: it runs");
    ck_assert(news.kept->empty_missed.empty() && news.kept->free_cpu == Nanos{});
    // The owner goes. Guests that come afterwards do not concern him.
    all.see(s(55), {});
    ck_assert(all.ended(s(60), run).kept->empty == s(45));
}
END_TEST

START_TEST(guests_that_are_lent_a_share_may_stay_and_hold_no_more_than_that) {
    OwnerReturns all;
    all.configured(promise);
    Guests run{.running = 2, .in_memory = 2, .here = 2, .memory_mb = 900, .who = "n1.7: it runs"};
    run.share = "here = 0.5 cpus, 500M memory";
    auto news = all.began(s(10), s(1'000), "load", "", run);
    ck_assert_text(news.kept->share, run.share);
    run.lowered = true;
    ck_assert(all.see(s(11), run).kept->free_cpu == s(1));
    run.running = run.in_memory = run.here = 1;  // one has left
    run.within_share = true;
    news = all.see(s(20), run);
    ck_assert(news.kept->free_memory == s(10) && news.kept->empty.ns < 0);
    ck_assert(all.due() == Nanos::never());  // it may stay
    ck_assert(!all.see(s(900), run).kept);
    // A guest that has no room comes after the promised time.
    run.within_share = false;
    news = all.see(s(901), run);
    ck_assert(news.kept->free_memory.ns < 0);
    ck_assert_text(news.kept->memory_missed, run.who);
    ck_assert(all.ended(s(950), run).kept->empty_missed.empty());
}
END_TEST

START_TEST(the_newest_are_kept_and_figures_are_of_them) {
    OwnerReturns all;
    uint64_t forgotten = 0;
    for (size_t i = 0; i < OwnerReturns::kept_max + 5; ++i) {
        const Guests run{.running = 1, .in_memory = 1, .here = 1};
        const Nanos at = s(static_cast<int64_t>(10 * i));
        for (const auto& news : {all.began(at, at, "load", "", run),
                                 all.see(at + ms(static_cast<int64_t>(i)), {.lowered = true}),
                                 all.ended(at + s(5), {})})
            forgotten += news.forgotten.size();
    }
    ck_assert_uint_eq(forgotten, 5);
    ck_assert_uint_eq(all.all().size(), OwnerReturns::kept_max);
    const auto f = all.figures(Which::free_cpu);
    ck_assert(f.p50 == ms(504) && f.p99 == ms(994) && f.p999 == ms(1'003));
    // A daemon that starts again reads the same returns.
    OwnerReturns again;
    for (const OwnerReturn& r : all.all()) again.load(*wire::unpack<OwnerReturn>(wire::pack(r)));
    ck_assert(again.all() == all.all() && !again.open());
    JsonWriter j;
    j.begin_object();
    again.write(j, 2);
    const std::string text = j.end_object().take();
    ck_assert_msg(text.find("\"number\":1005") != text.npos, "%s", text.c_str());
    ck_assert(text.find("\"number\":1003") == text.npos);
}
END_TEST

UNIT_SUITE(owner_returns,
           each_return_is_measured_from_its_first_sign_and_what_is_promised_is_judged,
           who_goes_before_a_promise_ends_has_missed_nothing,
           a_return_to_a_machine_without_guests_is_no_figure,
           what_guests_take_again_while_he_is_here_is_not_his,
           guests_that_are_lent_a_share_may_stay_and_hold_no_more_than_that,
           the_newest_are_kept_and_figures_are_of_them);

}  // namespace souk::unit
