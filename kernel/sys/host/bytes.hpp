// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes (owned) and ByteView (borrowed): what streams, frames and the state database carry.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace souk {

using Bytes = std::vector<uint8_t>;
using ByteView = std::span<const uint8_t>;

inline ByteView bytes_of(std::string_view text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string_view text_of(ByteView bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace souk
