// SPDX-License-Identifier: GPL-2.0-or-later
// Each cell of ARCHITECTURE.md's table of what comes of a fault in a move, by itself.
// SOUK_SIM_SEEDS=N: so many seeds a cell, and how often each came to what is printed.
#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/sim/cluster.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::sim;

namespace {
// Of Cluster::run_one_fault: the first letter is what must come of it, the others what may, by when
// in the step it was.
struct Row {
    Moment moment;
    const char* by_victim[static_cast<size_t>(Victim::count_)];
};
//                source   dest.   home    source  dest.  home-   home-         source  dest.
//                agentd   agentd  agentd  CRIU    CRIU   source  dest.  pages  PID 1   PID 1
const Row before[] = {
    {Moment::prepare, {"SD", "SD", "S", "S", "S", "SD", "SD", "S", "E", "DS"}},
    {Moment::transfer, {"SD", "S", "S", "SD", "S", "DS", "DS", "SD", "ED", "S"}},
};
// The decision goes to both ends in turn where the source may go on by itself ("kill old"), or its
// word that it may not was late; else to the destination alone.
const Row stop_and_copy[] = {
    {Moment::kill_old, {"D", "F", "D", "D", "F", "D", "D", "D", "D", "F"}},
    {Moment::release, {"D", "FD", "D", "D", "FD", "D", "D", "D", "D", "FE"}},
};
const Row pages_first[] = {
    {Moment::kill_old, {"D", "S", "D", "D", "S", "D", "D", "D", "D", "S"}},
    {Moment::release, {"D", "SD", "D", "D", "SD", "D", "D", "D", "D", "SE"}},
};
const Row post_copy[] = {
    {Moment::kill_old, {"SD", "S", "D", "D", "S", "D", "D", "SD", "ED", "S"}},
    {Moment::release, {"SD", "SD", "D", "D", "SD", "D", "D", "SD", "ED", "SED"}},
    {Moment::filling, {"SD", "SD", "D", "D", "D", "D", "D", "SD", "ED", "SED"}},
};

const Row stop_and_copy_firm[] = {
    {Moment::release, {"D", "SD", "D", "D", "SD", "D", "D", "D", "D", "SE"}},
};

void check_row(const Row& row, MoveForm form, bool firm) {
    const char* many = std::getenv("SOUK_SIM_SEEDS");
    const uint64_t seeds = many ? std::strtoull(many, nullptr, 10) : 60;
    for (uint8_t v = 0; v < static_cast<uint8_t>(Victim::count_); ++v) {
        const Victim victim{v};
        const char* const may_come = row.by_victim[v];
        const std::string cell = std::string(to_string(form)) + (firm ? ", " : ", not firm, ") +
                                 moment_name(row.moment) + ", " + victim_name(victim);
        std::map<char, uint64_t> came;
        for (uint64_t seed = 1; seed <= seeds; ++seed) {
            std::string failure;
            const char outcome = Cluster(seed, Mutation::none, false)
                                     .run_one_fault(row.moment, victim, form, firm, failure);
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
}  // namespace

START_TEST(before_the_decision_a_fault_leaves_the_job_at_its_source_or_it_arrives) {
    for (const MoveForm form :
         {MoveForm::stop_and_copy, MoveForm::pages_first, MoveForm::post_copy})
        for (const bool firm : {true, false})
            for (const Row& row : before) check_row(row, form, firm);
}
END_TEST

START_TEST(after_the_decision_of_a_stop_and_copy_the_sources_image_is_the_job_if_the_copy_fails) {
    for (const Row& row : stop_and_copy) check_row(row, MoveForm::stop_and_copy, false);
}
END_TEST

START_TEST(after_the_decision_a_source_that_only_its_home_lets_go_on_runs_on_if_the_copy_fails) {
    for (const Row& row : stop_and_copy_firm) check_row(row, MoveForm::stop_and_copy, true);
    for (const Row& row : pages_first)
        if (row.moment != Moment::kill_old) check_row(row, MoveForm::pages_first, true);
    for (const Row& row : post_copy)
        if (row.moment != Moment::kill_old) check_row(row, MoveForm::post_copy, true);
}
END_TEST

START_TEST(after_the_decision_of_pages_first_the_frozen_source_runs_on_if_the_copy_fails) {
    for (const Row& row : pages_first) check_row(row, MoveForm::pages_first, false);
}
END_TEST

START_TEST(after_the_decision_of_a_post_copy_the_frozen_source_runs_on_until_all_memory_has_come) {
    for (const Row& row : post_copy) check_row(row, MoveForm::post_copy, false);
}
END_TEST

UNIT_SUITE_LONG(
    sim_faults, 600, before_the_decision_a_fault_leaves_the_job_at_its_source_or_it_arrives,
    after_the_decision_of_a_stop_and_copy_the_sources_image_is_the_job_if_the_copy_fails,
    after_the_decision_a_source_that_only_its_home_lets_go_on_runs_on_if_the_copy_fails,
    after_the_decision_of_pages_first_the_frozen_source_runs_on_if_the_copy_fails,
    after_the_decision_of_a_post_copy_the_frozen_source_runs_on_until_all_memory_has_come);
