// SPDX-License-Identifier: GPL-2.0-or-later
// MarketLink: this node's one connection to the market, made again with a growing, jittered pause
// for as long as the daemon lives. What is sent while there is none is dropped: both halves of the
// node report everything when it is up again. Relays the questions of marketctl and their answers.
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

class MarketLink {
  public:
    struct Handlers {
        std::function<void(const std::string& own_address)> up;
        std::function<void()> down;
        std::function<void()> tried;  // after every attempt, whatever came of it
        std::function<void(const FromMarket&)> message;
        // the market's new certificate for this node, and its newest list of revoked keys
        std::function<void(const wire::Certified&)> certified;
        std::function<void(const std::string& list)> revoked;
        // the keys that it signs tickets with, and its time
        std::function<void(const wire::TicketKeys&)> ticket_keys;
        // that the market asks this node
        std::function<wire::CtlReply(const wire::CtlRequest&)> question;
    };
    // `tls` null: without certificates.
    MarketLink(Loop& loop, Log& log, wire::Tls* tls, NodeName node, std::string own_address,
               std::string market, Handlers handlers);
    void start() { connect(); }

    bool connected() const { return welcomed_; }
    const std::string& market() const { return market_; }
    const std::string& trouble() const { return trouble_; }  // why it is not connected
    void send(const ToMarket& message);
    void send(const UseReport& report);  // a market of before does not hear it
    // False: there is no connection.
    bool renew(const std::string& request);
    // `done` is called once, also when the connection breaks first or the limit passes.
    void ask(wire::CtlRequest request, std::function<void(wire::CtlReply)> done);

  private:
    struct Question {
        std::function<void(wire::CtlReply)> done;
        Timer limit;
    };
    void connect();
    void connected(Result<Fd> socket);
    Status frame(const wire::Frame& f);
    void lost(const std::string& why);
    void answer(uint64_t number, wire::CtlReply reply);

    Loop& loop_;
    Log& log_;
    wire::Tls* tls_;
    NodeName node_;
    std::string own_address_, market_, trouble_ = "not connected yet";
    Handlers handlers_;
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
