// SPDX-License-Identifier: GPL-2.0-or-later
// FNV-1a: a short hash of a short text, the same on every machine and in every build. Not against
// an adversary. Source: Fowler, Noll, Vo (draft-eastlake-fnv). Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace souk {

constexpr uint32_t fnv1a_32(std::string_view text) {
    uint32_t hash = 2'166'136'261U;
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16'777'619U;
    return hash;
}

constexpr uint64_t fnv1a_64(std::string_view text) {
    uint64_t hash = 14'695'981'039'346'656'037U;
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1'099'511'628'211U;
    return hash;
}

}  // namespace souk
