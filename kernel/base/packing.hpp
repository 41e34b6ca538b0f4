// SPDX-License-Identifier: GPL-2.0-or-later
// Packets between two processes of one build, one of which may have been taken over: numbers with
// the low byte first, texts with their length before them. Kept so short that it can be looked
// through at once. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/base/little_endian.hpp"

namespace souk {

struct PackWriter {
    std::string bytes;
    void number(uint64_t value, size_t width) {
        const size_t at = bytes.size();
        bytes.resize(at + width);
        put_le(bytes.data() + at, value, width);
    }
    void text(std::string_view value) {
        number(value.size(), 4);
        bytes += value;
    }
};

// Reads packed values. After the first read past the end everything is empty, and good() false.
struct PackReader {
    std::string_view rest;
    bool whole = true;
    uint64_t number(size_t width) {
        if (rest.size() < width) {
            whole = false;
            return 0;
        }
        const uint64_t value = get_le(rest.data(), width);
        rest.remove_prefix(width);
        return value;
    }
    std::string text(size_t most) {
        const uint64_t length = number(4);
        if (length > most || length > rest.size()) {
            whole = false;
            return {};
        }
        std::string value(rest.substr(0, length));
        rest.remove_prefix(length);
        return value;
    }
    bool good() const { return whole && rest.empty(); }
};

}  // namespace souk
