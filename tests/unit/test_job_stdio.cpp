// SPDX-License-Identifier: GPL-2.0-or-later
// JobStdio stands between a souk-init and a home that the test plays. It passes bytes on, asks for
// lost ones again, and tells the end of the job at the right time.
#include "agentd/cell/job_stdio.hpp"

#include <vector>

#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

// Stands for the connection to souk-init, and notes what souk-init was told, one line each.
struct Line final : StdioLine {
    bool up = true;
    bool full = false;  // takes no input now
    std::vector<std::string> told;
    bool answers() const override { return up; }
    void ask_again(uint64_t out, uint64_t err) override {
        told.push_back("again " + std::to_string(out) + " " + std::to_string(err));
    }
    void ack(uint32_t stream, uint64_t offset) override {
        told.push_back("ack " + std::to_string(stream) + " " + std::to_string(offset));
    }
    Status input(uint64_t offset, std::string_view bytes) override {
        if (full) return tl::unexpected(Error{0, "full"});
        told.push_back("input " + std::to_string(offset) + " " + std::string(bytes));
        return {};
    }
    Status input_eof(uint64_t offset) override {
        told.push_back("eof " + std::to_string(offset));
        return {};
    }
    std::string take() {
        std::string all;
        for (const std::string& t : std::exchange(told, {})) all += t + "\n";
        return all;
    }
};

struct Streams {
    Loop loop = open_loop();
    Line line;
    bool home_takes = true, end_counts = true;
    std::string home;             // output that it got
    std::vector<uint64_t> taken;  // of the input
    std::vector<int32_t> ends;
    JobStdio stdio;

    explicit Streams(bool tty = false)
        : stdio(loop, line, tty,
                {.output =
                     [this](uint32_t stream, uint64_t offset, std::string_view bytes) {
                         if (!home_takes) return false;
                         home += std::to_string(stream) + "@" + std::to_string(offset) + ":" +
                                 std::string(bytes) + " ";
                         return true;
                     },
                 .input_taken = [this](uint64_t offset) { taken.push_back(offset); },
                 .end_counts = [this] { return end_counts; },
                 .ended = [this](int32_t status) { ends.push_back(status); }},
                Nanos::from_ms(20)) {}
};

START_TEST(output_that_the_home_does_not_take_is_asked_for_again_with_its_next_word) {
    Streams s;
    s.stdio.output(1, 0, "one");
    s.stdio.ack(1, 3, false);
    ck_assert_text(s.line.take(), "ack 1 3\n");
    s.home_takes = false;
    s.stdio.output(1, 3, "two");
    s.stdio.output(2, 0, "err");
    ck_assert_text(s.home, "1@0:one ");
    s.home_takes = true;
    s.stdio.ack(1, 3, false);  // no news in it, but the home hears
    ck_assert_text(s.line.take(), "again 3 0\n");
    s.stdio.ack(1, 3, false);
    ck_assert_text(s.line.take(), "");
    s.stdio.ack(2, 1, true);  // the home did not keep what came after that
    ck_assert_text(s.line.take(), "again 3 1\n");
}
END_TEST

START_TEST(the_end_is_told_once_when_all_output_has_been) {
    Streams s;
    s.stdio.output(1, 0, "x");
    s.stdio.exited(7 << 8);
    s.stdio.output_eof(1, 1);
    s.stdio.look_for_end();
    ck_assert_uint_eq(s.ends.size(), 0);  // stderr is open
    s.stdio.output_eof(2, 0);
    s.stdio.look_for_end();
    s.stdio.look_for_end();
    ck_assert_uint_eq(s.ends.size(), 1);
    ck_assert_int_eq(s.ends[0], 7 << 8);
    ck_assert_uint_eq(s.stdio.ends().output[0], 1);
    ck_assert_uint_eq(s.stdio.ends().output[1], 0);
}
END_TEST

START_TEST(a_terminal_has_one_stream_and_streams_that_are_none_change_nothing) {
    Streams s(true);
    s.stdio.output_eof(0, 9);
    s.stdio.output_eof(3, 9);
    s.stdio.ack(3, 5, true);
    ck_assert_text(s.line.take(), "");
    s.stdio.exited(0);
    s.stdio.look_for_end();
    ck_assert_uint_eq(s.ends.size(), 0);
    s.stdio.output_eof(1, 4);
    s.stdio.look_for_end();
    ck_assert_uint_eq(s.ends.size(), 1);
    ck_assert_uint_eq(s.stdio.ends().output[0], 4);
}
END_TEST

