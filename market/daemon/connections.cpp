// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/connections.hpp"

#include <sys/stat.h>
#include <cerrno>
#include <vector>

#include "kernel/base/node_address.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/wire/either.hpp"

namespace souk {

namespace {

// connections of marketctl at one time
constexpr UserShare::Bounds tools_bounds{.all = 256, .reserve = 32, .each = 64};
constexpr size_t tool_queue_bytes_max = wire::json_bytes_max + 64 * 1024;

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

std::string reachable(const std::string& address, const std::string& peer_host) {
    const NodeAddress own = NodeAddress::parted(address);
    return own.is_everywhere() ? own.at_host(peer_host).text() : address;
}

Status make_directory(const std::string& path) {
    for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
        const std::string part = path.substr(0, at);
        if (::mkdir(part.c_str(), 0755) < 0 && errno != EEXIST)
            return fail_errno("state directory " + part, errno);
        if (at == std::string::npos) return {};
    }
}

Connections::Connections(Loop& loop, Log& log, const MarketConfig& config, Listener& listener)
    : loop_(loop),
      log_(log),
      config_(config),
      listener_(listener),
      tools_share_(tools_bounds),
      strangers_(config.strangers) {}

bool Connections::takes_insecure() const { return tls_ && unix_now() < config_.insecure_until; }

Connection* Connections::agent(const NodeName& node) {
    const auto it = agents_.find(node);
    return it == agents_.end() ? nullptr : &all_.at(it->second);
}

size_t Connections::queue_bytes_max(const Connection& c) const {
    return c.local ? tool_queue_bytes_max : static_cast<size_t>(config_.agent_queue_mb) << 20;
}

Status Connections::listen(wire::Tls* tls) {
    tls_ = tls;
    constexpr Nanos listen_patience = Nanos::from_s(2);
    TRY_ASSIGN(const Address for_agents, Address::parse(config_.listen));
    TRY_ASSIGN(Fd tcp, listen_stream(for_agents, 1024, 0600, listen_patience));
    TRY_ASSIGN(const Address bound, Address::local(tcp.get()));
    port_ = bound.port();
    TRY_ASSIGN(const Address for_tools, Address::parse("unix:" + config_.socket));
    if (const size_t slash = config_.socket.rfind('/'); slash != std::string::npos && slash > 0)
        TRY(make_directory(config_.socket.substr(0, slash)));
    TRY_ASSIGN(Fd unix_socket, listen_stream(for_tools, 1024, 0666, listen_patience));
    const auto trouble = [this](const Error& e) {
        log_.limited("accept", Loop::now(), Level::warning, "cannot accept connections",
                     {{"WHY", e}});
    };
    const auto agent = [this](Fd fd) { accept(std::move(fd), false); };
    const auto tool = [this](Fd fd) { accept(std::move(fd), true); };
    TRY_ASSIGN(agents_listener_, loop_.listen(std::move(tcp), agent, trouble));
    TRY_ASSIGN(tools_listener_, loop_.listen(std::move(unix_socket), tool, trouble));
    return {};
}

void Connections::accept(Fd socket, bool local) {
    Connection c;
    c.local = local;
    const uint64_t number = next_number_++;
    if (!(local ? take_local(c, socket.get()) : take_stranger(number, c, socket.get()))) return;
    const Status opened = open(number, std::move(c), std::move(socket), wire::Side::acceptor,
                               local              ? wire::plain_transport()
                               : takes_insecure() ? wire::either_transport(tls_->acceptor())
                                                  : wire::acceptor(tls_));
    if (opened) return;
    strangers_.gone(number);
    refused("open", "a connection was not taken", opened.error().message);
}

Status Connections::open(uint64_t number, Connection c, Fd socket, wire::Side side,
                         std::unique_ptr<wire::Transport> transport) {
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this, number](const wire::Frame& f) { frame(number, f); };
    handlers.on_closed = [this, number](const Error& e) { closed(number, e); };
    wire::ChannelOptions options;
    options.words = wire::marketd_words;
    options.side = side;
    options.first_frame_limit = config_.hello_patience;
    options.keepalive = c.local ? Nanos{0} : config_.keepalive;
    options.send_queue_bytes_max = queue_bytes_max(c);
    TRY_ASSIGN(c.channel, wire::Channel::open(loop_, std::move(socket), std::move(handlers),
                                              options, std::move(transport)));
    all_.emplace(number, std::move(c));
    return {};
}

