// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <cmath>

#include "market/sim/estimate.hpp"
#include "market/sim/import.hpp"
#include "market/sim/plot.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::sim;

namespace {

std::string error_of(std::string_view text) {
    const auto config = parse_import_config(text);
    return config ? "no error" : config.error().message;
}

SwfTrace small_trace() {
    SwfTrace trace;
    for (int i = 0; i < 6; ++i)
        trace.jobs.push_back({.id = 10 + i,
                              .submit_s = 1000 + 43'200 * (5 - i),
                              .run_s = i == 2 ? -1 : 10 + i,
                              .allocated = 2,
                              .requested = i == 3 ? 9 : -1,
                              .used_kb = i == 1 ? 2048 : -1,
                              .user = 7});
    return trace;
}

}  // namespace

START_TEST(a_configuration_may_be_toml_and_keeps_its_defaults) {
    const auto c = parse_import_config(
        "# a comment\r\ntrace = \"a #1.swf\"  # quoted\n\nproviders=3\nvalue = \"uniform 1 5\"\n"
        "arrival_divisor = 2.5\ncpus = allocated\nusers = true\n");
    ck_assert_msg(c.has_value(), "%s", c ? "" : c.error().message.c_str());
    ck_assert_text(c->trace, "a #1.swf");
    ck_assert(c->providers == 3 && c->arrival_divisor_micro == 2'500'000 &&
              c->run_multiplier_micro == 1'000'000);
    ck_assert(c->value.kind == Distribution::Kind::uniform && c->value.parameters[1] == 5);
    ck_assert(c->cpus == ImportCpus::allocated && c->users && c->seed == 1 && c->last_day == -1);
}
END_TEST

START_TEST(a_configuration_error_names_line_key_and_why) {
    ck_assert_text(error_of("trace = a\nprovider = 3\n"), "line 2: no key 'provider'");
    ck_assert_text(error_of("trace = a\nproviders\n"),
                   "line 2: 'providers' is not of the form key = value");
    ck_assert_text(error_of("jobs = 1\njobs = 2\n"), "line 2: jobs is set in line 1 already");
    ck_assert_text(error_of("jobs = x\n"), "line 1: jobs: 'x' is no integer from -1 to 2147483647");
    ck_assert_text(error_of("run_multiplier = 0\n"),
                   "line 1: run_multiplier: '0' is no number above 0 and up to 1000000");
    ck_assert_text(error_of("speed = fix\n"),
                   "line 1: speed: 'fix' 'fix' is not of the form 'fix A'");
    ck_assert_text(error_of("providers = 1\n"), "trace is not set");
    ck_assert_text(error_of("trace = a\n"), "providers is not set");
    ck_assert_text(error_of("trace = a\nproviders = 1\nfirst_day = 3\nlast_day = 2\n"),
                   "last_day is before first_day");
}
END_TEST

