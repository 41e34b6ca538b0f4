// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/solver_protocol.hpp"
#include "market/core/solver_session.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

// The answers to a script, one after the other.
std::string answers(SolverSession& s, std::string_view script) {
    std::string out;
    while (!script.empty()) {
        const size_t end = std::min(script.find('\n'), script.size());
        out += s.take(script.substr(0, end));
        script.remove_prefix(std::min(end + 1, script.size()));
    }
    return out;
}

std::string error(std::string_view line) {
    const auto c = parse_command(line);
    return c ? "taken" : c.error().message;
}

START_TEST(a_dearer_job_suspends_the_cheaper_one_which_goes_on_afterwards) {
    SolverSession s;
    ck_assert_text(answers(s, "ap 1 10 1000 1 0\naj 1 100 100 1 0 -1 7\ngo\nalloc"), "1 1\n");
    ck_assert_text(answers(s, "payment"), "1 10\n");
    ck_assert_text(answers(s, "alloc"), "");
    ck_assert_text(answers(s, "time 5\naj 2 200 100 1 5 -1 8\ngo\nalloc"), "1 0\n2 1\n");
    ck_assert_text(answers(s, "payment\nlj"),
                   "2 100\n1 7 freezing 100 100 1 0\n2 8 running 200 100 1 1\n");
    ck_assert_text(answers(s, "jfd 1\ndj 2\ngo\nalloc\njmd 1\nlp"), "1 1\n1 10 1000 1 100 1\n");
}
END_TEST

START_TEST(every_command_has_its_effect) {
    SolverSession s;
    ck_assert_text(answers(s, "info"), "solver greedy_migration jobs 0 providers 0 time 0\n");
    answers(s,
            "set solver proportional_share\nap 1 1 100 2 0\nap 2 1 100 1 0 50\naj 1 5 10 1 0 -1 "
            "1\ntime 9");
    ck_assert_text(answers(s, "info"), "solver proportional_share jobs 1 providers 2 time 9\n");
    ck_assert_text(answers(s, "set solver greedy_migration\nset pricing first\ngo\nalloc\npayment"),
                   "1 1\n1 5\n");
    ck_assert_text(answers(s, "up 1 6\ngo\nalloc\njmd 1"), "1 2\n");
    ck_assert_text(answers(s, "uj 1 8\ngo\nalloc\npayment"), "1 1\n1 8\n");
    ck_assert_text(answers(s, "dp 1\ndp 2\ngo\nalloc\nlp"), "1 0\n");
    ck_assert_text(answers(s, "reset\nlj\ninfo"),
                   "solver greedy_migration jobs 0 providers 0 time 0\n");
    ck_assert(!s.ended());
    ck_assert_text(answers(s, "exit"), "");
    ck_assert(s.ended());
}
END_TEST

START_TEST(a_gang_has_places_for_all_its_components_or_for_none) {
    SolverSession s;
    answers(s, "ap 1 1 100 2 0\nap 2 1 100 1 0\naj 1 5 0 1 0 -1 1\nag 10 3 0 -1 7 3x1:0");
    ck_assert_text(answers(s, "go\nalloc"), "1 1\n");
    // At 6 the gang takes all three; what it pays is what the job would have.
    ck_assert_text(answers(s, "uj 11 6\ngo\nalloc"), "1 0\n10 1\n11 2\n12 1\n");
    ck_assert_text(answers(s, "payment"), "10 5\n11 5\n12 5\n");
    ck_assert_text(answers(s, "aj 13 1 0 1 0 -1\naj 12 1 0 1 0 -1"),
                   "error: job 12 is there already\n");
    // A machine goes: nobody of the gang runs on. A component that ended leaves the others.
    ck_assert_text(answers(s, "dj 13\ndp 2\ngo\nalloc"), "1 1\n10 0\n11 0\n12 0\n");
    ck_assert_text(answers(s, "dj 12\naj 12 1 0 1 0 -1\ngo\nalloc"),
                   "error: job 12: the number is that of a component\n1 0\n10 1\n11 1\n");
}
END_TEST

START_TEST(what_older_programs_say_is_understood) {
    SolverSession s;
    // No uid: a user of its own. A start is told to be done as well. The algorithm's short name.
    ck_assert_text(answers(s, "set solver proportional_share\nset solver mig\ninfo"),
                   "solver greedy_migration jobs 0 providers 0 time 0\n");
    ck_assert_text(
        answers(s, "ap 1 1 1000 2 0\naj 4 9 100 1 0 50\naj 5 9 100 1 0 50 4\ngo\nalloc\njmd 4"),
        "4 1\n5 1\n");
    ck_assert_text(answers(s, "lj"), "4 4 running 9 100 1 1\n5 4 running 9 100 1 1\n");
    ck_assert_text(answers(s, "jmd 4"), "error: job 4 is not on its way anywhere\n");
    ck_assert_text(answers(s, "jfd 5"), "error: job 5 is not being frozen\n");
}
END_TEST