Result<uint64_t> Connections::add_called(Fd socket, const std::string& site,
                                         std::unique_ptr<wire::Transport> transport) {
    Connection c;
    c.kind = Connection::Kind::called;
    c.node = site;
    if (const auto peer = Address::peer(socket.get())) c.host = host_of(peer->text());
    (void)set_no_delay(socket.get());
    const uint64_t number = next_number_++;
    TRY(open(number, std::move(c), std::move(socket), wire::Side::connector, std::move(transport)));
    return number;
}

// Lets in a connection of a user of this machine, whom the kernel names.
bool Connections::take_local(Connection& c, int socket) {
    const auto cred = peer_cred(socket);
    if (!cred) {
        refused("cred", "a local connection without identity", cred.error().message);
        return false;
    }
    c.uid = cred->uid;
    auto place = tools_share_.take(c.uid);
    if (!place) {
        wire::send_last_word(socket, place.error());
        refused("room of " + std::to_string(c.uid), "a connection was not taken",
                place.error().message);
        return false;
    }
    c.place = std::move(*place);
    return true;
}

// Lets in a connection from elsewhere. An older stranger may have to go for it.
bool Connections::take_stranger(uint64_t number, Connection& c, int socket) {
    const auto peer = Address::peer(socket);
    if (!peer) return false;  // gone already
    c.host = host_of(peer->text());
    const Strangers::Taken taken = strangers_.take(number, c.host, Loop::now());
    if (taken.goes)
        drop(*taken.goes, Cause(CauseCode::too_many, "its place is wanted for a newer connection"));
    if (taken.in && !strangers_timer_.waiting()) end_strangers();
    if (!taken.in) {
        refused("room", "a connection was not taken", "too many come from " + c.host);
        return false;
    }
    (void)set_no_delay(socket);
    return true;
}

void Connections::refused(const std::string& key, std::string_view what, const std::string& why) {
    log_.limited(key.c_str(), Loop::now(), Level::warning, what, {{"WHY", why}});
}

// A channel ends by itself when nothing is said. A joiner has said who he wants to be, and may not
// wait for ever to say more.
void Connections::end_strangers() {
    const Nanos patience = config_.hello_patience + config_.hello_patience;
    while (const auto number = strangers_.since(Loop::now() - patience))
        drop(*number, Cause("it has not said in time who it is"));
    if (strangers_.size() > 0)
        strangers_timer_ = loop_.after(config_.hello_patience, [this] { end_strangers(); });
}

void Connections::frame(uint64_t number, const wire::Frame& f) {
    Connection& c = all_.at(number);
    const Status taken = listener_.frame(number, c, f);
    if (!taken) drop(number, taken.error());
}

void Connections::closed(uint64_t number, const Error& error) {
    const auto it = all_.find(number);
    if (it == all_.end()) return;
    const Connection c = std::move(it->second);
    strangers_.gone(number);
    all_.erase(it);
    if (c.kind == Connection::Kind::agent) {
        agents_.erase(c.node);
        return listener_.agent_ended(c, error);
    }
    if (c.kind == Connection::Kind::site || c.kind == Connection::Kind::called)
        return listener_.site_ended(number, c, error);
    const bool asked = c.kind == Connection::Kind::tool || c.kind == Connection::Kind::joiner;
    if (asked && error.code == 0) return;  // it has its answer
    log_.limited((c.local ? "local " : "tcp ") + std::to_string(error.code), Loop::now(),
                 Level::warning, "connection closed",
                 {{"from", c.local ? "uid " + std::to_string(c.uid) : c.host}, {"WHY", error}});
}

void Connections::drop(uint64_t number, const Cause& why) {
    const auto it = all_.find(number);
    if (it == all_.end()) return;
    it->second.channel->refuse(why);
    closed(number, Error{EPROTO, why});
}

void Connections::stop_listening() {
    agents_listener_.close();
    tools_listener_.close();
}

void Connections::finish() {
    for (auto& [number, c] : all_) c.channel->finish();
    all_.clear();
    agents_.clear();
}

}  // namespace souk
