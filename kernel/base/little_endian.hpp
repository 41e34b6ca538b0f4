// SPDX-License-Identifier: GPL-2.0-or-later
// Numbers of up to 8 bytes as they stand in a stream: the low byte first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace souk {

constexpr void put_le(char* to, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<char>(value >> (8 * i));
}
constexpr uint64_t get_le(const char* from, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i)
        value |= uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
    return value;
}

}  // namespace souk
