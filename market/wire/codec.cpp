// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/wire/codec.hpp"

#include "kernel/wire/field_codec.hpp"
#include "kernel/wire/message_fields.hpp"
#include "market/core/message_fields.hpp"
#include "market/wire/market.pb-c.h"
#include "market/wire/site_codec.hpp"

namespace souk::wire {

namespace {

void check_order(Order& v, Check& c) {
    if (v.kind != Order::Kind::run) return;
    if (v.node.empty()) c.bad("node", "not a node name");
    if (v.address.empty()) c.bad("address", "missing");
}

void check_directory(Directory& v, Check& c) {
    for (const Peer& peer : v.peers)
        if (peer.node.empty()) c.bad("peers", "one without a name");
}

template <class Union, class T>
Result<Union> as(std::string_view bytes) {
    TRY_ASSIGN(T message, unpack<T>(bytes));
    return Union(std::move(message));
}

}  // namespace

template <>
inline constexpr auto also_check<Order> = check_order;
template <>
inline constexpr auto also_check<Directory> = check_directory;

SOUK_MARKET_WORDS(SOUK_WIRE_LISTED)
SOUK_SITE_WORDS(SOUK_WIRE_LISTED)
SOUK_LISTED_CODEC(Ticket, pb__ticket, false)

FrameType type_of(const ToMarket& message) {
    return std::visit([]<class T>(const T&) { return frame_type<T>; }, message);
}
FrameType type_of(const FromMarket& message) {
    return std::visit([]<class T>(const T&) { return frame_type<T>; }, message);
}
std::string pack(const ToMarket& message) {
    return std::visit([](const auto& m) { return pack(m); }, message);
}
std::string pack(const FromMarket& message) {
    return std::visit([](const auto& m) { return pack(m); }, message);
}

Result<ToMarket> unpack_to_market(FrameType type, std::string_view bytes) {
    switch (type) {
        case frame::job_report: return as<ToMarket, JobReport>(bytes);
        case frame::provider_report: return as<ToMarket, ProviderReport>(bytes);
        case frame::order_failed: return as<ToMarket, OrderFailed>(bytes);
        default:
            return fail("frame type " + std::to_string(static_cast<int>(type)) +
                        " is not for the market");
    }
}

Result<FromMarket> unpack_from_market(FrameType type, std::string_view bytes) {
    switch (type) {
        case frame::order: return as<FromMarket, Order>(bytes);
        case frame::job_note: return as<FromMarket, JobNote>(bytes);
        case frame::provider_note: return as<FromMarket, ProviderNote>(bytes);
        case frame::directory: return as<FromMarket, Directory>(bytes);
        case frame::node_lost: return as<FromMarket, NodeLost>(bytes);
        default:
            return fail("frame type " + std::to_string(static_cast<int>(type)) +
                        " is not one of the market's");
    }
}

}  // namespace souk::wire
