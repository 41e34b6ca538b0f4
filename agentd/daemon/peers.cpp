// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/peers.hpp"

#include <algorithm>
#include <vector>

#include "agentd/core/files_choice.hpp"
#include "agentd/daemon/site_border.hpp"
#include "kernel/base/check.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {
namespace {

constexpr Nanos peer_connect_limit = Nanos::from_s(3), peer_keepalive = Nanos::from_s(10);
constexpr Nanos peer_pause_min = Nanos::from_ms(50), peer_pause_max = Nanos::from_s(5);
// A connection that is lost sooner counts as another failure, so that the pauses grow.
constexpr Nanos peer_stands = Nanos::from_s(10);
// Commands to one node that wait; starts of one user among them.
constexpr size_t waiting_max = 4096, user_starts_max = waiting_max / 4;
constexpr ptrdiff_t node_connections_max = 1024;  // of one node or tool, beside its commands
// Output of many jobs may wait for one slow home; what does not fit stays in the capsules. Commands
// fill half of it, so that what is short and urgent always has room.
constexpr size_t peer_queue_bytes_max = 8 << 20, commands_bytes_max = peer_queue_bytes_max / 2;

bool begins(const GuestCommand& c) {
    return c.verb == GuestVerb::start || c.verb == GuestVerb::prepare;
}

// A plain user's starts leave room for those of others.
bool may_wait(const std::deque<GuestCommand>& waiting, const GuestCommand& command) {
    if (waiting.size() >= waiting_max) return false;
    const uint32_t uid = command.spec.launch.uid;
    if (!begins(command) || uid == 0 || waiting.size() < user_starts_max) return true;
    const auto of_user = std::ranges::count_if(
        waiting, [&](const GuestCommand& c) { return begins(c) && c.spec.launch.uid == uid; });
    return static_cast<size_t>(of_user) < user_starts_max;
}

}  // namespace

Peers::Peers(Loop& loop, Log& log, wire::Tls* tls, Ways& ways, NodeName node, std::string address)
    : loop_(loop),
      log_(log),
      tls_(tls),
      ways_(ways),
      node_(std::move(node)),
      address_(std::move(address)) {}

void Peers::serve(HomeOfPeers& home, GuestsOfPeers& guests, RemoteTools& tools) {
    home_ = &home;
    guests_ = &guests;
    tools_ = &tools;
}

// ----------------------------------------------------------------------------------------- to
// guests (outgoing)

void Peers::need(const Peer& peer) {
    Outgoing& o = outgoing_[peer.node];
    if (!peer.address.empty() && !o.channel) o.address = peer.address;
    if (!o.channel && !o.connecting && !o.retry.waiting()) connect(peer.node);
}

void Peers::command(const Peer& peer, const GuestCommand& command) {
    need(peer);
    Outgoing& o = outgoing_[peer.node];
    const bool has_room =
        o.welcomed && o.waiting.empty() && o.channel->queued() <= commands_bytes_max;
    if (has_room && deliver(peer.node, o, command)) return;
    if (!may_wait(o.waiting, command)) return home_->undelivered(peer.node, command);
    o.waiting.push_back(command);
}

// Sends what waits, in its order, as far as there is room. The rest follows when the connection has
// drained, or is undelivered when it ends.
void Peers::send_waiting(const NodeName& node) {
    Outgoing& o = outgoing_[node];
    while (o.welcomed && !o.waiting.empty() && o.channel->queued() <= commands_bytes_max &&
           deliver(node, o, o.waiting.front()))
        o.waiting.pop_front();
}

// False: it has no room for that, or is about to end.
bool Peers::deliver(const NodeName& node, Outgoing& to, const GuestCommand& command) {
    const Trouble why = begins(command) ? not_known(command.spec, to.knows) : Trouble();
    if (!why.empty()) {
        loop_.defer([this, node, command, why] { home_->guest_too_old(node, command, why); });
        return true;
    }
    const std::string body = wire::pack(command);
    if (body.size() > wire::agent_words(wire::frame_type<GuestCommand>)) {
        loop_.defer([this, node, command] { home_->undelivered(node, command); });
        return true;
    }
    return to.channel->send(wire::frame_type<GuestCommand>, body).has_value();
}