START_TEST(what_cannot_be_taken_says_why_and_changes_nothing) {
    ck_assert_text(error("fly 1"), "no command 'fly'");
    ck_assert_text(error("aj 1 2"), "aj: the form is: aj id value memory cpus start run [uid]");
    ck_assert_text(error("dj 1 2"), "dj: the form is: dj id");
    ck_assert_text(error("dj 0"),
                   "dj: job id '0' is not a whole number from 1 to 18446744073709551615");
    ck_assert_text(error("dj -1"),
                   "dj: job id '-1' is not a whole number from 1 to 18446744073709551615");
    ck_assert_text(
        error("dj 18446744073709551616"),
        "dj: job id '18446744073709551616' is not a whole number from 1 to 18446744073709551615");
    ck_assert_text(error("aj 1 5 10 0 0 -1 1"),
                   "aj: cpus '0' is not a whole number from 1 to 1048576");
    ck_assert_text(error("aj 1 5 10 1x 0 -1 1"),
                   "aj: cpus '1x' is not a whole number from 1 to 1048576");
    ck_assert_text(
        error("aj 1 5 10 " + std::string(40, 'y') + " 0 -1 1"),
        "aj: cpus '" + std::string(40, 'y') + "' is not a whole number from 1 to 1048576");
    ck_assert_text(
        error("aj 1 5 10 " + std::string(41, 'y') + " 0 -1 1"),
        "aj: cpus '" + std::string(40, 'y') + "...' is not a whole number from 1 to 1048576");
    ck_assert_text(error("set colour red"),
                   "set: 'colour' cannot be set (solver, pricing, k, horizon, min-stay, moves-max, "
                   "moves-window, ageing, quantum, stand-max, link, byte-cost)");
    ck_assert(error("uj 1 1e9").starts_with("uj: value '1e9': "));
    ck_assert(error(std::string(5000, 'x')).starts_with("the line is longer than 4096"));
    SolverSession s;
    answers(s, "ap 1 1 10 1 0\naj 1 5 1 1 0 -1 1\ntime 7");
    ck_assert_text(answers(s, "aj 1 9 1 1 0 -1 1"), "error: job 1 is there already\n");
    ck_assert_text(answers(s, "ap 1 9 1 1 0"), "error: provider 1 is there already\n");
    ck_assert_text(
        answers(s, "dj 4\nuj 4 1\njmd 4\njfd 4\ndp 4\nup 4 1"),
        "error: no job 4\nerror: no job 4\nerror: no job 4\nerror: no job 4\nerror: no provider 4\n"
        "error: no provider 4\n");
    ck_assert_text(answers(s, "jmd 1\njfd 1"),
                   "error: job 1 is not on its way anywhere\nerror: job 1 is not being frozen\n");
    ck_assert_text(answers(s, "time 6"), "error: it is 7 already\n");
    ck_assert_text(
        answers(s, "set solver magic"),
        "error: algorithm 'magic' is not known (greedy_migration, proportional_share, "
        "welfare, balance, fcfs, fpfs, bounded_overtaking, easy, sjf, wfp, conservative)\n");
    ck_assert_text(answers(s, "\n  \n# a comment\n\r"), "");
    ck_assert_text(answers(s, "go\nalloc\nlj"), "1 1\n1 1 running 5 1 1 1\n");
}
END_TEST

START_TEST(a_job_that_is_said_to_run_stays_where_it_is) {
    SolverSession s;
    answers(s,
            "ap 1 0 100 1 0\nap 2 0 100 1 0\naj 1 5 10 1 0 -1\naj 2 4 10 1 0 -1\nrj 1 2\nfj 2 1");
    ck_assert_text(answers(s, "go\nalloc"), "2 1\n");
    ck_assert_text(answers(s, "lj"), "1 1 running 5 10 1 2\n2 2 thawing 4 10 1 1\n");
    ck_assert_text(answers(s, "rj 3 1"), "error: no job 3\n");
    ck_assert_text(answers(s, "rj 1 3"), "error: no provider 3\n");
    ck_assert_text(answers(s, "fj 1 0\ngo\nalloc"), "1 2\n");
}
END_TEST

START_TEST(every_line_survives_being_parsed_and_formatted) {
    for (const char* line : {"info",
                             "aj 7 0.25 100 4 3 -1 1000",
                             "ag 7 0.25 3 -1 1000 4x2:512 1x1:0 2x1:100:optional",
                             "ag 7 0.25 3 -1 1000 pack spread=2 4x2:512 1x1:0@8",
                             "dj 7",
                             "uj 7 12.5",
                             "jmd 7",
                             "jfd 7",
                             "rj 7 9",
                             "fj 7 0",
                             "ap 9 1 64000 16 0",
                             "ap 9 1 64000 16 0 150",
                             "dp 9",
                             "up 9 0.000001",
                             "time 5",
                             "go",
                             "alloc",
                             "payment",
                             "lj",
                             "lp",
                             "reset",
                             "set solver greedy_migration",
                             "set pricing first",
                             "exit"})
        ck_assert_text(format_command(*parse_command(line)), line);
    ck_assert_text(format_command(*parse_command("  dj \t 7 \r")), "dj 7");
    ck_assert_text(format_alloc_line(*parse_alloc_line("7 0")), "7 0");
    ck_assert_text(format_payment_line(*parse_payment_line("7 1.5")), "7 1.5");
    ck_assert(!parse_alloc_line("7") && !parse_alloc_line("0 1") && !parse_alloc_line("7 1 2") &&
              !parse_alloc_line(""));
    ck_assert(!parse_payment_line("7 x"));
    ck_assert_text(std::string(error_of("error: no job 4")), "no job 4");
    ck_assert_text(std::string(error_of("7 0")), "");
}
END_TEST

}  // namespace

UNIT_SUITE(solver_protocol, a_dearer_job_suspends_the_cheaper_one_which_goes_on_afterwards,
           every_command_has_its_effect, a_gang_has_places_for_all_its_components_or_for_none,
           what_older_programs_say_is_understood, what_cannot_be_taken_says_why_and_changes_nothing,
           a_job_that_is_said_to_run_stays_where_it_is,
           every_line_survives_being_parsed_and_formatted);
