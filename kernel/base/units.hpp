// SPDX-License-Identifier: GPL-2.0-or-later
// Times and sizes as people write them, in every option and configuration: a decimal number and a
// unit, or a number alone in the unit that this option has always had. Pure. Errors are one line
// that says what would be right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

// --help shows these.
inline constexpr const char* span_forms = "90s, 30m, 1.5h, 2d";
inline constexpr const char* size_forms = "512M, 4G";

// "90s", "30m", "1.5h", "1d", "250ms", "500us", "2w"; a number alone is in units of `plain`, and
// refused if that is 0.
Result<Nanos> parse_span(std::string_view text, Nanos plain, Nanos least, Nanos most);
// Whole MB (2^20 bytes) of "4G", "512M", "1.5T", "65536K" (with B or iB or without, in either
// case); a number alone is MB.
Result<int64_t> parse_size_mb(std::string_view text, int64_t least, int64_t most);
// "1.5h", "90s": the longest unit that leaves no more than one decimal.
std::string span_text(Nanos span);

// Writes a span for people, who do not reckon with it: "3.2s", "12m05s", "5h07m", "3d04h".
std::string human_span(Nanos span);
// An amount, with no more digits than say something: "40", "12.4", "3.14", "0.0312", "0.000015".
std::string human_money(Money amount);
// "4.2 MB" of 1,000 bytes each thousand.
std::string human_bytes(uint64_t bytes);

}  // namespace souk