// A process outside of the capsule holds the pipe. The output so far counts as all of it, once the
// home has it.
START_TEST(output_that_never_ends_is_given_up_when_nothing_more_comes) {
    Streams s;
    s.stdio.output(1, 0, "abc");
    s.stdio.ack(1, 3, false);
    s.stdio.output_eof(2, 0);
    s.stdio.exited(0);
    UNTIL(s.loop, !s.ends.empty());
    ck_assert_uint_eq(s.stdio.ends().output[0], 3);
}
END_TEST

START_TEST(an_end_that_may_be_that_of_a_failed_restore_is_not_told) {
    Streams s(true);
    s.end_counts = false;
    s.stdio.exited(9);
    s.stdio.output_eof(1, 0);
    s.stdio.look_for_end();
    ck_assert_uint_eq(s.ends.size(), 0);
    ck_assert(s.stdio.exit().has_value());
    s.end_counts = true;
    s.stdio.look_for_end();
    ck_assert_uint_eq(s.ends.size(), 1);
}
END_TEST

START_TEST(nothing_of_a_silent_job_leaves_until_it_speaks_and_then_all_of_it_does) {
    Streams s(true);
    s.stdio.silence();
    s.stdio.output(1, 0, "early");
    s.stdio.input_taken(4, 100);
    s.stdio.output_eof(1, 5);
    s.stdio.exited(0);
    s.stdio.look_for_end();
    ck_assert_text(s.home, "");
    ck_assert_uint_eq(s.taken.size(), 0);
    ck_assert_uint_eq(s.ends.size(), 0);
    s.stdio.end_silence();
    s.stdio.speak();
    ck_assert_text(s.line.take(), "again 0 0\n");
    ck_assert_uint_eq(s.taken.size(), 1);
    ck_assert_uint_eq(s.taken[0], 4);
    ck_assert_uint_eq(s.ends.size(), 1);
}
END_TEST

START_TEST(input_goes_as_far_as_the_window_and_its_end_once) {
    Streams s;
    s.stdio.welcomed(0, 4);
    s.stdio.input(0, "abcdef", true);
    // the window is a limit for where a piece begins and ends
    ck_assert_text(s.line.take(), "input 0 abcd\n");
    s.stdio.input_taken(4, 8);
    ck_assert_text(s.line.take(), "input 4 ef\neof 6\n");
    s.stdio.input(0, "abcdef", true);  // the home says it again
    ck_assert_text(s.line.take(), "");
}
END_TEST

START_TEST(input_waits_for_a_line_that_answers_and_for_one_that_takes_it) {
    Streams s;
    s.line.up = false;
    s.stdio.input(0, "ab", true);
    ck_assert_text(s.line.take(), "");
    s.line.up = s.line.full = true;
    s.stdio.welcomed(0, 100);
    ck_assert_text(s.line.take(), "");
    s.line.full = false;
    s.stdio.input_taken(0, 100);
    ck_assert_text(s.line.take(), "input 0 ab\neof 2\n");
}
END_TEST

START_TEST(input_after_a_gap_waits_and_what_the_job_took_elsewhere_is_not_given_twice) {
    Streams s;
    s.stdio.welcomed(0, 2);
    s.stdio.input(0, "abcd", false);
    ck_assert_text(s.line.take(), "input 0 ab\n");
    s.stdio.input(9, "far", false);  // a gap: the home sends again
    s.stdio.input_taken(3, 50);      // one more was taken where the job was before
    ck_assert_text(s.line.take(), "input 3 d\n");
    s.stdio.input(2, "cdef", false);
    ck_assert_text(s.line.take(), "input 4 ef\n");
    // after a move the home knows sooner what the job has taken
    s.stdio.input(10, "z", false);
    ck_assert_text(s.line.take(), "input 10 z\n");
}
END_TEST

}  // namespace

UNIT_SUITE(job_stdio, output_that_the_home_does_not_take_is_asked_for_again_with_its_next_word,
           the_end_is_told_once_when_all_output_has_been,
           a_terminal_has_one_stream_and_streams_that_are_none_change_nothing,
           output_that_never_ends_is_given_up_when_nothing_more_comes,
           an_end_that_may_be_that_of_a_failed_restore_is_not_told,
           nothing_of_a_silent_job_leaves_until_it_speaks_and_then_all_of_it_does,
           input_goes_as_far_as_the_window_and_its_end_once,
           input_waits_for_a_line_that_answers_and_for_one_that_takes_it,
           input_after_a_gap_waits_and_what_the_job_took_elsewhere_is_not_given_twice);

}  // namespace souk::unit
