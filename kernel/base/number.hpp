// SPDX-License-Identifier: GPL-2.0-or-later
// Whole numbers in text, read the same way everywhere: digits with at most a minus sign before
// them, no blank, no plus sign, nothing of the locale. A number that its type cannot hold is none.
// Pure.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>

namespace souk {

// The number that `text` begins with; it is taken off `text`. None: `text` stays as it is.
template <std::integral T>
std::optional<T> take_number(std::string_view& text, int base = 10) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return value;
}

// The number that `text` begins with, whatever follows it.
template <std::integral T>
std::optional<T> leading_number(std::string_view text, int base = 10) {
    return take_number<T>(text, base);
}

// The number that `text` is, from its first character to its last.
template <std::integral T>
std::optional<T> whole_number(std::string_view text, int base = 10) {
    const std::optional<T> value = take_number<T>(text, base);
    return text.empty() ? value : std::nullopt;
}

}  // namespace souk
