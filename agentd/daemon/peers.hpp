// SPDX-License-Identifier: GPL-2.0-or-later
// Peers: the connections between agentds. As a home, this node connects to the guests it needs
// (outgoing); as a guest, it is connected to by homes (incoming). The two never mix, so each
// direction has one owner: who connects again after a break, with a growing pause, is the home. A
// connection of role `image` is handed on at its hello.
//
// With certificates each end is who its certificate says: a home may command, a provider be
// commanded, and who greets by a name has that name's certificate and, while an older connection of
// that name stands, the same key.
//
// Nodes of other sites come and are reached likewise, as what their site's root says they are.
// Their names have their site's name before them, and what they say is read by site_border.hpp.
//
// Owned by the Agent. What is sent to a node that is not connected is lost and said so; both
// machines state levels and ask again, so nothing else is needed.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "agentd/core/messages.hpp"
#include "agentd/daemon/ways.hpp"
#include "agentd/wire/codec.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/net/strangers.hpp"
#include "kernel/wire/channel.hpp"
#include "kernel/wire/tls.hpp"

namespace souk {

// This node as a home hears by this from the guests that it is connected to.
class HomeOfPeers {
  public:
    virtual ~HomeOfPeers() = default;
    virtual void guest_up(const NodeName& node) = 0;
    virtual void undelivered(const NodeName& node, const GuestCommand& command) = 0;
    // The node has so old a version that it cannot have the job. It is not told the command.
    virtual void guest_too_old(const NodeName& node, const GuestCommand& command,
                               const Trouble& why) = 0;
    virtual Status from_guest(const NodeName& node, const wire::Frame& frame) = 0;
    virtual bool guest_needed(const NodeName& node) const = 0;
    // The connection takes data again. What did not fit into it before was lost.
    virtual void guest_drained(const NodeName& node) = 0;
};

// This node as a host of guests hears by this from the homes that are connected to it.
class GuestsOfPeers {
  public:
    virtual ~GuestsOfPeers() = default;
    virtual void home_up(const NodeName& node) = 0;
    virtual void home_down(const NodeName& node) = 0;
    virtual Status from_home(const NodeName& node, const wire::Frame& frame) = 0;
    virtual void home_drained(const NodeName& node) = 0;
    // A connection that brings an image, memory ahead of one, or files: each frame after the hello,
    // and the end.
    virtual Status from_image(uint64_t connection, const NodeName& node,
                              const wire::Frame& frame) = 0;
    virtual void image_closed(uint64_t connection) = 0;
};

// An owner or an operator on another host asks by this. Peers::answer_tool answers.
class RemoteTools {
  public:
    virtual ~RemoteTools() = default;
    virtual void remote_request(uint64_t connection, const trust::Peer& who,
                                wire::CtlRequest request) = 0;
};

// This node as a gateway hears by this from the nodes that are connected to it (role `relay`).
class GatewayOfPeers {
  public:
    virtual ~GatewayOfPeers() = default;
    // `site`: empty for this one. Errors: too many are connected.
    virtual Status relay_up(uint64_t connection, const NodeName& name, const std::string& site) = 0;
    virtual void relay_down(uint64_t connection) = 0;
    // Its key counts no more; relay_down follows.
    virtual void relay_cut(uint64_t connection) = 0;
    virtual Status from_relay(uint64_t connection, const wire::Frame& frame) = 0;
};

class Peers {
  public:
    // `tls` null: without certificates.
    Peers(Loop& loop, Log& log, wire::Tls* tls, Ways& ways, NodeName node, std::string address);
    // To be called before the first connection is taken, at a gateway.
    void relay_by(GatewayOfPeers& gateway) { gateway_ = &gateway; }
    Ways& ways() const { return ways_; }
    // Names who hears from other nodes. To be called before the first connection is made or taken.
    void serve(HomeOfPeers& home, GuestsOfPeers& guests, RemoteTools& tools);

    // A socket that somebody opened to this node.
    void accepted(Fd socket) { accept(std::move(socket), ""); }
    // The same, of a socket by which somebody is brought here: he has proven to the gateway who he
    // is, and counts apart from those who come by themselves.
    void brought(Fd socket) { accept(std::move(socket), "gateway"); }
    // Keeps a connection to that guest and sends the command when it takes it; `undelivered` if
    // none can be made, or too many wait for it.
    void command(const Peer& peer, const GuestCommand& command);
    // A connection to that guest, without a command.
    void need(const Peer& peer);

