// SPDX-License-Identifier: GPL-2.0-or-later
// The page of metrics: its text, and what is answered to whom.
#include "kernel/sys/net/metrics_page.hpp"

#include "tests/unit/loop_fixture.hpp"

using namespace souk;

START_TEST(values_have_labels_help_and_type_and_what_is_special_is_escaped) {
    const Metric jobs{
        "souk_jobs", "Jobs.", false, {{{{"state", "a\"b\\"}}, 3}, {{{"state", "run"}}, 0.5}}};
    ck_assert_text(
        metrics_text({jobs, counter("souk_done_total", "Done.", 7), {"none", "", false, {}}}),
        "# HELP souk_jobs Jobs.\n# TYPE souk_jobs gauge\n"
        "souk_jobs{state=\"a\\\"b\\\\\"} 3\nsouk_jobs{state=\"run\"} 0.5\n"
        "# HELP souk_done_total Done.\n# TYPE souk_done_total counter\n"
        "souk_done_total 7\n");
}
END_TEST

UNIT_SUITE(metrics_page, values_have_labels_help_and_type_and_what_is_special_is_escaped);
