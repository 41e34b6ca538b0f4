// SPDX-License-Identifier: GPL-2.0-or-later
// A test that draws its own seeds plays more of them than usual where a variable asks for that.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ranges>

namespace souk {

inline uint64_t seeds_wanted(const char* variable, uint64_t usual) {
    const char* const set = std::getenv(variable);
    return set ? std::strtoull(set, nullptr, 10) : usual;
}

// The seeds of a test of lies: SOUK_LIES of them, from SOUK_LIES_FROM (1) on, so that a run goes on
// where another one has ended.
inline auto seeds_of_lies(uint64_t usual) {
    const uint64_t from = seeds_wanted("SOUK_LIES_FROM", 1);
    return std::views::iota(from, from + seeds_wanted("SOUK_LIES", usual));
}

}  // namespace souk
