// SPDX-License-Identifier: GPL-2.0-or-later
// One runner for all unit tests. A file holds tests as START_TEST(name_that_is_a_sentence) and ends
// with UNIT_SUITE(room, test, test, ...); CK_RUN_SUITE=room runs one suite alone, SOUK_TEST=name
// one test (make test T=NAME: either), CK_FORK=no helps under gdb.
#pragma once

#include <check.h>
#undef fail  // an old name of Check's; ours is a function (kernel/base/result.hpp)

#include <cstdio>
#include <initializer_list>
#include <string>

namespace souk::unit {
struct Registration {
    Registration(const char* name, std::initializer_list<const TTest*> tests, double seconds_max);
};
}  // namespace souk::unit

#define UNIT_SUITE(room, ...) \
    static const ::souk::unit::Registration room##_suite_registration(#room, {__VA_ARGS__}, 60)
// The same for suites whose random cases need longer.
#define UNIT_SUITE_LONG(room, seconds, ...) \
    static const ::souk::unit::Registration room##_suite_registration(#room, {__VA_ARGS__}, seconds)

// In a test that cannot run here: `why` (a const char*, null if it can) is said, and the test
// passes.
#define UNIT_SKIP_IF(why)                                    \
    if (const char* skipped_why_ = (why)) {                  \
        std::fprintf(stderr, "skipped: %s\n", skipped_why_); \
        return;                                              \
    }

// Equal texts. (Check's own ck_assert_str_eq keeps pointers into temporaries that are gone when it
// compares.)
#define ck_assert_text(actual, expected)                                               \
    do {                                                                               \
        /* Copies: either may be a temporary, or a literal. */                         \
        /* NOLINTNEXTLINE(performance-unnecessary-copy-initialization) */              \
        const std::string actual_text_(actual), expected_text_(expected);              \
        ck_assert_msg(actual_text_ == expected_text_, "%s is '%s', not '%s'", #actual, \
                      actual_text_.c_str(), expected_text_.c_str());                   \
    } while (0)
