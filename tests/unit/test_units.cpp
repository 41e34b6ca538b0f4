// SPDX-License-Identifier: GPL-2.0-or-later
// Times, sizes and names as people write them.
#include "kernel/base/units.hpp"

#include <set>

#include "kernel/base/rng.hpp"
#include "kernel/base/text.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr Nanos s = Nanos::from_s(1), hour = Nanos::from_s(3'600),
                most = Nanos::from_s(1'000'000'000);

int64_t ms(std::string_view text, Nanos plain = s) {
    const auto span = parse_span(text, plain, Nanos{}, most);
    return span ? span->ns / 1'000'000 : -1;
}

START_TEST(people_read_times_amounts_and_sizes_with_the_digits_that_say_something) {
    const std::pair<Nanos, const char*> spans[] = {{{}, "0.0s"},
                                                   {Nanos::from_ms(3'240), "3.2s"},
                                                   {Nanos::from_s(725), "12m05s"},
                                                   {Nanos::from_s(18'420), "5h07m"},
                                                   {Nanos::from_s(47 * 3'600), "47h00m"},
                                                   {Nanos::from_s(76 * 3'600), "3d04h"}};
    for (const auto& [span, text] : spans) ck_assert_text(human_span(span), text);
    const std::pair<int64_t, const char*> amounts[] = {{0, "0"},
                                                       {15, "0.000015"},
                                                       {31'249, "0.0312"},
                                                       {999'600, "1"},
                                                       {3'141'592, "3.14"},
                                                       {12'400'000, "12.4"},
                                                       {-31'251, "-0.0313"},
                                                       {1'234'567'890, "1234.57"}};
    for (const auto& [micro, text] : amounts) ck_assert_text(human_money(Money{micro}), text);
    ck_assert_text(human_bytes(999), "999 bytes");
    ck_assert_text(human_bytes(4'200'000), "4.2 MB");
}
END_TEST

START_TEST(a_time_is_a_number_with_a_unit_or_in_the_unit_of_its_option) {
    ck_assert_int_eq(ms("90s"), 90'000);
    ck_assert_int_eq(ms("30m"), 1'800'000);
    ck_assert_int_eq(ms("30min"), 1'800'000);
    ck_assert_int_eq(ms("1.5h"), 5'400'000);
    ck_assert_int_eq(ms("1d"), 86'400'000);
    ck_assert_int_eq(ms("2w"), 14 * 86'400'000LL);
    ck_assert_int_eq(ms("250ms"), 250);
    ck_assert_int_eq(ms("2"), 2'000);
    ck_assert_int_eq(ms("0.5", hour), 1'800'000);
    ck_assert_int_eq(ms("0"), 0);
    for (const char* wrong : {"", "h", "-1h", "1 h", "1H", "1y", "1h30m", "nan", "inf", "infs",
                              "1e3", "0x10", "1e400d", "9999999999999d", "+1s"})
        ck_assert_msg(ms(wrong) == -1, "%s", wrong);
    ck_assert_int_eq(ms("5", Nanos{}), -1);  // where a unit is needed
    ck_assert_text(parse_span("2h", s, s, hour).error().message, "'2h' is not from 1s to 1h");
    ck_assert_text(parse_span("soon", s, s, hour).error().message,
                   "'soon' is no time such as 90s, 30m, 1.5h, 2d");
}
END_TEST

START_TEST(a_time_that_is_shown_is_the_same_when_it_is_read) {
    Rng rng(7);
    for (int i = 0; i < 20'000; ++i) {
        const Nanos span =
            Nanos::from_ms(1 + static_cast<int64_t>(rng.below(uint64_t{1} << (1 + rng.below(38)))));
        const std::string text = span_text(span);
        const auto read = parse_span(text, s, Nanos{}, most);
        ck_assert_msg(read && *read == span, "%s", text.c_str());
    }
}
END_TEST

START_TEST(a_size_is_whole_megabytes_with_a_unit_or_without) {
    const auto mb = [](std::string_view text) {
        return parse_size_mb(text, 1, 1 << 30).value_or(-1);
    };
    ck_assert_int_eq(mb("4G"), 4096);
    ck_assert_int_eq(mb("4g"), 4096);
    ck_assert_int_eq(mb("4GB"), 4096);
    ck_assert_int_eq(mb("4GiB"), 4096);
    ck_assert_int_eq(mb("1.5G"), 1536);
    ck_assert_int_eq(mb("512M"), 512);
    ck_assert_int_eq(mb("512"), 512);
    ck_assert_int_eq(mb("2048K"), 2);
    ck_assert_int_eq(mb("1T"), 1 << 20);
    for (const char* wrong : {"", "G", "4X", "4 G", "-4G", "0", "12K", "0.3", "1e9", "nan", "inf",
                              "2000T", "4GG", "4bytes"})
        ck_assert_msg(mb(wrong) == -1, "%s", wrong);
    ck_assert_text(parse_size_mb("9T", 16, 1 << 20).error().message, "'9T' is not from 16M to 1T");
}
END_TEST

// The shortest form; surrogates too, which are hidden.
std::string in_utf8(uint32_t c) {
    const auto tail = [c](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
    if (c < 0x80) return {static_cast<char>(c)};
    if (c < 0x800) return {static_cast<char>(0xc0 | c >> 6), tail(0)};
    if (c < 0x10000) return {static_cast<char>(0xe0 | c >> 12), tail(6), tail(0)};
    return {static_cast<char>(0xf0 | c >> 18), tail(12), tail(6), tail(0)};
}

bool is_no_character(std::string_view bytes) {
    const auto good = check_label(bytes, 4);
    return !good && good.error().message.find("begins no character") != std::string::npos;
}

// How many are hidden, and the sum of their numbers, are those of Unicode 15's categories Cc, Cf,
// Zl, Zp and Cs with U+2065 and the block of tags (Python's unicodedata).
START_TEST(of_all_characters_just_those_are_hidden_that_unicode_calls_control_or_format) {
    uint64_t count = 0, sum = 0;
    for (uint32_t c = 0; c < 0x110000; ++c) {
        const std::string text = in_utf8(c);
        const bool hidden = !check_label(text, 4);
        ck_assert_msg(!is_no_character(text), "U+%04X", c);
        ck_assert_msg(
            (blank_controls(text) == std::string(text.size(), ' ')) == (hidden || c == ' '),
            "U+%04X", c);
        if (!hidden) continue;
        ++count;
        sum += c;
    }
    ck_assert_uint_eq(count, 2'317);
    ck_assert_uint_eq(sum, 236'127'491);
}
END_TEST

START_TEST(a_character_has_one_form_and_every_other_is_none) {
    std::set<std::string> forms;
    for (uint32_t c = 0x80; c < 0x110000; ++c)
        if (const std::string text = in_utf8(c); text.size() < 4 || (c & 0x3f) % 0x3f == 0)
            forms.insert(text);
    // All of two and three bytes that begin as such, and of four those with the ends of the last.
    const auto check = [&](std::string text) {
        ck_assert_msg(is_no_character(text) != forms.contains(text), "%02x %02x ..",
                      static_cast<unsigned char>(text[0]), static_cast<unsigned char>(text[1]));
    };
    for (int first = 0x80; first <= 0xff; ++first)
        for (int second = 0x70; second <= 0xcf; ++second) {
            const std::string two = {static_cast<char>(first), static_cast<char>(second)};
            if (first < 0xe0) {
                if (second >= 0x80 && second <= 0xbf) check(two);
                continue;
            }
            for (int third = 0x7f; third <= 0xc0; ++third) {
                const std::string three = two + static_cast<char>(third);
                if (first < 0xf0) check(three);
                for (const char fourth : {'\x7f', '\x80', '\xbf', '\xc0'})
                    if (first >= 0xf0) check(three + fourth);
            }
        }
}
END_TEST

START_TEST(a_name_holds_nothing_that_changes_how_others_see_the_text_around_it) {
    for (const char* good :
         {"a", "my job", "Zeiten (\u00fcber 3)", "\u05d0\u05d1", "\u6f22\u5b57", "\U0001f600"})
        ck_assert_msg(check_label(good, 64).has_value(), "%s", good);
    for (const char* bad :
         {"",         "a\nb",         "\x7f",     "\u0085",          "\u009b",     "a\u00adb",
          "\u061c",   "\u200b",       "\u200e",   "\u200f",          "\u2028",     "\u202a",
          "\u202e",   "\u2066",       "\u2069",   "\ufeff",          "\U000e0041", "\xff",
          "\xc0\xaf", "\xed\xa0\x80", "\xe2\x80", "\xf4\x90\x80\x80"})
        ck_assert_msg(!check_label(bad, 64), "%s", bad);
    ck_assert(!check_label("12345", 4));
    ck_assert_text(check_label("a\u202e", 9).error().message,
                   "a name without control and format characters is wanted: it holds U+202E");
    ck_assert_text(blank_controls("a\u202eb\n\u00fc\xff"), "a   b \u00fc\xff");
    ck_assert_text(blank_controls("\xe9t\xe9 \x9b[2J"), "\xe9t\xe9  [2J");  // CSI, not in UTF-8
}
END_TEST

// Whatever bytes come: what was blanked is clean, as long as it was, and what was clean is as it
// was.
START_TEST(any_bytes_are_blanked_to_what_holds_no_control) {
    Rng rng(11);
    for (int i = 0; i < 50'000; ++i) {
        std::string text(1 + rng.below(12), ' ');
        constexpr std::string_view often =
            "\xe2\x80\xae\xc2\x85\xf3\xa0\x81\x81"
            "aZ\n";
        for (char& c : text)
            c = rng.below(2) ? often[rng.below(often.size())] : static_cast<char>(rng.next());
        const std::string blank = blank_controls(text);
        ck_assert_uint_eq(blank.size(), text.size());
        ck_assert_text(blank_controls(blank), blank);
        if (check_label(text, 64)) ck_assert_text(blank, text);
        const auto still = check_label(blank, 64);
        if (!still)
            ck_assert_msg(still.error().message.find("U+") == std::string::npos, "%s",
                          still.error().message.c_str());
    }
}
END_TEST

UNIT_SUITE(units, people_read_times_amounts_and_sizes_with_the_digits_that_say_something,
           a_time_is_a_number_with_a_unit_or_in_the_unit_of_its_option,
           a_time_that_is_shown_is_the_same_when_it_is_read,
           a_size_is_whole_megabytes_with_a_unit_or_without,
           a_name_holds_nothing_that_changes_how_others_see_the_text_around_it,
           of_all_characters_just_those_are_hidden_that_unicode_calls_control_or_format,
           a_character_has_one_form_and_every_other_is_none,
           any_bytes_are_blanked_to_what_holds_no_control);

}  // namespace
}  // namespace souk::unit
