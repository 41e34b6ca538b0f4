// SPDX-License-Identifier: GPL-2.0-or-later
// A connection to a gateway that is to be relayed begins with a pass: who has asked for it, and who
// was called, each got one of his own over TLS, which is good once and for seconds. No frame and no
// record of TLS begins like this. The bytes of the two nodes follow. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace souk {

inline constexpr std::string_view gateway_pass_mark = "SOUK-PASS ";
inline constexpr size_t gateway_pass_bytes = 16;  // random ones; in hexadecimal digits in words
inline constexpr size_t gateway_pass_digits = 2 * gateway_pass_bytes;
inline constexpr size_t gateway_preamble_bytes = gateway_pass_mark.size() + gateway_pass_digits;

inline bool is_gateway_pass(std::string_view text) {
    return text.size() == gateway_pass_digits &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
inline std::string gateway_preamble(std::string_view pass) {
    return std::string(gateway_pass_mark) + std::string(pass);
}
// The pass in such a beginning; none: it is none.
inline std::optional<std::string> pass_of(std::string_view preamble) {
    if (preamble.size() != gateway_preamble_bytes || !preamble.starts_with(gateway_pass_mark))
        return std::nullopt;
    preamble.remove_prefix(gateway_pass_mark.size());
    if (!is_gateway_pass(preamble)) return std::nullopt;
    return std::string(preamble);
}

}  // namespace souk
