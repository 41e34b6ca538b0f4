// SPDX-License-Identifier: GPL-2.0-or-later
// Ways: how this node connects to others. Each connection from agentd to agentd is made here: at
// once, where the node's address can be reached; else by the node's gateway, if it has one
// (docs/sites.md). The first way is tried first, for a second at most where there is another, and
// left out for ten minutes when it has failed. Who is there, TLS says afterwards, so an address
// that is somebody else's in this network has failed, too.
//
// Owned by the Agent.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "agentd/daemon/gateway_links.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "market/core/messages.hpp"

namespace souk {

// An attempt that goes on; dropping it ends the attempt.
class Way {
  public:
    Way() = default;
    Way(Way&&) noexcept = default;
    Way& operator=(Way&& other) noexcept;
    ~Way() { close(); }
    explicit operator bool() const { return attempt_ != nullptr; }
    void close();
    // Whether it has gone by the node's gateway. False after close().
    bool is_by_gateway() const;

  private:
    friend class Ways;
    struct Attempt;
    explicit Way(std::shared_ptr<Attempt> attempt) : attempt_(std::move(attempt)) {}
    std::shared_ptr<Attempt> attempt_;
};

class Ways {
  public:
    // `gateways` null: all are reached at once, or not at all.
    explicit Ways(Loop& loop, GatewayLinks* gateways = nullptr)
        : loop_(loop), gateways_(gateways) {}

    // Calls `done` once, not within this call: a connected socket, or why not. `limit` is that of
    // the way without a gateway. Errors: no address.
    Result<Way> connect(const Peer& peer, Nanos limit, std::function<void(Result<Fd>)> done);
    // A connection to that node, made that way, broke before whoever is there had proven who he is.
    // True: the next one goes by the gateway, so it may be made at once.
    bool failed(const Peer& peer, bool by_gateway);
    // Ends the connections to gateways that are so.
    void cut(const std::function<bool(const trust::Peer&)>& is_gone) {
        if (gateways_) gateways_->cut(is_gone);
    }

  private:
    friend struct Way::Attempt;
    using Key = std::pair<NodeName, std::string>;  // a node, and its address
    bool goes_by_gateway(const Key& to) const;
    void leave_out(const Key& to);

    Loop& loop_;
    GatewayLinks* gateways_;
    std::map<Key, Nanos> left_out_;  // until when the first way is not tried
};

}  // namespace souk
