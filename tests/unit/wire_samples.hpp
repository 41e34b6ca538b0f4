// SPDX-License-Identifier: GPL-2.0-or-later
// Random valid messages for the codec's tests: sample<T>(rng) fills every field that the wire
// carries.
#pragma once

#include "kernel/base/rng.hpp"
#include "market/wire/codec.hpp"

namespace souk::unit {

template <class T>
T sample(Rng& rng);

}  // namespace souk::unit
