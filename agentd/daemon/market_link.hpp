// SPDX-License-Identifier: GPL-2.0-or-later
// MarketLink: this node's one connection to the market, made again with a growing, jittered pause
// for as long as the daemon lives. What is sent while there is none is dropped: both halves of the
// node report everything when it is up again. Reports of jobs take half of its queue; the rest is
// for what is short. Relays the questions of marketctl and their answers, of which each user but
// root may have a share under way.
// Owned by the Agent.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "kernel/base/retry.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/wire/channel.hpp"
#include "kernel/wire/tls.hpp"
#include "market/wire/codec.hpp"

namespace souk {

// The Agent hears from the market by this.
class MarketListener {
  public:
    virtual ~MarketListener() = default;
    // The market has welcomed this node, and sees it at that address.
    virtual void market_up(const std::string& own_address) = 0;
    virtual void market_down() = 0;
    // Reports of jobs have room again, after one had none.
    virtual void market_drained() = 0;
    // An attempt to connect has ended, whatever came of it.
    virtual void market_tried() = 0;
    virtual void from_market(const FromMarket& message) = 0;
    // The market's new certificate for this node, and its newest list of revoked keys.
    virtual void certified(const wire::Certified& certified) = 0;
    virtual void revoked(const std::string& list) = 0;
    // The keys that the market signs tickets with, and its time.
    virtual void ticket_keys(const wire::TicketKeys& told) = 0;
    // Which other sites are peers of the market's.
    virtual void peer_sites(const wire::PeerSites& told) = 0;
    // The market asks this node.
    virtual wire::CtlReply market_asks(const wire::CtlRequest& request) = 0;
};

class MarketLink {
  public:
    // `tls` null: without certificates.
    MarketLink(Loop& loop, Log& log, wire::Tls* tls, NodeName node, std::string own_address,
               std::string market, MarketListener& listener);
    void start() { connect(); }

    bool connected() const { return welcomed_; }
    const std::string& market() const { return market_; }
    const std::string& trouble() const { return trouble_; }  // why it is not connected
    // False: a report of a job that has no room now (then market_drained follows).
    bool send(const ToMarket& message);
    void send(const UseReport& report);  // a market of before does not hear it
    // False: there is no connection.
    bool renew(const std::string& request);
    // `done` is called once, also when the connection breaks first or the limit passes.
    void ask(wire::CtlRequest request, std::function<void(wire::CtlReply)> done);

  private:
    struct Question {
        uint32_t uid = 0;
        std::function<void(wire::CtlReply)> done;
        Timer limit;
    };
    void connect();
    void connected(Result<Fd> socket);
    std::string told_address(const Fd& socket) const;
    Status frame(const wire::Frame& f);
    void lost(const std::string& why);
    bool may_ask(uint32_t uid) const;
    void answer(uint64_t number, wire::CtlReply reply);

    Loop& loop_;
    Log& log_;
    wire::Tls* tls_;
    NodeName node_;
    std::string own_address_, market_, trouble_ = "not connected yet";
    MarketListener& listener_;
    Connect connecting_;
    std::unique_ptr<wire::Channel> channel_;
    bool welcomed_ = false, takes_use_ = false;
    Timer retry_;
    RetryPause pause_;
    Nanos up_at_;  // when it was welcomed last
    std::map<uint64_t, Question> questions_;
    uint64_t next_question_ = 1;
};

}  // namespace souk
