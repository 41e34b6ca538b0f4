// SPDX-License-Identifier: GPL-2.0-or-later
// Work in a process of its own that has an end: its answer, or that there was none in time.
#include "kernel/sys/process/bounded_work.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr Nanos long_enough = Nanos::from_s(60);

START_TEST(what_the_work_gives_back_comes_back_and_nothing_else_of_it) {
    int here = 1;
    const auto said = work_within(long_enough, [&] {
        here = 2;
        return std::string("so\0it is", 8);
    });
    ck_assert(said == std::string("so\0it is", 8) && here == 1);
    ck_assert(work_within(long_enough, [] { return std::string(); }) == std::string());
    ck_assert_uint_eq(work_within(long_enough, [] { return std::string(1 << 20, 'x'); })->size(),
                      bounded_answer_max);
    ck_assert(::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD);
}
END_TEST

START_TEST(work_that_takes_longer_or_dies_gives_no_answer) {
    const auto late = work_within(Nanos::from_ms(20), [] {
        for (;;) ::pause();
        return std::string("never");
    });
    ck_assert(!late && late.error().code == ETIMEDOUT);
    while (::waitpid(-1, nullptr, 0) > 0) continue;  // it was killed
    const auto dead = work_within(long_enough, [] {
        ::raise(SIGKILL);
        return std::string("never");
    });
    ck_assert(!dead && dead.error().code != ETIMEDOUT);
}
END_TEST

START_TEST(work_that_gives_nothing_back_says_how_it_ended) {
    ck_assert(done_within(long_enough, [] { return Status(); }).has_value());
    const Status failed = done_within(long_enough, [] {
        return Status(tl::unexpected(Error{ENOENT, "no a b"}));
    });
    ck_assert(!failed && failed.error().code == ENOENT);
    ck_assert_text(failed.error().message, "no a b");
    const Status late = done_within(Nanos::from_ms(20), []() -> Status {
        for (;;) ::pause();
    });
    ck_assert(!late && late.error().code == ETIMEDOUT);
}
END_TEST
}  // namespace

UNIT_SUITE(bounded_work, what_the_work_gives_back_comes_back_and_nothing_else_of_it,
           work_that_takes_longer_or_dies_gives_no_answer,
           work_that_gives_nothing_back_says_how_it_ended);
}  // namespace souk::unit
