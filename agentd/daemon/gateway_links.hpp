// SPDX-License-Identifier: GPL-2.0-or-later
// GatewayLinks: this node's connections to gateways (docs/sites.md). To its own, if it has one, it
// keeps one for as long as the daemon lives, made again with a growing pause: there it offers
// itself, and opens a connection back whenever it is called. To others, of its site or of another,
// it makes one when it wants to reach a node behind them, and ends it when it has not asked for a
// while.
//
// A gateway must be a node of the site whose node is asked for. It learns who asks for whom, and no
// more: on the socket that comes of it TLS begins as on any other.
//
// Owned by the Agent.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agentd/wire/codec.hpp"
#include "kernel/base/retry.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/wire/channel.hpp"
#include "kernel/wire/tls.hpp"

namespace souk {

class GatewayLinks {
  public:
    using Done = std::function<void(Result<Fd>)>;
    // `tls` null: without certificates. `own`: this node's gateway, empty if it has none. `brought`
    // gets the sockets of those who are brought to this node.
    GatewayLinks(Loop& loop, Log& log, wire::Tls* tls, NodeName node, std::string own,
                 std::function<void(Fd)> brought);
    // Connects to its own gateway.
    void start();

    // Asks that gateway for a connection with the node, and calls `done` once, not within this
    // call. Returns its number. If that gateway is not reached and `onward`, this node's own
    // gateway is asked to ask it.
    uint64_t ask(const std::string& gateway, const NodeName& node, bool onward, Done done);
    // `done` is not called any more.
    void forget(uint64_t number) { asks_.erase(number); }

    // Ends the connections to gateways that are so: a key that was revoked, a site that is no peer.
    void cut(const std::function<bool(const trust::Peer&)>& is_gone);
    bool is_offered() const;  // this node has a connection to its gateway
    const std::string& own() const { return own_; }

  private:
    struct Link {
        explicit Link(uint64_t seed);
        Connect connecting;
        std::unique_ptr<wire::Channel> channel;
        bool welcomed = false;
        std::string site;  // of the gateway, as its certificate says
        Timer retry, idle;
        RetryPause pause;
        Nanos up_at;
        std::string trouble;
    };
    struct Ask {
        std::string gateway, through;  // where the node is, and which gateway is asked
        NodeName node;
        bool may_go_onward = false, sent = false;
        Done done;
        Connect connecting;
        Timer limit;
    };

    void need(const std::string& gateway);
    void connect(const std::string& gateway);
    void connected(const std::string& gateway, Result<Fd> socket);
    void frame(const std::string& gateway, const wire::Frame& f);
    Status take(const std::string& gateway, Link& link, const wire::Frame& f);
    void welcomed(const std::string& gateway, Link& link);
    void lost(const std::string& gateway, const std::string& why);
    void send(uint64_t number, Link& link);
    void answered(const wire::GatewayAnswer& answer, const std::string& gateway);
    void called(const std::string& pass, const std::string& gateway);
    void end(uint64_t number, Result<Fd> result);
    void not_reached(uint64_t number, const std::string& why);
    void rest(const std::string& gateway);
    bool make_room();
    bool is_asked(const std::string& gateway) const;
    Result<Connect> begin_with(const std::string& gateway, const std::string& pass,
                               std::function<void(Result<Fd>)> done);

    Loop& loop_;
    Log& log_;
    wire::Tls* tls_;
    const NodeName node_;
    const std::string own_;
    std::function<void(Fd)> brought_;
    std::map<std::string, Link> links_;
    std::map<uint64_t, Ask> asks_;
    std::map<uint64_t, Connect> back_;  // to those who called
    uint64_t next_number_ = 1;
};

}  // namespace souk
