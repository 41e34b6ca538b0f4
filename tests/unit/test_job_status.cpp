// SPDX-License-Identifier: GPL-2.0-or-later
// The line that srun shows of its job, and where it may stand.
#include "tools/common/job_status.hpp"

#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

using tools::JobStatus;
using tools::ScreenUse;

constexpr Nanos hour = Nanos::from_s(3'600);

START_TEST(the_line_says_where_the_job_is_what_it_pays_and_what_it_has_cost) {
    JobStatus status;
    status.news("outbid; 14 would win a place");
    ck_assert_text(status.line("n1.7", {}), "n1.7: outbid; 14 would win a place");
    status.meter({JobPhase::waiting, "", Money{}, Money{}, 1, false}, {});
    ck_assert_text(status.line("n1.7", Nanos::from_s(12)),
                   "n1.7 waits 12.0s; outbid; 14 would win a place");
    status.meter({JobPhase::running, "n2", Money::units(12), Money{31'200}, 2, true}, hour);
    status.news("moved from n1 to n2, pause 84.0 ms");
    ck_assert_text(status.line("n1.7", hour),
                   "n1.7 on n2 at 12 per CPU-hour on 2 CPUs, 0.0312 so far; moved from n1 to n2, "
                   "pause 84.0 ms");
    // 2 CPUs at 12 for half an hour more
    ck_assert_text(status.money(hour + Nanos{hour.ns / 2}),
                   "12 per CPU-hour on 2 CPUs, 12.03 so far");
    status.meter({JobPhase::frozen, "n2", Money{}, Money::units(12), 2, false}, hour);
    status.news("frozen on n2");
    ck_assert_text(status.line("n1.7", hour + Nanos::from_s(125)),
                   "n1.7 frozen on n2 for 2m05s, 12 so far; frozen on n2");
    ck_assert(status.cost(hour + hour) == Money::units(12));  // it costs nothing meanwhile
}
END_TEST

START_TEST(a_price_is_new_once_and_only_while_the_job_runs) {
    JobStatus status;
    ck_assert(!status.new_price());
    wire::Meter meter{JobPhase::running, "n2", Money::units(12), Money{}, 1, true};
    status.meter(meter, {});
    ck_assert(status.new_price() && !status.new_price());
    meter.cost = Money::units(1);
    status.meter(meter, hour);
    ck_assert(!status.new_price());
    meter.price = Money::units(13);
    status.meter(meter, hour);
    ck_assert(status.new_price());
    status.meter({JobPhase::frozen, "n2", Money::units(14), Money{}, 1, false}, hour);
    ck_assert(!status.new_price());
}
END_TEST

bool free_after(std::initializer_list<const char*> written) {
    ScreenUse screen;
    for (const char* text : written) screen.wrote(text);
    return screen.free();
}

START_TEST(the_line_stands_at_the_beginning_of_an_empty_line_of_a_job_that_writes_lines) {
    ck_assert(free_after({}));
    ck_assert(free_after({"one\r\n", "two\n"}));
    ck_assert(!free_after({"name: "}));
    ck_assert(!free_after({"50 %\r"}));  // a line that is written over and over
    ck_assert(free_after({"50 %\r", "100 %\n"}));
    ck_assert(free_after({"\x1b[31mred\x1b", "[0m\n", "\x1b[K"}) == false);
    ck_assert(free_after({"\x1b[31mred\x1b", "[0m\n"}));
    ck_assert(!free_after({"\x1b[", "2J\x1b[H\n"}));  // it moves the cursor about
    ck_assert(
        !free_after({"\x1b"
                     "7\n"}));
}
END_TEST

UNIT_SUITE(job_status, the_line_says_where_the_job_is_what_it_pays_and_what_it_has_cost,
           a_price_is_new_once_and_only_while_the_job_runs,
           the_line_stands_at_the_beginning_of_an_empty_line_of_a_job_that_writes_lines);

}  // namespace
}  // namespace souk::unit