void Peers::connect(const NodeName& node) {
    Outgoing& o = outgoing_[node];
    auto connecting =
        ways_.connect({node, o.address}, peer_connect_limit,
                      [this, node](Result<Fd> socket) { connected(node, std::move(socket)); });
    if (!connecting) return lost(node, connecting.error().message);
    o.connecting = std::move(*connecting);
}

void Peers::connected(const NodeName& node, Result<Fd> socket) {
    Outgoing& o = outgoing_[node];
    o.by_gateway = o.connecting.is_by_gateway();
    o.connecting.close();
    if (!socket) return lost(node, socket.error().message);
    (void)set_no_delay(socket->get());
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this, node](const wire::Frame& f) { frame_from_guest(node, f); };
    handlers.on_closed = [this, node](const Error& e) { lost(node, e.message); };
    handlers.on_drain = [this, node] {
        home_->guest_drained(node);
        send_waiting(node);
    };
    wire::ChannelOptions options;
    options.words = wire::agent_words;
    options.side = wire::Side::connector;
    options.keepalive = peer_keepalive;
    options.send_queue_bytes_max = peer_queue_bytes_max;
    auto channel =
        wire::Channel::open(loop_, std::move(*socket), std::move(handlers), options,
                            wire::connector(tls_, trust::only(trust::Role::provider), node));
    if (!channel) return lost(node, channel.error().message);
    o.channel = std::move(*channel);
    wire::Hello hello;
    hello.role = wire::Role::agent;
    hello.node = node_;
    hello.address = address_;
    (void)o.channel->send(wire::frame::hello, wire::pack(hello));
}

void Peers::frame_from_guest(const NodeName& node, const wire::Frame& frame) {
    Outgoing& o = outgoing_[node];
    if (o.welcomed && frame.type != wire::frame::error_text) {
        const std::string_view site = of_site(node).site;
        const auto take = [&]() -> Status {
            if (site.empty()) return home_->from_guest(node, frame);
            TRY_ASSIGN(const std::string body, heard_frame(frame, site, own_site_));
            return home_->from_guest(node, {frame.type, body});
        };
        const Status taken = take();
        if (taken || is_left_out(node, frame, taken.error())) return;
        return lost(node, taken.error().message);
    }
    if (frame.type == wire::frame::error_text) {
        const auto text = wire::unpack<wire::ErrorText>(frame.body);
        return lost(node, text ? text->text : text.error().message);
    }
    const auto welcome = wire::unpack<wire::Welcome>(frame.body);
    if (!welcome) return lost(node, welcome.error().message);
    if (welcome->name != of_site(node).rest)
        return lost(node, "the agentd at " + o.address + " is " + welcome->name);
    o.welcomed = true;
    o.up_at = Loop::now();
    o.knows = welcome->knows;
    send_waiting(node);
    home_->guest_up(node);
}

// A word of one job that cannot be read: all others of that connection go on. A word of no job says
// that the other end is out of order.
bool Peers::is_left_out(const NodeName& node, const wire::Frame& frame, const Error& why) {
    if (!wire::job_named_in(frame.type, frame.body)) return false;
    log_.limited("unread " + node, Loop::now(), Level::warning, "a word of a node was left out",
                 {{"NODE", node}, {"WHY", why}});
    return true;
}

void Peers::lost(const NodeName& node, const std::string& why) {
    Outgoing& o = outgoing_[node];
    log_.limited("lost " + node, Loop::now(), Level::notice, "a guest is not reached",
                 {{"NODE", node}, {"WHY", why}});
    // Somebody else may have that address here: what waits goes by the gateway then.
    const bool unknown = o.channel && !o.welcomed && !o.channel->peer();
    const bool goes_on = unknown && ways_.failed({node, o.address}, o.by_gateway);
    o.channel.reset();
    if (goes_on) {
        o.retry = loop_.after(Nanos{}, [this, node] { connect(node); });
        return;
    }
    if (std::exchange(o.welcomed, false) && Loop::now() - o.up_at >= peer_stands) o.pause = {};
    const auto waiting = std::exchange(o.waiting, {});
    o.pause = std::clamp(Nanos{o.pause.ns * 2}, peer_pause_min, peer_pause_max);
    o.retry = loop_.after(o.pause, [this, node] {
        Outgoing& again = outgoing_[node];
        if (home_->guest_needed(node) || !again.waiting.empty())
            connect(node);
        else
            loop_.defer([this, node] { outgoing_.erase(node); });
    });
    for (const GuestCommand& c : waiting) home_->undelivered(node, c);
}

