// SPDX-License-Identifier: GPL-2.0-or-later
// Each cell of the table of faults in a move (tests/sim/fault_table.hpp, docs/move.md), by itself.
// SOUK_SIM_SEEDS=N: so many seeds a cell, and how often each came to what is printed.
#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/sim/fault_table.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::sim;

namespace {
void check_row(const FaultRow& row, MoveForm form, bool fenced) {
    const char* many = std::getenv("SOUK_SIM_SEEDS");
    const uint64_t seeds = many ? std::strtoull(many, nullptr, 10) : 60;
    for (uint8_t v = 0; v < static_cast<uint8_t>(Victim::count_); ++v) {
        const Victim victim{v};
        const char* const may_come = row.by_victim[v];
        const std::string cell = std::string(to_string(form)) +
                                 (fenced ? ", fenced, " : ", not fenced, ") +
                                 moment_name(row.moment) + ", " + victim_name(victim);
        std::map<char, uint64_t> came;
        for (uint64_t seed = 1; seed <= seeds; ++seed) {
            std::string failure;
            const char outcome = Cluster(seed, Mutation::none, false)
                                     .run_one_fault(row.moment, victim, form, fenced, failure);
            const auto n = static_cast<unsigned long>(seed);
            ck_assert_msg(failure.empty(), "%s, seed %lu: %s", cell.c_str(), n, failure.c_str());
            ck_assert_msg(outcome == '-' ||
                              std::string_view(may_come).find(outcome) != std::string_view::npos,
                          "%s, seed %lu: %c, not %s", cell.c_str(), n, outcome, may_come);
            ++came[outcome];
        }
        ck_assert_msg(came[may_come[0]] >= seeds / 10, "%s: %c came of %lu of %lu", cell.c_str(),
                      may_come[0], static_cast<unsigned long>(came[may_come[0]]),
                      static_cast<unsigned long>(seeds));
        if (!many) continue;
        std::fprintf(stderr, "%s:", cell.c_str());
        for (const auto& [outcome, n] : came)
            std::fprintf(stderr, " %c %lu", outcome, static_cast<unsigned long>(n));
        std::fprintf(stderr, "\n");
    }
}

// The rows of such a source, of steps before the decision or after it.
void check_rows(MoveForm form, bool fenced, bool decided) {
    int checked = 0;
    for (const FaultRow& row : fault_rows()) {
        if (!row.is_of(form, fenced) || (row.moment > Moment::transfer) != decided) continue;
        check_row(row, form, fenced);
        ++checked;
    }
    ck_assert_msg(checked > 0, "the table has no row of %s", to_string(form));
}
constexpr MoveForm forms[] = {MoveForm::stop_and_copy, MoveForm::pages_first, MoveForm::post_copy};
}  // namespace

START_TEST(before_the_decision_a_fault_leaves_the_job_at_its_source_or_it_arrives) {
    for (const MoveForm form : forms)
        for (const bool fenced : {true, false}) check_rows(form, fenced, false);
}
END_TEST

START_TEST(after_the_decision_of_a_stop_and_copy_the_sources_image_is_the_job_if_the_copy_fails) {
    check_rows(MoveForm::stop_and_copy, false, true);
}
END_TEST

START_TEST(after_the_decision_a_source_that_only_its_home_lets_go_on_runs_on_if_the_copy_fails) {
    for (const MoveForm form : forms) check_rows(form, true, true);
}
END_TEST

START_TEST(after_the_decision_of_pages_first_the_frozen_source_runs_on_if_the_copy_fails) {
    check_rows(MoveForm::pages_first, false, true);
}
END_TEST

START_TEST(after_the_decision_of_a_post_copy_the_frozen_source_runs_on_until_all_memory_has_come) {
    check_rows(MoveForm::post_copy, false, true);
}
END_TEST

UNIT_SUITE_LONG(
    sim_faults, 600, before_the_decision_a_fault_leaves_the_job_at_its_source_or_it_arrives,
    after_the_decision_of_a_stop_and_copy_the_sources_image_is_the_job_if_the_copy_fails,
    after_the_decision_a_source_that_only_its_home_lets_go_on_runs_on_if_the_copy_fails,
    after_the_decision_of_pages_first_the_frozen_source_runs_on_if_the_copy_fails,
    after_the_decision_of_a_post_copy_the_frozen_source_runs_on_until_all_memory_has_come);
