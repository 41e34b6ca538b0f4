// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/age.hpp"

#include <algorithm>

#include "market/core/types.hpp"

namespace souk::market {

namespace {
using Wide = __int128;

constexpr int64_t steps_in_double = 8, age_steps_most = 12 * steps_in_double;
// weight_plain x 2^(step / 8)
constexpr int32_t step_weights[] = {1024, 1117, 1218, 1328, 1448, 1579, 1722, 1878};
static_assert(weight_most == weight_plain << (age_steps_most / steps_in_double));

int64_t steps_of(Nanos waited, Nanos ageing) {
    const Wide steps = static_cast<Wide>(waited.ns) * steps_in_double / ageing.ns;
    return static_cast<int64_t>(std::clamp<Wide>(steps, 0, age_steps_most));
}
}  // namespace

int32_t weight_after(Nanos waited, Nanos ageing) {
    if (ageing.ns <= 0) return weight_plain;
    const int64_t steps = steps_of(waited, ageing);
    return step_weights[steps % steps_in_double] << (steps / steps_in_double);
}

Nanos next_weight_at(Nanos waited, Nanos ageing) {
    if (ageing.ns <= 0) return Nanos::never();
    const int64_t steps = steps_of(waited, ageing);
    if (steps == age_steps_most) return Nanos::never();
    const Wide at =
        (static_cast<Wide>(steps + 1) * ageing.ns + steps_in_double - 1) / steps_in_double;
    return at < Nanos::never().ns ? Nanos{static_cast<int64_t>(at)} : Nanos::never();
}

}  // namespace souk::market
