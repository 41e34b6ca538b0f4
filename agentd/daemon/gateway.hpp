// SPDX-License-Identifier: GPL-2.0-or-later
// Gateway: an agentd with `relay = true` brings nodes together that do not reach each other
// (docs/sites.md). It is the shell of a GatewayDesk: it makes the passes, and holds the sockets.
//
// All comes to the port of the agentd. A connection that begins with a pass is to be relayed, and
// is taken out here before anything reads it; all others go on to Peers, where a node that proves
// who it is may greet with the role `relay`, and then offers itself or asks. This process sees of a
// relayed connection what anybody on the way sees: TLS between the two nodes.
//
// Owned by the Agent.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "agentd/core/gateway_desk.hpp"
#include "agentd/daemon/gateway_links.hpp"
#include "agentd/daemon/peers.hpp"
#include "agentd/daemon/relay.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/net/strangers.hpp"

namespace souk {

class Gateway final : public GatewayOfPeers {
  public:
    // `links`: by which it asks the gateways of other sites.
    Gateway(Loop& loop, Log& log, Peers& peers, GatewayLinks& links,
            GatewayDesk::Bounds bounds = {});
    // Takes a socket that somebody opened to this node.
    void accepted(Fd socket);

    Status relay_up(uint64_t connection, const NodeName& name, const std::string& site) override;
    void relay_down(uint64_t connection) override;
    Status from_relay(uint64_t connection, const wire::Frame& frame) override;
    void relay_cut(uint64_t connection) override;

    struct Figures {
        GatewayDesk::Figures desk;
        uint64_t bytes = 0;  // relayed since it began
    };
    Figures figures() const;

  private:
    // Somebody whose first bytes have not come yet.
    struct Waiting {
        Fd socket;
        Watch watch;
        Timer limit;
        bool has_mark = false;
    };
    void look_at(uint64_t number);
    void drop(uint64_t number);
    void carry_out(const GatewayDesk::Outputs& out);
    void join(const GatewayDesk::Join& join);
    void relay_ended(uint64_t link);
    void tick();

    Loop& loop_;
    Log& log_;
    Peers& peers_;
    GatewayLinks& links_;
    GatewayDesk desk_;
    Strangers strangers_{{}};
    std::map<uint64_t, Waiting> waiting_;
    std::map<uint64_t, Fd> sockets_;         // of ends that wait for the other one
    std::map<uint64_t, uint64_t> fetching_;  // a link, and the question to another gateway
    std::map<uint64_t, std::unique_ptr<Relay>> relays_;
    Bytes buffer_;
    Timer tick_;
    uint64_t next_number_ = 1, bytes_ = 0;
};

}  // namespace souk
