// SPDX-License-Identifier: GPL-2.0-or-later
// MarketTrust: certificates of a market. It says who is a node, who gets a certificate, whose word
// counts for a user or an operator, signs tickets, and ends connections whose key is revoked. An
// agent has a certificate of its name; it passes on the questions of its own local users and
// vouches for their uid. Owned by Marketd.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel/sys/store/journal_db.hpp"
#include "kernel/trust/ticket_key.hpp"
#include "kernel/wire/tls.hpp"
#include "market/core/market.hpp"
#include "market/daemon/config.hpp"
#include "market/daemon/connections.hpp"
#include "market/daemon/enrolment.hpp"
#include "market/daemon/step_taker.hpp"

namespace souk {

class MarketTrust {
  public:
    MarketTrust(Loop& loop, Log& log, const MarketConfig& config, JournalDb& state,
                const market::Market& market, Connections& connections, ReplyQueue& replies,
                StepTaker& steps)
        : loop_(loop),
          log_(log),
          config_(config),
          state_(state),
          market_(market),
          connections_(connections),
          replies_(replies),
          steps_(steps) {}

    // Errors: the identity is missing or unusable.
    Status open();
    void close() { renew_timer_.cancel(); }
    wire::Tls* tls() const { return tls_.get(); }  // null: insecure
    // The names of the agents that are connected without a certificate.
    std::vector<NodeName> uncertified() const;

    // -- greetings: an error says why the peer may not be that

    Status is_certified(const Connection& c, const NodeName& node) const;
    Status greet_joiner(Connection& c, const wire::Hello& hello);
    Status greet_operator(Connection& c);
    // An agent has come: its certificate is noted, or that it has none.
    void met(const Connection& c, const NodeName& node);
    // A new agent hears of revocations and of the keys of tickets.
    void tell_lists(uint64_t number);

    // -- words

    // A joiner's or a renewing agent's, answered when what it changes is durable.
    Status certify(uint64_t number, const Connection& c, const wire::Frame& frame);
    void question(uint64_t number, const Connection& c, const wire::CtlRequest& request);
    // The uid of nobody, who asks in vain for what is an operator's alone.
    static constexpr uint32_t nobody = UINT32_MAX;
    // The user as whom the request is taken.
    uint32_t speaks_for(const Connection& c, const wire::CtlRequest& request) const;
    // Whether its certificate says that such a word is its business.
    static bool has_role(const Connection& c, wire::FrameType type);
    // Whether the home speaks for the user of that job. If not, the user hears why it waits. A name
    // that is another user's becomes the number.
    bool may_vouch(uint64_t number, const Connection& c, JobReport& report);
    // Orders of operators from elsewhere are on record.
    void audit(const Connection& c, const wire::CtlRequest& request, bool by_page) const;

    void give_ticket(Order& order);

  private:
    std::string why_no_job(const Connection& c, uint32_t uid) const;
    void revoked();
    void watch_insecure();
    void tell_insecure();
    void renew_own();
    void turn_ticket_keys();
    void tell_ticket_keys(uint64_t number);
    void tell_ticket_keys();

    Loop& loop_;
    Log& log_;
    const MarketConfig& config_;
    JournalDb& state_;
    const market::Market& market_;
    Connections& connections_;
    ReplyQueue& replies_;
    StepTaker& steps_;
    std::unique_ptr<wire::Tls> tls_;
    std::unique_ptr<Enrolment> enrolment_;
    std::optional<trust::TicketRing> ticket_ring_;
    // the calendar (Unix time less Loop::now()) that agents were told last
    Nanos told_calendar_;
    // nodes without a certificate: when their list was told last
    Nanos told_insecure_ = Nanos::never();
    Timer renew_timer_, insecure_timer_;
};

}  // namespace souk
