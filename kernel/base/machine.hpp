// SPDX-License-Identifier: GPL-2.0-or-later
// Machine: what the image of a job was made on, and so what it needs to run elsewhere.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "kernel/base/result.hpp"

namespace souk {

struct Machine {
    std::string architecture;  // x86_64
    std::string kernel;        // release
    std::string criu;          // version; must be the same on both ends
    uint64_t page_bytes = 0;
    // sorted, one blank between two; the job may have found out about any of them
    std::string cpu_features;
    auto operator<=>(const Machine&) const = default;
};

// Fails if `here` cannot take what was made on `there`: it needs the same architecture, page size
// and CRIU, and every CPU feature. Pure.
Status can_take(const Machine& here, const Machine& there);

}  // namespace souk
