// SPDX-License-Identifier: GPL-2.0-or-later
// Distribution: what the import and the replay draw values, speeds and reservation prices from.
// Pure and seeded.
//
// Text, as the reference has it:
//   fix A                      always A
//   uniform LO HI              every integer from LO to HI is as likely
//   bimodal P M1 D1 Q M2 D2    P % around M1 with deviation D1, Q % around M2 with deviation D2; P
//                              + Q = 100. The shares may have six decimals, and may be fractions of
//                              1 (0.8 and 0.2).
// All other numbers are integers from 0 to 1,000,000. Normal deviates are sums of 12 uniform
// numbers less 6 (additions alone, so the same on every machine; never beyond 6 deviations),
// rounded, and raised to `least`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/base/rng.hpp"

namespace souk::sim {

struct Distribution {
    enum class Kind : uint8_t { fix, uniform, bimodal };
    Kind kind = Kind::fix;
    int64_t parameters[6] = {};  // of shares, whole percents
    // bimodal: the first share in millionths of a percent, where it is no whole percent
    int64_t first_share_micro = -1;

    int64_t draw(Rng& rng, int64_t least) const;
};

Result<Distribution> parse_distribution(std::string_view text);

}  // namespace souk::sim
