// SPDX-License-Identifier: GPL-2.0-or-later
// Random valid messages for the codec's tests: sample<T>(rng) fills every field that the wire
// carries.
#pragma once

#include "agentd/store/records.hpp"
#include "kernel/base/rng.hpp"
#include "market/wire/site_codec.hpp"

namespace souk::unit {

template <class T>
T sample(Rng& rng);

}  // namespace souk::unit
