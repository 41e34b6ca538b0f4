// SPDX-License-Identifier: GPL-2.0-or-later
// Pages of a process, as images, the stream between two agents and their messages name them.
#pragma once

#include <cstdint>

namespace souk {

inline constexpr uint64_t page_bytes = 4096;

// A range begins at an address that is a multiple of page_bytes.
struct PageRange {
    int32_t pid = 0;  // inside the capsule
    uint64_t start = 0, pages = 0;
    bool operator==(const PageRange&) const = default;
};

}  // namespace souk