START_TEST(an_import_takes_the_days_scales_the_times_and_says_what_it_dropped) {
    ImportConfig c = *parse_import_config(
        "trace = a\nproviders = 2\nprovider_cpus = fix 4\ncpus = requested\nvalue = fix 9\n"
        "first_day = 1\nlast_day = 2\narrival_divisor = 2\nrun_multiplier = 1.5\n");
    // The jobs are sorted by submit: jobs 15 and 14 (day 0), 13 and 12 (day 1), 11 and 10 (day 2).
    // 13 is too wide, and 12 has no run time.
    const Imported got = *import_trace(small_trace(), c);
    ck_assert(got.dropped_no_run == 1 && got.dropped_too_wide == 1);
    const std::vector<SimJob> expected = {{1, 43'200, 17, Money::units(9), 4, 2, 1},
                                          {2, 64'800, 15, Money::units(9), 100, 2, 2}};
    ck_assert_text(format_jobs(got.jobs, true), format_jobs(expected, true));
    ck_assert_text(format_providers(got.providers),
                   "# id start end reserve memory cpus speed\n1 0 -1 1 1000000 4 100\n"
                   "2 0 -1 1 1000000 4 100\n");
    c.first_day = 9;
    c.last_day = -1;
    ck_assert_text(import_trace(small_trace(), c).error().message,
                   "no job of the trace is left by this configuration");
}
END_TEST

START_TEST(capitals_and_underscores_of_keys_do_not_matter_and_older_names_are_taken) {
    const auto c = parse_import_config(
        "useSWF = true\nswfFile = a.swf\nfirstDay = 2\nlastDay = 5\narrivalDivisor = "
        "3\nrunTimeMultiplier = 2\n"
        "numJobs = 40\nvalues = bimodal 80 30 15 20 90 15\nnumProviders = 7\nreservationPrice = "
        "fix 4\n");
    ck_assert_msg(c.has_value(), "%s", c ? "" : c.error().message.c_str());
    ck_assert(c->use_swf && c->trace == "a.swf" && c->first_day == 2 && c->last_day == 5 &&
              c->jobs_max == 40);
    ck_assert(c->arrival_divisor_micro == 3'000'000 && c->run_multiplier_micro == 2'000'000 &&
              c->providers == 7);
    ck_assert(c->value.kind == Distribution::Kind::bimodal && c->reservation.parameters[0] == 4);
    ck_assert_text(error_of("firstDay = 1\nfirst_day = 2\n"),
                   "line 2: first_day is set in line 1 already");
}
END_TEST

START_TEST(the_keys_of_the_published_configuration_are_taken) {
    const auto c = parse_import_config(
        "useSWF = true\nswfFile = a.swf\nswfStart = 2\nswfEnd = 5\nswfDivStart = 3\n"
        "swfMulRuntime = 2\njobsNum = -1\nvalueDist = bimodal\nvalueDistArgs = 80 30 15 20 90 15\n"
        "providersNum = 7\nspeedDist = \"fix\"\nspeedDistArgs = 100\nreservationDistArgs = 1, 4\n"
        "reservationDist = uniform\n");
    ck_assert_msg(c.has_value(), "%s", c ? "" : c.error().message.c_str());
    ck_assert(c->trace == "a.swf" && c->first_day == 2 && c->last_day == 5 && c->jobs_max == -1);
    ck_assert(c->arrival_divisor_micro == 3'000'000 && c->run_multiplier_micro == 2'000'000 &&
              c->providers == 7);
    ck_assert(c->value.kind == Distribution::Kind::bimodal && c->value.parameters[4] == 90);
    ck_assert(c->speed.parameters[0] == 100 && c->reservation.kind == Distribution::Kind::uniform);
    ck_assert_text(error_of("valueDist = uniform\n"), "valueDist needs valueDistArgs, its numbers");
    ck_assert_text(error_of("speedDistArgs = 100\n"),
                   "speedDistArgs needs speedDist, what they are of");
    ck_assert_text(error_of("value = fix 1\nvalueDist = fix\nvalueDistArgs = 2\n"),
                   "line 2: valueDist: value is set in line 1 already");
    ck_assert_text(error_of("valueDist = fix\nvalueDist = fix\n"),
                   "line 2: valueDist is set in line 1 already");
    ck_assert(
        error_of("valueDist = fix\nvalueDistArgs = x\n").starts_with("line 1: valueDist: 'fix"));
}
END_TEST

START_TEST(without_a_log_the_workload_is_drawn) {
    ImportConfig c = *parse_import_config(
        "useSWF = false\njobs = 200\nproviders = 2\ninterarrival = uniform 5 15\n"
        "run = fix 40\nvalue = fix 9\nspeed = fix 200\n");
    const Imported a = *draw_workload(c), b = *draw_workload(c);
    ck_assert(a.jobs == b.jobs && a.providers == b.providers && a.jobs.size() == 200 &&
              a.providers.size() == 2);
    for (size_t i = 0; i < a.jobs.size(); ++i) {
        const int64_t gap = i ? a.jobs[i].start_s - a.jobs[i - 1].start_s : 10;
        ck_assert(gap >= 5 && gap <= 15 && a.jobs[i].run_s == 40 &&
                  a.jobs[i].value == Money::units(9));
    }
    // 200 x 40 s of work, two machines twice as fast as the standard.
    const double span = static_cast<double>(a.jobs.back().start_s);
    ck_assert(std::abs(*offered_load(a) - 200 * 40 / (4 * span)) < 1e-9);
    c.seed = 2;
    ck_assert(!(draw_workload(c)->jobs == a.jobs));
    ck_assert_text(error_of("useSWF = no\nproviders = 1\n"),
                   "jobs is not set: use_swf = no needs a number of jobs");
}
END_TEST

START_TEST(jobs_of_unknown_submit_time_are_dropped_and_counted) {
    const ImportConfig c = *parse_import_config("trace = a\nproviders = 2\n");
    SwfTrace trace = small_trace();
    trace.jobs[5].submit_s = trace.jobs[0].submit_s = -1;  // the first and the last of the log
    const Imported got = *import_trace(trace, c);
    ck_assert(got.dropped_no_submit == 2 && got.dropped_no_run == 1 && got.jobs.size() == 3);
    ck_assert_int_eq(got.jobs[0].start_s, 0);  // the days count from the first that is known
    for (SwfJob& job : trace.jobs) job.submit_s = -1;
    ck_assert_text(import_trace(trace, c).error().message, "no job of the trace has a submit time");
}
END_TEST

START_TEST(shares_of_two_humps_may_be_decimals_and_fractions) {
    const auto draws = [](const char* text) {
        const auto d = parse_distribution(text);
        ck_assert_msg(d.has_value(), "%s", d ? "" : d.error().message.c_str());
        Rng rng(3);
        std::vector<int64_t> out;
        for (int i = 0; i < 4000; ++i) out.push_back(d->draw(rng, 0));
        return out;
    };
    // The draws are the same, however eighty percent are written.
    const auto whole = draws("bimodal 80 30 15 20 90 15");
    ck_assert(draws("bimodal 0.8 30 15 0.2 90 15") == whole &&
              draws("bimodal 80.0 30 15 20.0 90 15") == whole);
    const auto thin = draws("bimodal 2.5 10 0 97.5 20 0");
    const auto low = std::count(thin.begin(), thin.end(), 10);
    ck_assert_msg(low > 60 && low < 140 && std::count(thin.begin(), thin.end(), 20) + low == 4000,
                  "%ld", static_cast<long>(low));
    const auto why = [](const char* text) {
        const auto d = parse_distribution(text);
        return d ? std::string("taken") : d.error().message;
    };
    ck_assert_text(why("bimodal 0.8 30 15 0.3 90 15"),
                   "'bimodal 0.8 30 15 0.3 90 15': the two shares make neither 100 % nor 1");
    ck_assert_text(why("bimodal -20 1 1 120 2 1"),
                   "'bimodal -20 1 1 120 2 1': a share is no number with at most six decimals");
    ck_assert_text(why("bimodal 80 3.5 1 20 2 1"),
                   "'bimodal 80 3.5 1 20 2 1': '3.5' is no integer from 0 to 1000000");
}
END_TEST

START_TEST(an_import_is_a_function_of_its_seed) {
    ImportConfig c =
        *parse_import_config("trace = a\nproviders = 20\nspeed = uniform 50 150\nseed = 4\n");
    const Imported a = *import_trace(small_trace(), c), b = *import_trace(small_trace(), c);
    ck_assert(a.jobs == b.jobs && a.providers == b.providers);
    c.jobs_max = 2;  // fewer jobs leave the providers, and the jobs before, as they are
    const Imported fewer = *import_trace(small_trace(), c);
    ck_assert(fewer.providers == a.providers && fewer.jobs.size() == 2 &&
              fewer.jobs[1] == a.jobs[1]);
    c.seed = 5;
    ck_assert(!(import_trace(small_trace(), c)->providers == a.providers));
}
END_TEST

START_TEST(a_confidence_interval_is_students) {
    for (const auto& [degrees, t] :
         {std::pair(1, 12.7062), std::pair(4, 2.7764), std::pair(10, 2.2281), std::pair(11, 2.2010),
          std::pair(19, 2.0930), std::pair(30, 2.0423), std::pair(120, 1.9799)})
        ck_assert_msg(std::abs(student_t(static_cast<size_t>(degrees)) - t) < 0.0002, "%d",
                      degrees);
    const std::vector<double> values = {1, 2, 3, 4};
    const Estimate e = estimate(values);
    ck_assert(e.mean == 2.5 && std::abs(*e.half - 3.1824 * std::sqrt(5.0 / 3 / 4)) < 1e-9);
    ck_assert(!estimate(std::span(values).first(1)).half);
}
END_TEST

START_TEST(plots_hold_every_series_and_quote_names) {
    const auto jobs = *parse_jobs("1 0 10 5 0 1\n2 0 10 6 0 1\n");
    const auto providers = *parse_providers("1 0 -1 1 1000 1 100\n");
    MarketRunOptions o;
    o.record = true;
    const RunOutcome outcome = *run_market(jobs, providers, o);
    const RunReport report = report_of(jobs, 1, outcome, 10);
    const std::vector<PlotSeries> series = {{"a 'quoted' name", &report, &outcome},
                                            {"b", &report, &outcome}};
    const std::string by_value = plot_by_value(series, value_classes_of(jobs), "svg", "out.svg");
    ck_assert(by_value.find("set terminal svg") != std::string::npos &&
              by_value.find("\"5\" 2 2\n\"6\" 1 1\n") != std::string::npos);
    ck_assert(by_value.find("set style data histograms") != std::string::npos &&
              by_value.find("title 'a ''quoted'' name', ") != std::string::npos);
    // The picture has one legend inside, and no two series share a colour, pattern or mark.
    for (const std::string& plot : {by_value, plot_utilisation(series, "png", "x")}) {
        ck_assert(plot.find("set key inside") != std::string::npos &&
                  plot.find("outside") == std::string::npos);
        for (const char* mark : {"linecolor rgb '", "pattern ", "pointtype ", "dashtype "}) {
            const size_t one = plot.find(mark), two = plot.find(mark, one + 1);
            if (one == std::string::npos) continue;
            ck_assert(two != std::string::npos);
            const auto word = [&](size_t at) {
                return plot.substr(at, plot.find(' ', at + strlen(mark)) - at);
            };
            ck_assert_msg(word(one) != word(two), "%s", word(one).c_str());
        }
    }
    ck_assert(plot_utilisation(series, "png", "x").find("0 0.000000\n") == std::string::npos);
    ck_assert(plot_utilisation(series, "png", "x").find("0 1.000000\n") != std::string::npos);
    const std::string gantt = plot_gantt(series[1], jobs, providers, "svg", "x");
    ck_assert_msg(
        gantt.find("rectangle from 0,-0.4 to 10,0.4 fillcolor rgb '#4a90c8'") != std::string::npos,
        "%s", gantt.c_str());
    ck_assert(gantt.find("rectangle from 10,-0.4 to 20,0.4 fillcolor rgb '#e8f1fa'") !=
              std::string::npos);
}
END_TEST

UNIT_SUITE(sim_import, a_configuration_may_be_toml_and_keeps_its_defaults,
           a_configuration_error_names_line_key_and_why,
           an_import_takes_the_days_scales_the_times_and_says_what_it_dropped,
           capitals_and_underscores_of_keys_do_not_matter_and_older_names_are_taken,
           the_keys_of_the_published_configuration_are_taken, without_a_log_the_workload_is_drawn,
           jobs_of_unknown_submit_time_are_dropped_and_counted,
           shares_of_two_humps_may_be_decimals_and_fractions, an_import_is_a_function_of_its_seed,
           a_confidence_interval_is_students, plots_hold_every_series_and_quote_names);
