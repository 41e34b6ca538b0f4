// SPDX-License-Identifier: GPL-2.0-or-later
// A test that draws its own seeds plays more of them than usual where a variable asks for that.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace souk {

inline uint64_t seeds_wanted(const char* variable, uint64_t usual) {
    const char* const set = std::getenv(variable);
    return set ? std::strtoull(set, nullptr, 10) : usual;
}

// The seeds of a test of lies: SOUK_LIES of them, from SOUK_LIES_FROM (1) on, so that a run goes on
// where another one has ended.
inline std::vector<uint64_t> seeds_of_lies(uint64_t usual) {
    std::vector<uint64_t> seeds(seeds_wanted("SOUK_LIES", usual));
    std::iota(seeds.begin(), seeds.end(), seeds_wanted("SOUK_LIES_FROM", 1));
    return seeds;
}

}  // namespace souk