// ----------------------------------------------------------------------------------------- from
// homes (incoming)

void Peers::accept(Fd socket, const std::string& host) {
    const uint64_t number = next_number_++;
    auto in = std::make_unique<Incoming>();
    in->number = number;
    if (const auto from = Address::peer(socket.get())) in->from = from->text();
    const Strangers::Taken taken = strangers_.take(
        number, host.empty() ? in->from.substr(0, in->from.rfind(':')) : host, Loop::now());
    if (taken.goes) incoming_closed(*taken.goes);
    if (!taken.in) return;  // closed: the peer tries again
    (void)set_no_delay(socket.get());
    Incoming* raw = in.get();
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this, raw](const wire::Frame& f) { incoming_frame(*raw, f); };
    handlers.on_closed = [this, raw, number](const Error& why) {
        incoming_failed(*raw, why);
        incoming_closed(number);
    };
    handlers.on_drain = [this, raw] {
        if (raw->role == wire::Role::agent && !raw->node.empty()) guests_->home_drained(raw->node);
    };
    wire::ChannelOptions options;
    options.words = wire::agent_words;
    options.keepalive = peer_keepalive;
    options.send_queue_bytes_max = peer_queue_bytes_max;
    auto channel = wire::Channel::open(loop_, std::move(socket), std::move(handlers), options,
                                       wire::acceptor(tls_));
    if (!channel) {
        strangers_.gone(number);
        return log_.limited("peer", Loop::now(), Level::warning, "a connection was refused",
                            {{"WHY", channel.error()}});
    }
    in->channel = std::move(*channel);
    connections_.emplace(number, std::move(in));
}

// One that never said who it is.
void Peers::incoming_failed(const Incoming& in, const Error& why) {
    if (in.node.empty())
        log_.limited("stranger " + std::to_string(why.code), Loop::now(), Level::warning,
                     "a connection was closed", {{"from", in.from}, {"WHY", why}});
}

// Whether the certificate is of that name, and may do what that role does.
Status Peers::may_greet(const Incoming& in, const wire::Hello& hello, const NodeName& name) const {
    if (hello.role == wire::Role::joiner)
        return fail(CauseCode::not_allowed, "nodes join at the market");
    // Its own jobs need no ticket, and their commands come over no connection; a checkpoint of one
    // that runs at its home does.
    if (name == node_ && hello.role == wire::Role::agent)
        return fail(CauseCode::not_allowed, "the peer says it is this node");
    const bool relays = hello.role == wire::Role::relay;
    if (relays && !gateway_) return fail(CauseCode::not_possible, node_ + " is no gateway");
    if (!tls_) return {};
    const trust::Peer* const peer = in.channel->peer();
    if (!peer) return fail(CauseCode::not_allowed, "a peer without a certificate");
    if (peer->subject.name != hello.node)
        return fail(CauseCode::not_allowed, "the peer says it is " + hello.node +
                                                ", its certificate that it is " +
                                                peer->subject.name);
    const bool commands = hello.role == wire::Role::agent;
    const trust::Roles roles = peer->subject.roles;
    if (commands ? !wire::role_to_agent(roles, wire::frame::guest_command)
        : relays ? !wire::role_as_relay(roles, wire::frame::gateway_ask)
                 : !wire::role_as_source(roles, wire::frame::image_begin))
        return fail(CauseCode::not_allowed, name + " may not do that: its certificate is of a " +
                                                trust::text_of(peer->subject.roles));
    const auto& same = relays ? relays_ : incoming_;
    const auto old = same.find(name);
    if ((commands || relays) && old != same.end() && old->second->channel->peer() &&
        old->second->channel->peer()->key != peer->key)
        return fail(CauseCode::not_possible, name + " is connected already, with another key");
    return {};
}

