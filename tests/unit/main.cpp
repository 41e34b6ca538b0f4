// SPDX-License-Identifier: GPL-2.0-or-later
#include <cstdlib>
#include <vector>

#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {
std::vector<Suite*>& suites() {
    static std::vector<Suite*> all;
    return all;
}
}  // namespace

Registration::Registration(const char* name, std::initializer_list<const TTest*> tests, double seconds_max) {
    Suite* suite = suite_create(name);
    TCase* tcase = tcase_create(name);
    tcase_set_timeout(tcase, seconds_max);
    for (const TTest* test : tests) tcase_add_test(tcase, test);
    suite_add_tcase(suite, tcase);
    suites().push_back(suite);
}
}  // namespace souk::unit

int main() {
    SRunner* runner = srunner_create(nullptr);
    for (Suite* suite : souk::unit::suites()) srunner_add_suite(runner, suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
