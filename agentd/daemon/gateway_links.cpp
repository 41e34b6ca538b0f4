// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/gateway_links.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "agentd/core/gateway_pass.hpp"
#include "kernel/base/fnv.hpp"

namespace souk {
namespace {

constexpr Nanos gateway_connect_limit = Nanos::from_s(2), gateway_keepalive = Nanos::from_s(10);
constexpr Nanos gateway_pause_min = Nanos::from_ms(100), gateway_pause_max = Nanos::from_s(5);
// A connection that is lost sooner counts as another failure, so that the pauses grow.
constexpr Nanos gateway_stands = Nanos::from_s(10);
// A gateway waits 5 s for a node that it has called.
constexpr Nanos ask_limit = Nanos::from_s(10), rests_after = Nanos::from_s(300);
constexpr size_t gateways_max = 64, asks_max = 1'024, calls_max = 64;

}  // namespace

GatewayLinks::GatewayLinks(Loop& loop, Log& log, wire::Tls* tls, NodeName node, std::string own,
                           std::function<void(Fd)> brought)
    : loop_(loop),
      log_(log),
      tls_(tls),
      node_(std::move(node)),
      own_(std::move(own)),
      brought_(std::move(brought)) {}

void GatewayLinks::start() {
    if (!own_.empty()) need(own_);
}

bool GatewayLinks::is_offered() const {
    const auto it = links_.find(own_);
    return it != links_.end() && it->second.welcomed;
}

// ---- connections

GatewayLinks::Link::Link(uint64_t seed) : pause(gateway_pause_min, gateway_pause_max, seed) {}

void GatewayLinks::need(const std::string& gateway) {
    // It differs from those of other nodes, which come back after the same break.
    const uint64_t seed = fnv1a_64(node_) ^ static_cast<uint64_t>(Loop::now().ns);
    const Link& link = links_.try_emplace(gateway, seed).first->second;
    if (!link.channel && !link.connecting && !link.retry.waiting()) connect(gateway);
}

bool GatewayLinks::is_asked(const std::string& gateway) const {
    return std::ranges::any_of(asks_, [&](const auto& a) { return a.second.through == gateway; });
}

// Another gateway can be asked. If there are too many, one goes that nobody asks now.
bool GatewayLinks::make_room() {
    if (links_.size() < gateways_max) return true;
    const auto idle = std::ranges::find_if(links_, [&](const auto& one) {
        return one.first != own_ && !one.second.connecting && !is_asked(one.first);
    });
    if (idle == links_.end()) return false;
    links_.erase(idle);
    return true;
}

void GatewayLinks::cut(const std::function<bool(const trust::Peer&)>& is_gone) {
    std::vector<std::string> gone;
    for (const auto& [gateway, link] : links_)
        if (link.channel && link.channel->peer() && is_gone(*link.channel->peer()))
            gone.push_back(gateway);
    for (const std::string& gateway : gone) lost(gateway, "it may be no gateway any more");
}

void GatewayLinks::connect(const std::string& gateway) {
    const auto begin = [&]() -> Status {
        TRY_ASSIGN(const Address address, Address::parse(gateway));
        TRY_ASSIGN(links_.at(gateway).connecting,
                   loop_.connect(address, gateway_connect_limit, [this, gateway](Result<Fd> fd) {
                       connected(gateway, std::move(fd));
                   }));
        return {};
    };
    // Whoever asks is in the middle of his own step.
    if (const Status begun = begin(); !begun)
        links_.at(gateway).retry = loop_.after(
            Nanos{}, [this, gateway, why = begun.error().message] { lost(gateway, why); });
}

void GatewayLinks::connected(const std::string& gateway, Result<Fd> socket) {
    Link& link = links_.at(gateway);
    link.connecting.close();
    if (!socket) return lost(gateway, socket.error().message);
    (void)set_no_delay(socket->get());
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this, gateway](const wire::Frame& f) { frame(gateway, f); };
    handlers.on_closed = [this, gateway](const Error& e) { lost(gateway, e.message); };
    wire::ChannelOptions options;
    options.words = wire::agent_words;
    options.side = wire::Side::connector;
    options.keepalive = gateway_keepalive;
    auto channel = wire::Channel::open(loop_, std::move(*socket), std::move(handlers), options,
                                       wire::connector(tls_, trust::node_roles, ""));
    if (!channel) return lost(gateway, channel.error().message);
    link.channel = std::move(*channel);
    wire::Hello hello;
    hello.role = wire::Role::relay;
    hello.node = node_;
    (void)link.channel->send(wire::frame::hello, wire::pack(hello));
}