// An operator of the market, or the owner of this node. Others have the unix socket.
Status Peers::may_ask(const Incoming& in) const {
    const trust::Peer* const peer = in.channel->peer();
    if (!peer) return fail(CauseCode::not_allowed, "tools use the unix socket of this node");
    const trust::Subject& who = peer->subject;
    if (who.roles == trust::only(trust::Role::operator_)) return {};
    if (who.roles != trust::only(trust::Role::owner))
        return fail(CauseCode::not_allowed,
                    "the certificate of " + who.name + " is of no operator and no owner");
    if (who.scope != node_)
        return fail(CauseCode::not_allowed,
                    who.name + " is the owner of " + who.scope + ", not of " + node_);
    return {};
}

Status Peers::from_tool(const Incoming& in, const wire::Frame& frame) {
    TRY_ASSIGN(auto request, wire::unpack<wire::CtlRequest>(frame.body));
    tools_->remote_request(in.number, *in.channel->peer(), std::move(request));
    return {};
}

void Peers::answer_tool(uint64_t connection, const wire::CtlReply& reply) {
    if (const auto it = connections_.find(connection); it != connections_.end())
        (void)it->second->channel->send(wire::frame::ctl_reply, wire::pack(reply));
}

void Peers::greet(Incoming& in, const wire::Frame& frame) {
    const auto refuse = [&](const Cause& why) {
        log_.limited("peer", Loop::now(), Level::warning, "a connection was refused",
                     {{"from", in.from}, {"WHY", why}});
        in.channel->refuse(why);
        incoming_closed(in.number);
    };
    const auto hello = wire::unpack<wire::Hello>(frame.body);
    if (!hello) return refuse(hello.error());
    if (const auto version = wire::check_version(hello->version, hello->program); !version)
        return refuse(version.error());
    const bool tool = hello->role == wire::Role::tool;
    if (!tool && !valid_node_name(hello->node)) return refuse("hello without a node name");
    const trust::Peer* const peer = in.channel->peer();
    const std::string site = peer && !tool ? peer->site : "";
    const NodeName name = tool && peer   ? peer->subject.name
                          : site.empty() ? hello->node
                                         : site + ":" + hello->node;
    if (const auto may = tool ? may_ask(in) : may_greet(in, *hello, name); !may)
        return refuse(may.error());
    const auto is_its = [&](const auto& other) { return other.second->node == name; };
    // A newer connection of a home takes the place of the older one.
    if (hello->role != wire::Role::agent &&
        std::ranges::count_if(connections_, is_its) >= node_connections_max)
        return refuse({CauseCode::too_many, "too many connections of " + name});
    if (hello->role == wire::Role::relay) {
        // The newest connection of a node counts, as of a home.
        if (const auto old = relays_.find(name); old != relays_.end())
            incoming_closed(old->second->number);
        if (const Status up = gateway_->relay_up(in.number, name, site); !up)
            return refuse(up.error());
        relays_[name] = &in;
    }
    in.role = hello->role;
    in.node = name;
    in.site = site;
    strangers_.gone(in.number);
    in.channel->allow(tool                           ? wire::owner_to_agent
                      : in.role == wire::Role::agent ? wire::home_to_agent
                      : in.role == wire::Role::relay ? wire::relay_to_agent
                                                     : wire::source_to_agent);
    wire::Welcome welcome{wire::protocol_version, node_, {}, true};
    welcome.knows = knows_local_paths | knows_files_snapshot | knows_own_tmp | knows_home_locks;
    (void)in.channel->send(wire::frame::welcome, wire::pack(welcome));
    if (in.role != wire::Role::agent) return;
    // The newest connection of a home counts: an older one is dead or about to be found so.
    const auto old = incoming_.find(in.node);
    const uint64_t old_number = old == incoming_.end() ? 0 : old->second->number;
    incoming_[in.node] = &in;
    if (old_number) incoming_closed(old_number);
    guests_->home_up(in.node);
}

