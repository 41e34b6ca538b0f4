// SPDX-License-Identifier: GPL-2.0-or-later
// CRIU's image files begin with this number. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "kernel/base/protobuf_fields.hpp"

namespace souk {

inline constexpr uint32_t criu_common_magic = 0x54564319;  // CRIU include/magic.h: IMG_COMMON_MAGIC

inline uint32_t criu_u32(std::string_view bytes, size_t at) {
    uint32_t v;
    std::memcpy(&v, bytes.data() + at, sizeof v);
    return v;
}

}  // namespace souk
