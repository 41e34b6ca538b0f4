// SPDX-License-Identifier: GPL-2.0-or-later
// Packs the messages of agents to each other and to srun (agentd/core/messages.hpp, messages.hpp)
// into bytes, and unpacks them, as kernel/wire/codec.hpp does.
#pragma once

#include <utility>

#include "agentd/core/messages.hpp"
#include "agentd/wire/messages.hpp"
#include "agentd/wire/types.hpp"
#include "market/wire/codec.hpp"

namespace souk::wire {

SOUK_AGENT_WORDS(SOUK_WIRE_DECLARE)

// Says how long each message on a connection with an agentd may be.
constexpr uint32_t agent_words(FrameType type) {
    SOUK_AGENT_WORDS(SOUK_WIRE_BYTES_MAX)
    return market_words(type);
}

// Returns the job and epoch that a message between agents names, whatever else is wrong with it, so
// that only that job's message is refused or left out. Fails if the message names none, or is no
// message at all.
Result<std::pair<JobId, Epoch>> job_named_in(FrameType type, std::string_view bytes);

// These tables say what each kind of peer may say to an agentd once it has greeted, as in
// market/wire/codec.hpp.
#define SOUK_HOME_TO_AGENT(X)                                              \
    X(home, guest_command, home, "its own jobs, by tickets of the market") \
    X(home, stdio_ack, home, "its own jobs")                               \
    X(home, stdio_input, home, "its own jobs")                             \
    X(home, stdio_winch, home, "its own jobs")                             \
    X(home, heartbeat, home, "its own jobs")
#define SOUK_SOURCE_TO_AGENT(X)                                                       \
    X(source, image_begin, node, "an image of which a ticket names it as the source") \
    X(source, precopy_begin, node, "the same, before its job stops")                  \
    X(source, files_begin, node, "files of a job that is here or that it sends")
#define SOUK_RELAY_TO_AGENT(X)                                            \
    X(relay, gateway_offer, node, "itself, of this site, at its gateway") \
    X(relay, gateway_ask, node, "nodes at this gateway, or at others if relay_out")
#define SOUK_OWNER_TO_AGENT(X) X(owner, ctl_request, none, "all that root may ask there")
// clang-format on
SOUK_WIRE_ALLOWED(home_to_agent, agent_words, SOUK_HOME_TO_AGENT)
SOUK_WIRE_ALLOWED(source_to_agent, agent_words, SOUK_SOURCE_TO_AGENT)
SOUK_WIRE_HAS_ROLE(role_to_agent, SOUK_HOME_TO_AGENT)
SOUK_WIRE_HAS_ROLE(role_as_source, SOUK_SOURCE_TO_AGENT)
SOUK_WIRE_ALLOWED(relay_to_agent, agent_words, SOUK_RELAY_TO_AGENT)
SOUK_WIRE_HAS_ROLE(role_as_relay, SOUK_RELAY_TO_AGENT)
SOUK_WIRE_ALLOWED(owner_to_agent, agent_words, SOUK_OWNER_TO_AGENT)

}  // namespace souk::wire
