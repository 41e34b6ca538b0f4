// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/text.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>

namespace souk {
namespace {

// Unicode 15: categories Cc, Cf, Zl, Zp, Cs, and the tag characters' whole block.
constexpr std::pair<uint32_t, uint32_t> hidden[] = {
    {0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},
    {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
    {0x8e2, 0x8e2},     {0x180e, 0x180e},   {0x200b, 0x200f},   {0x2028, 0x202e},
    {0x2060, 0x206f},   {0xd800, 0xdfff},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},
    {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3},
    {0x1d173, 0x1d17a}, {0xe0000, 0xe007f}};

bool is_hidden(uint32_t c) {
    return std::any_of(std::begin(hidden), std::end(hidden),
                       [&](const auto& range) { return c >= range.first && c <= range.second; });
}

constexpr uint32_t malformed = UINT32_MAX;

// The character at `at`, its length in `n` (1 if it is malformed).
uint32_t character(std::string_view text, size_t at, size_t& n) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(at);
    n = 1;
    if (first < 0x80) return first;
    const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (first < 0xc2 || first > 0xf4 || at + length > text.size()) return malformed;
    uint32_t c = first & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; ++i) {
        if ((byte(at + i) & 0xc0) != 0x80) return malformed;
        c = c << 6 | (byte(at + i) & 0x3f);
    }
    if ((length == 3 && c < 0x800) || (length == 4 && (c < 0x10000 || c > 0x10ffff)))
        return malformed;
    n = length;
    return c;
}

}  // namespace

Status check_label(std::string_view text, size_t bytes_max) {
    if (text.empty() || text.size() > bytes_max)
        return fail("a name of 1 to " + std::to_string(bytes_max) + " bytes is wanted, not of " +
                    std::to_string(text.size()));
    for (size_t at = 0, n = 0; at < text.size(); at += n) {
        const uint32_t c = character(text, at, n);
        if (c == malformed)
            return fail("a name in UTF-8 is wanted: byte " + std::to_string(at + 1) +
                        " begins no character");
        if (!is_hidden(c)) continue;
        char code[16];
        std::snprintf(code, sizeof code, "U+%04X", static_cast<unsigned>(c));
        return fail("a name without control and format characters is wanted: it holds " +
                    std::string(code));
    }
    return {};
}

std::string blank_controls(std::string_view text) {
    std::string out(text);
    // Most texts are printable ASCII, and every field of a message passes here.
    const auto printable = [](char c) { return c >= 0x20 && c < 0x7f; };
    if (std::all_of(text.begin(), text.end(), printable)) return out;
    for (size_t at = 0, n = 0; at < text.size(); at += n) {
        const uint32_t c = character(text, at, n);
        // A terminal that is not in UTF-8 takes a byte of 0x80 to 0x9f by itself as a control.
        const bool control =
            c == malformed ? is_hidden(static_cast<unsigned char>(text[at])) : is_hidden(c);
        if (control) std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(at), n, ' ');
    }
    return out;
}

std::vector<std::string> comma_parts(std::string_view text) {
    std::vector<std::string> parts;
    for (size_t from = 0; from <= text.size();) {
        const size_t comma = std::min(text.find(',', from), text.size());
        parts.emplace_back(text.substr(from, comma - from));
        from = comma + 1;
    }
    return parts;
}

}  // namespace souk