    // False if it was not queued: no connection, or its queue is full (then `*_drained` follows).
    template <class T>
    bool to_guest(const NodeName& node, const T& message) {
        const auto it = outgoing_.find(node);
        if (it == outgoing_.end() || !it->second.welcomed) return false;
        return it->second.channel->send(wire::frame_type<T>, wire::pack(message)).has_value();
    }
    template <class T>
    bool to_home(const NodeName& node, const T& message) {
        const auto it = incoming_.find(node);
        if (it == incoming_.end()) return false;
        return it->second->channel->send(wire::frame_type<T>, wire::pack(message)).has_value();
    }
    // A connection that brings an image: what follows is no frames. Then the answer; it is closed
    // after it.
    void receive_raw(uint64_t connection, std::function<void(ByteView)> on_bytes);
    // Null: it is closed.
    wire::Channel* channel(uint64_t connection);
    void close(uint64_t connection) { incoming_closed(connection); }
    void answer_image(uint64_t connection, const wire::ImageResult& result);
    // The realm whose users a connected home speaks for; empty: the market's own, or there are no
    // certificates.
    std::string realm_of(const NodeName& home) const;
    // To whoever asked, if that connection is still there.
    void answer_tool(uint64_t connection, const wire::CtlReply& reply);
    // Ends the connections of revoked keys.
    void cut(const trust::Revocations& revoked);
    // This site's name, and those of its peers: connections with nodes of all others end.
    void know_sites(const std::string& own, std::set<std::string> peers);
    void want_pages(uint64_t connection, const wire::PagesState& state);

  private:
    struct Outgoing {
        std::string address;
        Way connecting;
        std::unique_ptr<wire::Channel> channel;
        bool welcomed = false, by_gateway = false;
        uint32_t knows = 0;                // Welcome::knows
        std::deque<GuestCommand> waiting;  // for the connection, or for room in its queue
        Timer retry;
        Nanos pause, up_at;
    };
    struct Incoming {
        uint64_t number = 0;
        std::unique_ptr<wire::Channel> channel;
        wire::Role role = wire::Role::agent;
        NodeName node;     // empty before the hello; of a tool: whose it is
        std::string site;  // empty: this one
        std::string from;  // its address
    };

    void accept(Fd socket, const std::string& host);
    bool deliver(const NodeName& node, Outgoing& to, const GuestCommand& command);
    void send_waiting(const NodeName& node);
    void connect(const NodeName& node);
    void connected(const NodeName& node, Result<Fd> socket);
    void frame_from_guest(const NodeName& node, const wire::Frame& frame);
    bool is_left_out(const NodeName& node, const wire::Frame& frame, const Error& why);
    void lost(const NodeName& node, const std::string& why);
    void incoming_frame(Incoming& in, const wire::Frame& frame);
    void greet(Incoming& in, const wire::Frame& frame);
    Status may_greet(const Incoming& in, const wire::Hello& hello, const NodeName& name) const;
    template <class Gone>
    void end_all(const Gone& gone, const char* why);
    Status may_ask(const Incoming& in) const;
    Status from_tool(const Incoming& in, const wire::Frame& frame);
    void incoming_failed(const Incoming& in, const Error& why);
    void incoming_closed(uint64_t number);

    Loop& loop_;
    Log& log_;
    wire::Tls* tls_;
    Ways& ways_;
    NodeName node_;
    std::string address_, own_site_;
    HomeOfPeers* home_ = nullptr;
    GuestsOfPeers* guests_ = nullptr;
    RemoteTools* tools_ = nullptr;
    GatewayOfPeers* gateway_ = nullptr;  // null: this node is none
    std::map<NodeName, Outgoing> outgoing_;
    std::map<uint64_t, std::unique_ptr<Incoming>> connections_;
    std::map<NodeName, Incoming*> incoming_;  // the newest of each home
    std::map<NodeName, Incoming*> relays_;    // and of each node at this gateway
    Strangers strangers_{{}};
    uint64_t next_number_ = 1;
};

}  // namespace souk