void GatewayLinks::frame(const std::string& gateway, const wire::Frame& f) {
    if (const Status taken = take(gateway, links_.at(gateway), f); !taken)
        lost(gateway, taken.error().message);
}

Status GatewayLinks::take(const std::string& gateway, Link& link, const wire::Frame& f) {
    if (f.type == wire::frame::error_text) {
        TRY_ASSIGN(const auto text, wire::unpack<wire::ErrorText>(f.body));
        return fail("the gateway says: " + text.text);
    }
    if (!link.welcomed) {
        if (f.type != wire::frame::welcome) return fail("a gateway that does not greet");
        TRY_ASSIGN(const auto welcome, wire::unpack<wire::Welcome>(f.body));
        TRY(wire::check_version(welcome.version, welcome.program));
        link.site = link.channel->peer() ? link.channel->peer()->site : "";
        if (gateway == own_ && !link.site.empty())
            return fail("this node's gateway is a node of site " + link.site);
        welcomed(gateway, link);
        return {};
    }
    if (f.type == wire::frame::gateway_answer) {
        TRY_ASSIGN(const auto answer, wire::unpack<wire::GatewayAnswer>(f.body));
        answered(answer, gateway);
        return {};
    }
    if (f.type == wire::frame::gateway_call && gateway == own_) {
        TRY_ASSIGN(const auto call, wire::unpack<wire::GatewayCall>(f.body));
        called(call.pass, gateway);
        return {};
    }
    return fail("a gateway does not send frames of type " +
                std::to_string(static_cast<int>(f.type)));
}

void GatewayLinks::welcomed(const std::string& gateway, Link& link) {
    link.welcomed = true;
    link.up_at = Loop::now();
    link.trouble.clear();
    if (gateway == own_) {
        (void)link.channel->send(wire::frame::gateway_offer, wire::pack(wire::GatewayOffer{}));
        log_.info("this node is reached through its gateway", {{"at", gateway}});
    }
    std::vector<uint64_t> waiting;
    for (const auto& [number, ask] : asks_)
        if (ask.through == gateway && !ask.sent) waiting.push_back(number);
    // Whoever is told of a failure may ask again, and another link may go for that.
    for (const uint64_t number : waiting)
        if (const auto it = links_.find(gateway); it != links_.end()) send(number, it->second);
    rest(gateway);
}

// Ends the connection when nothing is asked any more.
void GatewayLinks::rest(const std::string& gateway) {
    const auto it = links_.find(gateway);
    if (gateway == own_ || it == links_.end()) return;
    it->second.idle = loop_.after(rests_after, [this, gateway] {
        loop_.defer([this, gateway] {
            if (!links_.contains(gateway)) return;
            if (is_asked(gateway)) return rest(gateway);
            links_.erase(gateway);
        });
    });
}

void GatewayLinks::lost(const std::string& gateway, const std::string& why) {
    const auto it = links_.find(gateway);
    if (it == links_.end()) return;
    Link& link = it->second;
    if (link.trouble != why)
        log_.limited("gateway " + gateway, Loop::now(), Level::notice, "a gateway is not reached",
                     {{"at", gateway}, {"WHY", why}});
    link.trouble = why;
    if (std::exchange(link.welcomed, false) && Loop::now() - link.up_at >= gateway_stands)
        link.pause.reset();
    link.channel.reset();
    // Another one is tried again when it is asked again, and not at once.
    link.idle.cancel();
    link.retry = loop_.after(link.pause.next(), [this, gateway] {
        if (gateway == own_) return connect(gateway);
        loop_.defer([this, gateway] {
            const auto idle = links_.find(gateway);
            if (idle != links_.end() && !idle->second.channel && !idle->second.connecting)
                links_.erase(idle);
        });
    });
    std::vector<uint64_t> failed;
    for (const auto& [number, ask] : asks_)
        if (ask.through == gateway && !ask.connecting) failed.push_back(number);
    for (const uint64_t number : failed) not_reached(number, why);
}

// ---- a node behind a gateway