void Peers::incoming_frame(Incoming& in, const wire::Frame& frame) {
    if (in.node.empty()) return greet(in, frame);
    const uint64_t number = in.number;
    const NodeName node = in.node;
    const auto take = [&](const wire::Frame& f) {
        return in.role == wire::Role::agent   ? guests_->from_home(node, f)
               : in.role == wire::Role::tool  ? from_tool(in, f)
               : in.role == wire::Role::relay ? gateway_->from_relay(number, f)
                                              : guests_->from_image(number, node, f);
    };
    const auto take_from_site = [&]() -> Status {
        TRY_ASSIGN(const std::string body, heard_frame(frame, in.site, own_site_));
        return take({frame.type, body});
    };
    // A name that a gateway is asked for is one of its own site, whoever asks.
    const bool plain = in.site.empty() || in.role == wire::Role::relay;
    const Status taken = plain ? take(frame) : take_from_site();
    if (taken) return;
    if (in.role == wire::Role::agent && is_left_out(node, frame, taken.error())) return;
    log_.limited("peer", Loop::now(), Level::warning, "a connection was closed",
                 {{"NODE", node}, {"WHY", taken.error()}});
    if (const auto it = connections_.find(number); it != connections_.end())
        it->second->channel->refuse(taken.error());
    incoming_closed(number);
}

void Peers::incoming_closed(uint64_t number) {
    const auto it = connections_.find(number);
    if (it == connections_.end()) return;
    const std::unique_ptr<Incoming> in = std::move(it->second);
    strangers_.gone(number);
    connections_.erase(it);
    if (const auto home = incoming_.find(in->node);
        home != incoming_.end() && home->second == in.get()) {
        incoming_.erase(home);
        guests_->home_down(in->node);
    }
    if (in->role == wire::Role::image) guests_->image_closed(number);
    if (const auto relay = relays_.find(in->node);
        relay != relays_.end() && relay->second == in.get()) {
        relays_.erase(relay);
        gateway_->relay_down(number);
    }
}

std::string Peers::realm_of(const NodeName& home) const {
    const auto in = incoming_.find(home);
    const trust::Peer* const peer = in == incoming_.end() ? nullptr : in->second->channel->peer();
    if (!peer) return "";
    return peer->site.empty() ? peer->subject.scope : peer->site;
}

void Peers::cut(const trust::Revocations& revoked) {
    end_all([&](const trust::Peer& peer) { return revoked.has(peer.key); },
            "its certificate was revoked");
}

void Peers::know_sites(const std::string& own, std::set<std::string> peers) {
    const bool renamed = std::exchange(own_site_, own) != own;
    end_all(
        [&](const trust::Peer& peer) {
            return !peer.site.empty() && (renamed || !peers.contains(peer.site));
        },
        "its site is no peer");
}

template <class Gone>
void Peers::end_all(const Gone& is_gone, const char* why) {
    ways_.cut(is_gone);
    const auto gone = [&](const wire::Channel& channel) {
        return channel.peer() && is_gone(*channel.peer());
    };
    std::vector<uint64_t> homes;
    for (const auto& [number, in] : connections_)
        if (gone(*in->channel)) homes.push_back(number);
    for (const uint64_t number : homes) {
        if (gateway_) gateway_->relay_cut(number);
        if (const auto it = connections_.find(number); it != connections_.end())
            it->second->channel->refuse(why);
        incoming_closed(number);
    }
    std::vector<NodeName> guests;
    for (const auto& [node, out] : outgoing_)
        if (out.channel && gone(*out.channel)) guests.push_back(node);
    for (const NodeName& node : guests) lost(node, why);
}

void Peers::receive_raw(uint64_t connection, std::function<void(ByteView)> on_bytes) {
    if (const auto it = connections_.find(connection); it != connections_.end())
        it->second->channel->receive_raw(std::move(on_bytes));
}

wire::Channel* Peers::channel(uint64_t connection) {
    const auto it = connections_.find(connection);
    return it == connections_.end() ? nullptr : it->second->channel.get();
}

void Peers::want_pages(uint64_t connection, const wire::PagesState& state) {
    if (const auto it = connections_.find(connection); it != connections_.end())
        (void)it->second->channel->send(wire::frame::pages_state, wire::pack(state));
}

void Peers::answer_image(uint64_t connection, const wire::ImageResult& result) {
    const auto it = connections_.find(connection);
    if (it == connections_.end()) return;
    (void)it->second->channel->send(wire::frame::image_result, wire::pack(result));
    it->second->channel->finish();
    incoming_closed(connection);
}

}  // namespace souk
