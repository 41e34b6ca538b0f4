// SPDX-License-Identifier: GPL-2.0-or-later
// A test that draws its own seeds plays more of them than usual where a variable asks for that.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace souk {

inline uint64_t seeds_wanted(const char* variable, uint64_t usual) {
    const char* const set = std::getenv(variable);
    return set ? std::strtoull(set, nullptr, 10) : usual;
}

}  // namespace souk
