// SPDX-License-Identifier: GPL-2.0-or-later
// A node measures itself how long guests have run on it.
#include "agentd/core/use_meter.hpp"
#include "agentd/store/records.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }
const GuestKey one{{"n1", 1}, Epoch{1}}, two{{"n1", 2}, Epoch{3}};

Nanos no_cpu(const GuestKey&) { return {}; }

JobUse only_of(UseMeter& meter, Nanos now, bool all = true) {
    const UseReport report = meter.report(all, now, no_cpu);
    ck_assert_int_eq(report.jobs.size(), 1);
    return report.jobs[0];
}

}  // namespace

START_TEST(only_what_runs_counts) {
    UseMeter meter(7);
    ck_assert(!meter.saw(one, GuestState::prepared, s(1)));
    ck_assert(!meter.saw(one, GuestState::held, s(2)));
    ck_assert(meter.saw(one, GuestState::running, s(10)));
    ck_assert(!meter.saw(one, GuestState::running, s(12)));
    ck_assert(!meter.saw(one, GuestState::dump_ready, s(15)));
    ck_assert(meter.saw(one, GuestState::dumping, s(20)));
    ck_assert(only_of(meter, s(100)).run == s(10));
    ck_assert(meter.saw(one, GuestState::running, s(100)));  // the move was given up
    ck_assert(only_of(meter, s(105)).run == s(15));
    ck_assert(!meter.has_news());
    ck_assert(meter.saw(one, GuestState::exited, s(110)));
    ck_assert(meter.has_news());
    const JobUse all = only_of(meter, s(500));
    ck_assert(all.ended && all.run == s(20) && all.id == one.id && all.epoch == one.epoch);
    ck_assert(!meter.has_news());
}
END_TEST

START_TEST(what_has_been_told_is_told_again_to_a_market_that_comes_back) {
    UseMeter meter(7);
    meter.saw(one, GuestState::running, s(0));
    meter.saw(two, GuestState::running, s(0));
    meter.saw(one, GuestState::frozen, s(5));
    ck_assert_int_eq(meter.report(false, s(6), no_cpu).jobs.size(), 2);
    ck_assert(only_of(meter, s(7), false).id == two.id);  // it runs
    ck_assert_int_eq(meter.report(true, s(8), no_cpu).jobs.size(), 2);
    ck_assert(meter.forget(s(5) + UseMeter::remembered).empty());
    ck_assert(meter.forget(s(6) + UseMeter::remembered) == std::vector<GuestKey>{one});
    for (uint64_t n = 1; n <= 2000; ++n) {
        meter.saw({{"n1", 100 + n}, Epoch{1}}, GuestState::running, s(10));
        meter.saw({{"n1", 100 + n}, Epoch{1}}, GuestState::killed, s(10 + static_cast<int64_t>(n)));
    }
    ck_assert_int_eq(meter.forget(s(3000)).size(), 2000 - UseMeter::ended_max);
    ck_assert_int_eq(meter.size(), UseMeter::ended_max + 1);
}
END_TEST

START_TEST(a_daemon_that_comes_back_goes_on_and_another_boot_ends_it) {
    UseMeter before(7);
    const auto kept = before.saw(one, GuestState::running, s(10));
    const auto read = wire::unpack<GuestUse>(wire::pack(*kept));
    ck_assert(read && *read == *kept);
    UseMeter same(7), other(8);
    same.load(*read, s(50));
    ck_assert(only_of(same, s(60)).run == s(50));
    other.load(*read, s(3));
    const JobUse lost = only_of(other, s(60));
    ck_assert(lost.ended && lost.run == s(0));
    // After a reboot, the record of a minute ago is all that is known.
    const auto minute = before.running(s(70));
    ck_assert(minute.size() == 1 && minute[0].run == s(60));
    UseMeter later(8);
    later.load(minute[0], s(3));
    ck_assert(only_of(later, s(60)).run == s(60));
}
END_TEST

UNIT_SUITE(use_meter, only_what_runs_counts,
           what_has_been_told_is_told_again_to_a_market_that_comes_back,
           a_daemon_that_comes_back_goes_on_and_another_boot_ends_it);

}  // namespace souk::unit
