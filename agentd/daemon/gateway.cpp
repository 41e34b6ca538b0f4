// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/gateway.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <vector>

#include "agentd/core/gateway_pass.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {
namespace {

constexpr Nanos first_bytes_limit = Nanos::from_s(5), look_every = Nanos::from_s(1);
constexpr Nanos idle_limit = Nanos::from_s(86'400), half_over_limit = Nanos::from_s(60);
constexpr int mark_bytes = 4;  // tell a pass from all else

std::string host_of_peer(int socket) {
    const auto from = Address::peer(socket);
    if (!from) return "";
    const std::string text = from->text();
    return text.substr(0, text.rfind(':'));
}

// The socket is readable when so many bytes have come, and not before.
void wake_at(int socket, int bytes) {
    (void)::setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

}  // namespace

Gateway::Gateway(Loop& loop, Log& log, Peers& peers, GatewayLinks& links,
                 GatewayDesk::Bounds bounds)
    : loop_(loop), log_(log), peers_(peers), links_(links), desk_(bounds) {}

// ---- who comes

void Gateway::accepted(Fd socket) {
    const uint64_t number = next_number_++;
    const Strangers::Taken taken = strangers_.take(number, host_of_peer(socket.get()), Loop::now());
    if (taken.goes) drop(*taken.goes);
    if (!taken.in) return;
    Waiting& waiting = waiting_[number];
    waiting.socket = std::move(socket);
    wake_at(waiting.socket.get(), mark_bytes);
    waiting.limit = loop_.after(first_bytes_limit, [this, number] { drop(number); });
    auto watch =
        loop_.watch(waiting.socket.get(), POLLIN, [this, number](short) { look_at(number); });
    if (!watch) return drop(number);
    waiting.watch = std::move(*watch);
}

void Gateway::drop(uint64_t number) {
    waiting_.erase(number);
    strangers_.gone(number);
}

// A connection whose peer has closed it is readable, too.
void Gateway::look_at(uint64_t number) {
    const auto it = waiting_.find(number);
    if (it == waiting_.end()) return;
    Waiting& waiting = it->second;
    std::array<char, gateway_preamble_bytes> bytes{};
    const int socket = waiting.socket.get();
    const ssize_t there = ::recv(socket, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (there < mark_bytes) return drop(number);
    const std::string_view begins(bytes.data(), static_cast<size_t>(there));
    if (!begins.starts_with(gateway_pass_mark.substr(0, mark_bytes))) {
        wake_at(socket, 1);
        Fd peer = std::move(waiting.socket);
        waiting.watch.close();
        drop(number);
        return peers_.accepted(std::move(peer));
    }
    if (begins.size() < bytes.size()) {
        if (std::exchange(waiting.has_mark, true)) return drop(number);
        return wake_at(socket, static_cast<int>(bytes.size()));
    }
    // The bytes behind the pass are another's: they stay where they are.
    (void)::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    const auto pass = pass_of(begins);
    Fd end = std::move(waiting.socket);
    waiting.watch.close();
    drop(number);
    if (!pass) return;
    wake_at(end.get(), 1);
    sockets_.emplace(number, std::move(end));
    GatewayDesk::Outputs out;
    desk_.came(number, *pass, Loop::now(), out);
    carry_out(out);
}

// ---- nodes that offer themselves, or ask

Status Gateway::relay_up(uint64_t connection, const NodeName& name, const std::string& site) {
    return desk_.met(connection, name, site);
}

void Gateway::relay_down(uint64_t connection) {
    GatewayDesk::Outputs out;
    desk_.gone(connection, out);
    carry_out(out);
}

void Gateway::relay_cut(uint64_t connection) {
    for (const uint64_t link : desk_.relays_of(connection)) relay_ended(link);
}

Status Gateway::from_relay(uint64_t connection, const wire::Frame& frame) {
    if (frame.type == wire::frame::gateway_offer) return desk_.offered(connection);
    TRY_ASSIGN(const auto asked, wire::unpack<wire::GatewayAsk>(frame.body));
    TRY_ASSIGN(std::string called_pass, trust::random_secret(gateway_pass_bytes));
    TRY_ASSIGN(std::string asked_pass, trust::random_secret(gateway_pass_bytes));
    GatewayDesk::Outputs out;
    desk_.asked(
        connection,
        {asked.number, asked.node, asked.onward, std::move(called_pass), std::move(asked_pass)},
        Loop::now(), out);
    carry_out(out);
    return {};
}

void Gateway::carry_out(const GatewayDesk::Outputs& out) {
    for (const auto& call : out.calls)
        if (wire::Channel* const to = peers_.channel(call.connection))
            (void)to->send(wire::frame::gateway_call, wire::pack(wire::GatewayCall{call.pass}));
    for (const auto& answer : out.answers)
        if (wire::Channel* const to = peers_.channel(answer.connection))
            (void)to->send(wire::frame::gateway_answer,
                           wire::pack(wire::GatewayAnswer{answer.number, answer.pass, answer.why}));
    for (const auto& onward : out.onward)
        fetching_[onward.link] = links_.ask(
            onward.gateway, onward.node, false,
            [this, link = onward.link, at = onward.gateway](Result<Fd> socket) {
                fetching_.erase(link);
                GatewayDesk::Outputs next;
                if (socket) {
                    const uint64_t number = next_number_++;
                    sockets_.emplace(number, std::move(*socket));
                    desk_.fetched(link, number, Loop::now(), next);
                } else {
                    // Why it is not is not the asker's to know: he named the address.
                    log_.limited("onward", Loop::now(), Level::info, "a gateway is not reached",
                                 {{"at", at}, {"WHY", socket.error()}});
                    desk_.not_fetched(link, {CauseCode::away, "that gateway does not bring it"},
                                      next);
                }
                carry_out(next);
            });
    for (const uint64_t link : out.given_up)
        if (const auto it = fetching_.find(link); it != fetching_.end()) {
            links_.forget(it->second);
            fetching_.erase(it);
        }
    for (const auto& one : out.joins) join(one);
    for (const uint64_t socket : out.closed) sockets_.erase(socket);
    if (desk_.is_waiting() && !tick_.waiting()) tick();
}

void Gateway::join(const GatewayDesk::Join& join) {
    auto called = sockets_.extract(join.called), asked = sockets_.extract(join.asked);
    if (called.empty() || asked.empty()) return desk_.ended(join.link);
    auto relay = std::make_unique<Relay>(
        loop_, buffer_, std::move(asked.mapped()), std::move(called.mapped()),
        [this, link = join.link] { loop_.defer([this, link] { relay_ended(link); }); });
    const Status begun = relay->begin();
    relays_.emplace(join.link, std::move(relay));
    if (!begun) {
        log_.limited("relay", Loop::now(), Level::warning, "a connection is not relayed",
                     {{"WHY", begun.error()}});
        relay_ended(join.link);
    }
    if (!tick_.waiting()) tick();
}

void Gateway::relay_ended(uint64_t link) {
    const auto it = relays_.find(link);
    if (it == relays_.end()) return;
    bytes_ += it->second->bytes();
    relays_.erase(it);
    desk_.ended(link);
}

void Gateway::tick() {
    tick_ = loop_.after(look_every, [this] {
        GatewayDesk::Outputs out;
        desk_.look(Loop::now(), out);
        std::vector<uint64_t> idle;
        for (const auto& [link, relay] : relays_)
            if (Loop::now() - relay->moved() >=
                (relay->is_half_over() ? half_over_limit : idle_limit))
                idle.push_back(link);
        for (const uint64_t link : idle) relay_ended(link);
        carry_out(out);
        if (!relays_.empty() && !tick_.waiting()) tick();
    });
}

Gateway::Figures Gateway::figures() const {
    Figures all{desk_.figures(), bytes_};
    for (const auto& [link, relay] : relays_) all.bytes += relay->bytes();
    return all;
}

}  // namespace souk
