// SPDX-License-Identifier: GPL-2.0-or-later
// JsonWriter: literal texts, and random byte strings whose output must be valid UTF-8 without raw
// control characters.
#include "kernel/base/json.hpp"

#include <cmath>

#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {
std::string quoted(std::string_view text) {
    std::string out;
    json_append_string(out, text);
    return out;
}
}  // namespace

START_TEST(objects_and_arrays_nest_with_commas_where_they_belong) {
    JsonWriter w;
    w.begin_object()
        .field("a", 1)
        .key("b")
        .begin_array()
        .value(true)
        .value("x")
        .begin_object()
        .end_object();
    w.begin_array()
        .end_array()
        .end_array()
        .key("c")
        .null()
        .field("d", Money{250'000})
        .field("e", std::string("f"));
    w.end_object();
    ck_assert_text(w.take(), R"({"a":1,"b":[true,"x",{},[]],"c":null,"d":0.25,"e":"f"})");
    w.begin_array().value(int64_t{-5}).value(uint64_t{18446744073709551615u}).end_array();
    ck_assert_text(w.take(), "[-5,18446744073709551615]");
}
END_TEST

START_TEST(doubles_are_the_shortest_that_read_back_and_never_nan) {
    JsonWriter w;
    w.begin_array()
        .value(0.1)
        .value(3.0)
        .value(static_cast<double>(NAN))
        .value(static_cast<double>(INFINITY));
    w.end_array();
    ck_assert_text(w.take(), "[0.1,3,null,null]");
}
END_TEST

START_TEST(strings_are_escaped_and_utf8_passes) {
    ck_assert_text(quoted("a\"b\\c\n\t\r"), R"("a\"b\\c\n\t\r")");
    ck_assert_text(quoted(std::string_view("\0\x1f\x7f", 3)), R"("\u0000\u001f\u007f")");
    ck_assert_text(quoted("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
                   "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\"");
}
END_TEST

START_TEST(bytes_that_are_not_utf8_become_the_replacement_character) {
    ck_assert_text(quoted("\xff"), "\"\xef\xbf\xbd\"");
    // overlong '/'
    ck_assert_text(quoted("\xc0\xaf"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
    // a surrogate
    ck_assert_text(quoted("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    // cut short
    ck_assert_text(quoted("x\xe2\x82"), "\"x\xef\xbf\xbd\xef\xbf\xbd\"");
    ck_assert_text(quoted("\xf4\x90\x80\x80"),
                   "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}
END_TEST

START_TEST(escaping_is_idempotent_on_what_it_made_valid) {
    Rng rng(7);
    for (int round = 0; round < 2'000; ++round) {
        std::string text;
        for (uint64_t n = rng.below(20); n > 0; --n) text += static_cast<char>(rng.below(256));
        const std::string once = quoted(text);
        for (const char c : once) ck_assert(static_cast<uint8_t>(c) >= 0x20);
        // The text in `once` is valid UTF-8, so escaping it again changes only quotes and
        // backslashes.
        std::string expect = "\"";
        for (const char c : once) {
            if (c == '"' || c == '\\') expect += '\\';
            expect += c;
        }
        ck_assert_text(quoted(once), expect + "\"");
    }
}
END_TEST

UNIT_SUITE(json, objects_and_arrays_nest_with_commas_where_they_belong,
           doubles_are_the_shortest_that_read_back_and_never_nan,
           strings_are_escaped_and_utf8_passes,
           bytes_that_are_not_utf8_become_the_replacement_character,
           escaping_is_idempotent_on_what_it_made_valid);
