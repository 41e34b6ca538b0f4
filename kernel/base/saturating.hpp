// SPDX-License-Identifier: GPL-2.0-or-later
// Sums and products that end at the limits of their type instead of running over: for numbers that
// somebody else has said.
#pragma once

#include <concepts>
#include <limits>

namespace souk {

template <std::integral T>
constexpr T saturating_add(T a, T b) {
    T sum{};
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b < T{} ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
}

template <std::integral T>
constexpr T saturating_multiply(T a, T b) {
    T product{};
    if (!__builtin_mul_overflow(a, b, &product)) return product;
    return (a < T{}) != (b < T{}) ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
}

}  // namespace souk