uint64_t GatewayLinks::ask(const std::string& gateway, const NodeName& node, bool onward,
                           Done done) {
    const uint64_t number = next_number_++;
    const bool full = asks_.size() >= asks_max || (!links_.contains(gateway) && !make_room());
    Ask& ask = asks_[number];
    ask.gateway = ask.through = gateway;
    ask.node = node;
    ask.may_go_onward = onward && !own_.empty() && gateway != own_;
    ask.done = std::move(done);
    if (full) {
        ask.sent = true;
        ask.limit = loop_.after(
            Nanos{}, [this, number] { end(number, fail("too many gateways are asked already")); });
        return number;
    }
    ask.limit = loop_.after(ask_limit,
                            [this, number] { end(number, fail("the gateway does not answer")); });
    need(gateway);
    Link& link = links_.at(gateway);
    if (link.welcomed)
        loop_.defer([this, number, gateway] {
            const auto it = links_.find(gateway);
            if (it != links_.end() && it->second.welcomed) send(number, it->second);
        });
    else if (link.retry.waiting())  // it was tried a moment ago
        loop_.defer([this, number, why = link.trouble] { not_reached(number, why); });
    return number;
}

void GatewayLinks::send(uint64_t number, Link& link) {
    const auto it = asks_.find(number);
    if (it == asks_.end() || it->second.sent) return;
    Ask& ask = it->second;
    const bool is_onward = ask.through != ask.gateway;
    const OfSite named = of_site(ask.node);
    if (tls_ && !is_onward && named.site != link.site)
        return end(number, fail("the gateway " + ask.gateway + " of " + ask.node + " is of " +
                                (link.site.empty() ? "this site" : "site " + link.site)));
    const wire::GatewayAsk words{number, is_onward ? ask.node : NodeName(named.rest),
                                 is_onward ? ask.gateway : ""};
    ask.sent = true;
    if (const auto sent = link.channel->send(wire::frame::gateway_ask, wire::pack(words)); !sent)
        end(number, tl::unexpected(sent.error()));
}

// Its own gateway may reach it.
void GatewayLinks::not_reached(uint64_t number, const std::string& why) {
    const auto it = asks_.find(number);
    if (it == asks_.end()) return;
    Ask& ask = it->second;
    if (!std::exchange(ask.may_go_onward, false))
        return end(number, fail("its gateway " + ask.through + " is not reached: " + why));
    const auto own = links_.find(own_);
    if (own == links_.end() || !own->second.welcomed)
        return end(number, fail("its gateway " + ask.gateway + " is not reached: " + why));
    ask.through = own_;
    ask.sent = false;
    send(number, own->second);
}

void GatewayLinks::answered(const wire::GatewayAnswer& answer, const std::string& gateway) {
    const auto it = asks_.find(answer.number);
    if (it == asks_.end() || it->second.through != gateway || !it->second.sent) return;
    const uint64_t number = answer.number;
    if (!is_gateway_pass(answer.pass))
        return end(number, fail("its gateway says: " +
                                (answer.why.empty() ? "nothing" : std::string(answer.why))));
    auto connecting = begin_with(gateway, answer.pass, [this, number](Result<Fd> socket) {
        end(number, std::move(socket));
    });
    if (!connecting) return end(number, tl::unexpected(connecting.error()));
    it->second.connecting = std::move(*connecting);
}

void GatewayLinks::end(uint64_t number, Result<Fd> result) {
    const auto it = asks_.find(number);
    if (it == asks_.end()) return;
    const Ask ask = std::move(it->second);
    asks_.erase(it);
    ask.done(std::move(result));
}

// ---- this node is wanted

void GatewayLinks::called(const std::string& pass, const std::string& gateway) {
    if (!is_gateway_pass(pass) || back_.size() >= calls_max)
        return log_.limited("called", Loop::now(), Level::warning,
                            "this node does not come when its gateway calls it",
                            {{"WHY", "too many calls, or no pass"}});
    const uint64_t number = next_number_++;
    auto connecting = begin_with(gateway, pass, [this, number](Result<Fd> socket) {
        back_.erase(number);
        if (socket) return brought_(std::move(*socket));
        log_.limited("called", Loop::now(), Level::warning,
                     "this node does not come when its gateway calls it",
                     {{"WHY", socket.error()}});
    });
    if (connecting) back_.emplace(number, std::move(*connecting));
}

// Connects, and says the pass: a socket that was just connected takes so few bytes at once.
Result<Connect> GatewayLinks::begin_with(const std::string& gateway, const std::string& pass,
                                         std::function<void(Result<Fd>)> done) {
    TRY_ASSIGN(const Address address, Address::parse(gateway));
    return loop_.connect(
        address, gateway_connect_limit, [pass, done = std::move(done)](Result<Fd> socket) {
            if (!socket) return done(std::move(socket));
            const std::string words = gateway_preamble(pass);
            const ssize_t sent =
                ::send(socket->get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent != static_cast<ssize_t>(words.size()))
                return done(fail_errno("begin a relayed connection", errno));
            done(std::move(socket));
        });
}

}  // namespace souk
