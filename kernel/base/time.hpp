// SPDX-License-Identifier: GPL-2.0-or-later
// Nanos: a point in time or a span, in nanoseconds, signed 64 bits (292 years). The pure machines
// get `now` from their caller: CLOCK_BOOTTIME-like time that never steps back within one life of a
// daemon, or virtual time.
#pragma once

#include <compare>
#include <cstdint>

namespace souk {

struct Nanos {
    int64_t ns = 0;

    static constexpr Nanos from_us(int64_t v) { return {v * 1'000}; }
    static constexpr Nanos from_ms(int64_t v) { return {v * 1'000'000}; }
    static constexpr Nanos from_s(int64_t v) { return {v * 1'000'000'000}; }
    static constexpr Nanos never() { return {INT64_MAX}; }

    constexpr double seconds() const { return static_cast<double>(ns) / 1e9; }
    constexpr double ms() const { return static_cast<double>(ns) / 1e6; }

    constexpr auto operator<=>(const Nanos&) const = default;
    constexpr Nanos operator+(Nanos o) const { return {ns + o.ns}; }
    constexpr Nanos operator-(Nanos o) const { return {ns - o.ns}; }
    constexpr Nanos& operator+=(Nanos o) {
        ns += o.ns;
        return *this;
    }
};

}  // namespace souk
