// SPDX-License-Identifier: GPL-2.0-or-later
// Rng: xoshiro256** 1.0 seeded by splitmix64 (Blackman and Vigna, 2018). Deterministic on every
// platform, unlike the distributions of <random>; every use has an explicit seed.
#pragma once

#include <cstdint>

namespace souk {

class Rng {
  public:
    explicit Rng(uint64_t seed);
    uint64_t next();
    // Uniform in [0, bound), without bias; bound > 0.
    uint64_t below(uint64_t bound);
    // Uniform in [lo, hi].
    int64_t between(int64_t lo, int64_t hi);
    // Uniform in [0, 1), 53 bits.
    double unit();
    // True with probability p.
    bool chance(double p) { return unit() < p; }

  private:
    uint64_t s_[4];
};

}  // namespace souk
