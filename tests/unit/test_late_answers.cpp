// SPDX-License-Identifier: GPL-2.0-or-later
// Questions that wait for others: their answers, and that nobody waits for one that does not come.
#include "kernel/sys/host/late_answers.hpp"

#include <atomic>
#include <cerrno>
#include <string>

#include "kernel/sys/host/clock.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr Nanos long_enough = Nanos::from_s(60), soon = Nanos::from_ms(20);

// Answers when it is let go.
struct Silent {
    std::shared_ptr<std::atomic<bool>> speaks = std::make_shared<std::atomic<bool>>(false);
    std::function<int()> ask() const {
        return [speaks = speaks] {
            while (!speaks->load()) speaks->wait(false);
            return 7;
        };
    }
    void speak() const {
        *speaks = true;
        speaks->notify_all();
    }
};

START_TEST(an_answer_in_time_is_given) {
    LateAnswers answers;
    for (int i = 0; i < 100; ++i)
        ck_assert_text(
            answers.within<std::string>(long_enough, [i] { return std::to_string(i); }).value(),
            std::to_string(i));
}
END_TEST

START_TEST(nobody_waits_for_a_late_answer_and_few_are_waited_for) {
    const Silent silent;
    auto answers = std::make_unique<LateAnswers>();
    for (int i = 0; i < LateAnswers::late_max; ++i)
        ck_assert(answers->within<int>(soon, silent.ask()).error().code == ETIMEDOUT);
    const Nanos before = monotonic_now();
    ck_assert(!answers->within<int>(long_enough, [] { return 1; }).has_value());
    ck_assert(monotonic_now() - before < long_enough);
    silent.speak();
    Result<int> again = tl::unexpected(Error{EAGAIN, "not yet"});
    while (!again) again = answers->within<int>(long_enough, [] { return 1; });
    ck_assert_int_eq(*again, 1);
}
END_TEST

START_TEST(an_answer_may_be_later_than_who_asked) {
    const Silent silent;
    ck_assert(!LateAnswers().within<int>(soon, silent.ask()).has_value());
    silent.speak();
}
END_TEST
}  // namespace

UNIT_SUITE(late_answers, an_answer_in_time_is_given,
           nobody_waits_for_a_late_answer_and_few_are_waited_for,
           an_answer_may_be_later_than_who_asked);
}  // namespace souk::unit
