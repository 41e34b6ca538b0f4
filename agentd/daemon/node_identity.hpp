// SPDX-License-Identifier: GPL-2.0-or-later
// NodeIdentity: who this node is to others: its certificate, souk-handshake, which makes the
// handshakes, and the keys that it reads tickets with. Without certificates (`insecure`) all three
// are null.
// CertificateRenewal keeps them good. It asks the market for a new certificate at half of the
// certificate's life, with the key that the node has, because the node is connected to the market
// anyway; it takes the keys that the market has revoked, and the market's new ticket keys.
// The Agent owns both.
#pragma once

#include <memory>
#include <string>

#include "agentd/daemon/config.hpp"
#include "agentd/daemon/market_link.hpp"
#include "agentd/daemon/peers.hpp"
#include "agentd/daemon/ticket_desk.hpp"
#include "agentd/handshake/handshakes.hpp"
#include "agentd/root/helper.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

class NodeIdentity {
  public:
    // An error: the certificate is another node's, or cannot be read.
    Status open(Loop& loop, Log& log, const Config& config, root::Helper& root);

    wire::Tls* tls() { return tls_.get(); }
    TicketDesk* tickets() { return tickets_.get(); }
    handshake::Handshakes* handshakes() { return handshakes_.get(); }

  private:
    std::unique_ptr<handshake::Handshakes> handshakes_;
    std::unique_ptr<wire::Tls> tls_;
    std::unique_ptr<TicketDesk> tickets_;
};

class CertificateRenewal {
  public:
    CertificateRenewal(Loop& loop, Log& log, const Config& config, NodeIdentity& identity,
                       MarketLink& market, Peers& peers)
        : loop_(loop),
          log_(log),
          config_(config),
          identity_(identity),
          market_(market),
          peers_(peers) {}
    void start() { tick(); }
    // Asks for a certificate now. An error: there is no connection to the market.
    Status renew();
    // The market has certified this node anew, has revoked keys, or signs tickets with other keys.
    void certified(const wire::Certified& certified);
    void revoked(const std::string& list);
    void ticket_keys(const wire::TicketKeys& told);
    // The market's peers are others now: their nodes may come here with jobs of theirs, and are
    // reached with jobs from here. What is not told yet after a start is nobody.
    void peer_sites(const wire::PeerSites& told);

  private:
    void tick();
    Status take(const wire::Certified& certified);
    bool taken(const Status& keys);

    Loop& loop_;
    Log& log_;
    const Config& config_;
    NodeIdentity& identity_;
    MarketLink& market_;
    Peers& peers_;
    Timer timer_;
    wire::PeerSites sites_;
    Nanos asked_anew_{INT64_MIN / 2};  // for a certificate of a new authority
};

}  // namespace souk
