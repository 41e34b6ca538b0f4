// SPDX-License-Identifier: GPL-2.0-or-later
// What agents say to each other and to srun (agentd/core/messages.hpp, messages.hpp) as bytes and
// back: as kernel/wire/codec.hpp.
#pragma once

#include "agentd/core/messages.hpp"
#include "agentd/wire/messages.hpp"
#include "agentd/wire/types.hpp"
#include "market/wire/codec.hpp"

namespace souk::wire {

SOUK_AGENT_WORDS(SOUK_WIRE_DECLARE)

// The words of a connection with an agentd.
constexpr uint32_t agent_words(FrameType type) {
    SOUK_AGENT_WORDS(SOUK_WIRE_BYTES_MAX)
    return market_words(type);
}

}  // namespace souk::wire
