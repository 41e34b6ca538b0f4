// SPDX-License-Identifier: GPL-2.0-or-later
// The messages of an agentd and the market (market/core/messages.hpp) as bytes and back: as
// kernel/wire/codec.hpp.
#pragma once

#include "kernel/wire/codec.hpp"
#include "market/core/messages.hpp"
#include "market/core/ticket.hpp"

namespace souk::wire {

// job_report to use_report: to marketd, join from one that has no certificate yet; the others: from
// it.
// clang-format off
#define SOUK_MARKET_WORDS(X)                          \
    X(JobReport, job_report, 16, report_bytes)        \
    X(ProviderReport, provider_report, 17, small_bytes) \
    X(OrderFailed, order_failed, 18, small_bytes)     \
    X(Join, join, 19, small_bytes)                    \
    X(Renew, renew, 20, small_bytes)                  \
    X(UseReport, use_report, 21, list_bytes)          \
    X(Order, order, 32, small_bytes)                  \
    X(JobNote, job_note, 33, small_bytes)             \
    X(ProviderNote, provider_note, 34, small_bytes)   \
    X(Directory, directory, 35, list_bytes)           \
    X(NodeLost, node_lost, 36, small_bytes)           \
    X(Certified, certified, 37, list_bytes)           \
    X(Revoked, revoked, 38, list_bytes)               \
    X(TicketKeys, ticket_keys, 39, small_bytes)       \
    X(PeerSites, peer_sites, 43, list_bytes)
// clang-format on

SOUK_MARKET_WORDS(SOUK_WIRE_DECLARE)

// A Ticket is no message of its own: it is sealed (kernel/trust/ticket_key.hpp) and goes with an
// order.
std::string pack(const Ticket& ticket);
template <>
Result<Ticket> unpack<Ticket>(std::string_view bytes);

// Says how long each message on a connection with the market may be.
constexpr uint32_t market_words(FrameType type) {
    SOUK_MARKET_WORDS(SOUK_WIRE_BYTES_MAX)
    return common_words(type);
}

// These tables say what each kind of peer may say to the market once it has greeted: nothing else
// is read of it (Channel::allow). `make authority-table` writes them into docs/security.md.
#define SOUK_JOINER_TO_MARKET(X) X(joiner, join, none, "the name that its token is for")
#define SOUK_OPERATOR_TO_MARKET(X) X(operator, ctl_request, none, "all; an owner as nobody")
#define SOUK_AGENT_TO_MARKET(X)                                                     \
    X(agent, job_report, home, "its own jobs, of the users that its token names")   \
    X(agent, order_failed, home, "orders for its own jobs")                         \
    X(agent, provider_report, provider, "itself")                                   \
    X(agent, use_report, provider, "what has run on it")                            \
    X(agent, renew, node, "its own key")                                            \
    X(agent, ctl_request, node, "as its users ask; of a provider alone, as nobody") \
    X(agent, ctl_reply, node, "what it was asked")
// clang-format on
SOUK_WIRE_ALLOWED(joiner_to_market, market_words, SOUK_JOINER_TO_MARKET)
SOUK_WIRE_ALLOWED(operator_to_market, market_words, SOUK_OPERATOR_TO_MARKET)
SOUK_WIRE_ALLOWED(agent_to_market, market_words, SOUK_AGENT_TO_MARKET)
SOUK_WIRE_HAS_ROLE(role_to_market, SOUK_AGENT_TO_MARKET)

// These pack and unpack the messages of the market's protocol. Unpacking fails for a type that is
// none of them.
FrameType type_of(const ToMarket& message);
FrameType type_of(const FromMarket& message);
std::string pack(const ToMarket& message);
std::string pack(const FromMarket& message);
Result<ToMarket> unpack_to_market(FrameType type, std::string_view bytes);
Result<FromMarket> unpack_from_market(FrameType type, std::string_view bytes);

}  // namespace souk::wire
