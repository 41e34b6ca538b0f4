// SPDX-License-Identifier: GPL-2.0-or-later
// SRV records: what a DNS message says, and which target is tried.
#include "kernel/sys/net/srv.hpp"

#include <string>

#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

// A label of a DNS name, an unsigned number of two bytes.
std::string label(const std::string& text) { return static_cast<char>(text.size()) + text; }
std::string two(int n) { return {static_cast<char>(n >> 8), static_cast<char>(n & 0xff)}; }
const std::string name = label("_souk") + label("_tcp") + label("lab") + std::string(1, '\0');

std::string record(int priority, int weight, int port, const std::string& host, int type = 33) {
    const std::string data = two(priority) + two(weight) + two(port) + host;
    return name + two(type) + two(1) + two(0) + two(60) + two(static_cast<int>(data.size())) + data;
}
std::string message(const std::string& records, int count) {
    return two(7) + two(0x8180) + two(0) + two(count) + two(0) + two(0) + records;
}
Result<std::vector<SrvTarget>> parsed(const std::string& bytes) {
    return parse_srv({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}
const std::string m1 = label("m1") + label("lab") + std::string(1, '\0');

}  // namespace

START_TEST(the_records_of_an_answer_are_read_and_others_passed_over) {
    const auto targets = parsed(message(record(0, 0, 1, m1, 16) + record(10, 5, 7070, m1), 2));
    ck_assert(targets && targets->size() == 1);
    ck_assert((targets->front() == SrvTarget{10, 5, 7070, "m1.lab"}));
}
END_TEST

START_TEST(an_answer_that_is_cut_anywhere_is_refused_and_read_no_further) {
    const std::string whole = message(record(10, 5, 7070, m1), 1);
    for (size_t bytes = 0; bytes < whole.size(); ++bytes)
        ck_assert(!parsed(whole.substr(0, bytes)));
    ck_assert(!parsed(message(record(10, 5, 7070, ""), 1)));
}
END_TEST

START_TEST(the_lowest_priority_is_tried_and_among_equals_by_weight) {
    const std::vector<SrvTarget> all = {
        {20, 0, 1, "late"}, {10, 1, 2, "light"}, {10, 3, 3, "heavy"}, {10, 0, 4, "rare"}};
    int light = 0, heavy = 0, rare = 0;
    for (uint64_t draw = 0; draw < 500; ++draw) {
        const std::string place = choose_srv(all, draw);
        light += place == "light:2", heavy += place == "heavy:3", rare += place == "rare:4";
    }
    ck_assert_int_eq(light + heavy + rare, 500);
    ck_assert_int_eq(rare, 100);
    ck_assert_int_eq(light, 100);
    ck_assert_int_eq(heavy, 300);
}
END_TEST

START_TEST(a_target_that_is_a_dot_says_that_the_service_is_not_there) {
    ck_assert_text(choose_srv({{0, 0, 0, "."}}, 0), "");
    ck_assert_text(choose_srv({{0, 0, 0, ""}}, 0), "");
    ck_assert_text(choose_srv({}, 0), "");
    ck_assert_text(choose_srv({{0, 0, 7070, "m1"}}, UINT64_MAX), "m1:7070");
}
END_TEST

UNIT_SUITE(srv, the_records_of_an_answer_are_read_and_others_passed_over,
           an_answer_that_is_cut_anywhere_is_refused_and_read_no_further,
           the_lowest_priority_is_tried_and_among_equals_by_weight,
           a_target_that_is_a_dot_says_that_the_service_is_not_there);
