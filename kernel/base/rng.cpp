// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/rng.hpp"

#include "kernel/base/check.hpp"

namespace souk {

Rng::Rng(uint64_t seed) {
    for (auto& s : s_) {
        seed += 0x9e3779b97f4a7c15;
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        s = z ^ (z >> 31);
    }
}

uint64_t Rng::next() {
    const auto rotl = [](uint64_t x, int k) { return (x << k) | (x >> (64 - k)); };
    const uint64_t result = rotl(s_[1] * 5, 7) * 9;
    const uint64_t t = s_[1] << 17;
    s_[2] ^= s_[0];
    s_[3] ^= s_[1];
    s_[1] ^= s_[2];
    s_[0] ^= s_[3];
    s_[2] ^= t;
    s_[3] = rotl(s_[3], 45);
    return result;
}

uint64_t Rng::below(uint64_t bound) {
    MUST(bound > 0);
    const uint64_t least = -bound % bound;  // reject the few values that would bias the remainder
    for (;;) {
        const uint64_t v = next();
        if (v >= least) return v % bound;
    }
}

int64_t Rng::between(int64_t lo, int64_t hi) {
    MUST(lo <= hi);
    const uint64_t width = static_cast<uint64_t>(hi) - static_cast<uint64_t>(lo) + 1;
    return width == 0 ? static_cast<int64_t>(next())
                      : static_cast<int64_t>(static_cast<uint64_t>(lo) + below(width));
}

double Rng::unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

}  // namespace souk
