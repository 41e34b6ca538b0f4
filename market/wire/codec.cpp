// SPDX-License-Identifier: GPL-2.0-or-later
// Between an agentd and the market.
#include "market/wire/codec.hpp"

#include "market/wire/codec_parts.hpp"

namespace souk::wire {
namespace {

constexpr size_t peers_max = 4096;
constexpr size_t features_max = 8192;  // of a CPU, in one line
constexpr int32_t permille_max = 1'000'000'000;

void fill(const JobReport& v, Pb__JobReport& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.terms = fill_terms(v.terms, a);
    m.uid = v.uid;
    m.user = fill_line(v.user, a, name_max);
    m.name = fill_line(v.name, a, name_max);
    m.command = fill_line(v.command, a);
    m.submitted = v.submitted.ns;
    m.phase = static_cast<uint32_t>(v.phase);
    m.where = fill_string(v.where, a);
    m.to = fill_string(v.to, a);
    m.epoch = v.epoch.n;
    m.order_seq = v.order_seq;
    m.cannot_move = fill_line(v.cannot_move, a);
    m.address = v.address.n;
    m.pid = v.pid;
    m.stands = v.stands;
    m.checkpoint_node = fill_string(v.checkpoint_node, a);
    m.checkpoint_taken = v.checkpoint_taken.ns;
    m.checkpoint_bytes = v.checkpoint_bytes;
    m.checkpoint_trouble = fill_line(v.checkpoint_trouble, a);
    m.stay_run = v.stay_run.ns + 1;
    m.alone = v.alone.ns;
    m.in_place = v.in_place;
    m.comment = fill_line(v.comment, a);
    m.stats = fill_stats(v.stats, a);
    fill_places(v.places, m.n_places, m.places, a);
    fill_places(v.lacking, m.n_lacking, m.lacking, a);
    m.cancelled = v.cancelled;
    m.wait_status = v.wait_status;
    m.why = fill_line(v.why, a);
}

JobReport take(const Pb__JobReport& m, Check& c) {
    JobReport v;
    v.id = c.job(m.id);
    v.terms = take_terms(m.terms, c);
    v.uid = m.uid;
    v.user = clean(m.user, name_max);
    v.name = clean(m.name, name_max);
    v.command = clean(m.command);
    v.submitted = c.time("submitted", m.submitted);
    v.phase = c.one_of("phase", m.phase, JobPhase::waiting, JobPhase::finished);
    v.where = c.node_or_none("where", m.where);
    v.to = c.node_or_none("to", m.to);
    v.epoch = c.epoch("epoch", m.epoch);
    v.order_seq = c.count("order_seq", m.order_seq);
    v.cannot_move = clean(m.cannot_move);
    v.address = {m.address};
    v.pid = c.in("pid", m.pid, 0, INT32_MAX);
    v.stands = m.stands;
    v.checkpoint_node = c.node_or_none("checkpoint_node", m.checkpoint_node);
    v.checkpoint_taken = c.time("checkpoint_taken", m.checkpoint_taken);
    v.checkpoint_bytes = c.in<int64_t>("checkpoint_bytes", m.checkpoint_bytes, 0, bytes_max);
    v.checkpoint_trouble = clean(m.checkpoint_trouble);
    v.stay_run = Nanos{c.span("stay_run", m.stay_run).ns - 1};
    v.alone = c.span("alone", m.alone);
    v.in_place = m.in_place;
    v.comment = clean(m.comment);
    v.stats = take_stats(m.stats, c);
    v.places = take_places(m.n_places, m.places, c);
    v.lacking = take_places(m.n_lacking, m.lacking, c);
    v.cancelled = m.cancelled;
    v.wait_status = m.wait_status;
    v.why = clean(m.why);
    return v;
}

void fill(const ProviderReport& v, Pb__ProviderReport& m, Arena& a) {
    m.node = fill_string(v.node, a);
    m.on_market = v.on_market;
    m.reserve = v.reserve.micro;
    m.speed = v.speed;
    m.cpus = v.cpus;
    m.memory_mb = v.memory_mb;
    m.free_mb = v.free_mb;
    m.load_permille = v.load_permille;
    m.wait_permille = v.wait_permille;
    m.load_source = fill_line(v.load_source, a, name_max);
    m.kernel = fill_line(v.machine.kernel, a, name_max);
    m.criu = fill_line(v.machine.criu, a, name_max);
    m.architecture = fill_line(v.machine.architecture, a, name_max);
    m.page_bytes = v.machine.page_bytes;
    m.cpu_features = fill_line(v.machine.cpu_features, a, features_max);
    m.cannot = fill_line(v.cannot, a);
    m.restriction = fill_line(v.restriction, a);
}

ProviderReport take(const Pb__ProviderReport& m, Check& c) {
    ProviderReport v;
    v.node = c.node("node", m.node);
    v.on_market = m.on_market;
    v.reserve = c.price("reserve", m.reserve);
    v.speed = c.in<int64_t>("speed", m.speed, 1, 1'000'000);
    v.cpus = c.cpus("cpus", m.cpus);
    v.memory_mb = c.megabytes("memory_mb", m.memory_mb);
    v.free_mb = c.megabytes("free_mb", m.free_mb);
    v.load_permille = c.in("load_permille", m.load_permille, 0, permille_max);
    v.wait_permille = c.in("wait_permille", m.wait_permille, 0, permille_max);
    v.load_source = clean(m.load_source, name_max);
    v.machine.kernel = clean(m.kernel, name_max);
    v.machine.criu = clean(m.criu, name_max);
    v.machine.architecture = clean(m.architecture, name_max);
    v.machine.page_bytes = m.page_bytes;
    v.machine.cpu_features = clean(m.cpu_features, features_max);
    v.cannot = clean(m.cannot);
    v.restriction = clean(m.restriction);
    return v;
}

void fill(const OrderFailed& v, Pb__OrderFailed& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.seq = v.seq;
    m.node = fill_string(v.node, a);
    m.why = fill_line(v.why, a);
}

OrderFailed take(const Pb__OrderFailed& m, Check& c) {
    return {c.job(m.id), c.count("seq", m.seq), c.node_or_none("node", m.node), clean(m.why)};
}

void fill(const Order& v, Pb__Order& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.seq = v.seq;
    m.kind = static_cast<uint32_t>(v.kind);
    m.node = fill_string(v.node, a);
    m.address = fill_string(v.address, a);
    m.price = v.price.micro;
    m.reason = fill_line(v.reason, a);
}

Order take(const Pb__Order& m, Check& c) {
    Order v;
    v.id = c.job(m.id);
    v.seq = c.count("seq", m.seq);
    v.kind = c.one_of("kind", m.kind, Order::Kind::run, Order::Kind::give_up);
    v.node = v.kind == Order::Kind::run ? c.node("node", m.node) : c.node_or_none("node", m.node);
    v.address = c.address("address", m.address);
    if (v.kind == Order::Kind::run && v.address.empty()) c.bad("address", "missing");
    v.price = c.price("price", m.price);
    v.reason = clean(m.reason);
    return v;
}

void fill(const JobNote& v, Pb__JobNote& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.price = v.price.micro;
    m.cost = v.cost.micro;
    m.comment = fill_line(v.comment, a);
    m.settled = v.settled;
    m.day_limit = v.day_limit.micro;
    m.day_left = v.day_left.micro;
    m.day_cost = v.day_cost.micro;
}

JobNote take(const Pb__JobNote& m, Check& c) {
    return {c.job(m.id),
            c.price("price", m.price),
            c.amount("cost", m.cost),
            clean(m.comment),
            bool(m.settled),
            c.amount("day_limit", m.day_limit),
            c.amount("day_left", m.day_left),
            c.amount("day_cost", m.day_cost)};
}

void fill(const ProviderNote& v, Pb__ProviderNote& m, Arena&) {
    m.current_price = v.current_price.micro;
    m.next_price = v.next_price.micro;
    m.earned = v.earned.micro;
    m.guests = v.guests;
}

ProviderNote take(const Pb__ProviderNote& m, Check& c) {
    return {c.amount("current_price", m.current_price), c.amount("next_price", m.next_price),
            c.amount("earned", m.earned), c.in("guests", m.guests, 0, INT32_MAX)};
}

void fill(const Directory& v, Pb__Directory& m, Arena& a) {
    m.n_peers = v.peers.size();
    m.peers = a.array<Pb__Peer*>(v.peers.size());
    for (size_t i = 0; i < v.peers.size(); ++i) m.peers[i] = fill_peer(v.peers[i], a);
}

Directory take(const Pb__Directory& m, Check& c) {
    Directory v;
    if (m.n_peers > peers_max) c.bad("peers", "more than " + std::to_string(peers_max));
    for (size_t i = 0; i < m.n_peers && c.ok(); ++i) {
        v.peers.push_back(take_peer_or_none("peers", m.peers[i], c));
        if (v.peers.back().node.empty()) c.bad("peers", "one without a name");
    }
    return v;
}

void fill(const NodeLost& v, Pb__NodeLost& m, Arena& a) { m.node = fill_string(v.node, a); }
NodeLost take(const Pb__NodeLost& m, Check& c) { return {c.node("node", m.node)}; }

template <class Union, class T>
Result<Union> as(std::string_view bytes) {
    TRY_ASSIGN(T message, unpack<T>(bytes));
    return Union(std::move(message));
}

}  // namespace

SOUK_WIRE_CODEC(JobReport, Pb__JobReport, pb__job_report)
SOUK_WIRE_CODEC(ProviderReport, Pb__ProviderReport, pb__provider_report)
SOUK_WIRE_CODEC(OrderFailed, Pb__OrderFailed, pb__order_failed)
SOUK_WIRE_CODEC(Order, Pb__Order, pb__order)
SOUK_WIRE_CODEC(JobNote, Pb__JobNote, pb__job_note)
SOUK_WIRE_CODEC(ProviderNote, Pb__ProviderNote, pb__provider_note)
SOUK_WIRE_CODEC(Directory, Pb__Directory, pb__directory)
SOUK_WIRE_CODEC(NodeLost, Pb__NodeLost, pb__node_lost)

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
