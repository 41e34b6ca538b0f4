// SPDX-License-Identifier: GPL-2.0-or-later
// SiteAccounts: money between this site and its peers (docs/sites.md): what each is told of it as a
// level (SiteAccount), the payments that operators of both agree on (SiteSettlement), the entries
// that are shown to a peer, and what people are shown of a peer. How far a peer may owe is
// market::SiteCredit's.
//
// A change is written in the commit of the receipts that are booked with it, and leaves when
// that is durable; a peer hears of it once a second at most. Owned by Marketd.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "market/core/market.hpp"
#include "market/core/site_settlement.hpp"
#include "market/daemon/market_records.hpp"
#include "market/daemon/sites.hpp"

namespace souk {

class SiteAccounts {
  public:
    SiteAccounts(Loop& loop, Log& log, market::Market& market, MarketRecords& records, Sites& sites,
                 Warnings& warnings, StepTaker& steps)
        : loop_(loop),
          log_(log),
          market_(market),
          records_(records),
          sites_(sites),
          warnings_(warnings),
          steps_(steps) {}

    // Before the peers are known. Errors: those of the database.
    Status open();
    // When all peers are known: forgets what is of others.
    void opened();
    void close();

    void peer_known(const SitePeer& peer);
    void peer_gone(const std::string& site);
    void site_up(const std::string& site);
    void describe(const std::string& site, bool money, JsonWriter& j);

    // An operator states, confirms, refuses or takes back a payment: SITE and `pay AMOUNT NOTE`,
    // `confirm AMOUNT`, `refuse` or `withdraw`.
    wire::CtlReply settle(const wire::CtlRequest& request);
    // The entries with a peer: for this site's operator (SITE), and for that peer (`asker`).
    wire::CtlReply entries(const wire::CtlRequest& request, const std::string& asker) const;

    Status heard(const Connection& c, const wire::Frame& frame);
    // Within a step, when its receipts are stored.
    void tell();

  private:
    struct Peer {
        uint32_t account = 0, number = 0;  // that of its record
        SiteSettlement settlement{};
        std::optional<SiteAccount> claim{}, said{};  // what it says; what it was told
        Nanos said_at{INT64_MIN / 2};
        bool is_changed = false, is_due = false;  // to be stored; to be told
        bool overstays = false;                   // and that is in the log
    };
    struct Counts {
        size_t guests = 0, lent = 0;
        int64_t cpus = 0;
    };
    Result<std::string> settled(const wire::CtlRequest& request);
    Result<std::string> page(const wire::CtlRequest& request, const std::string& asker,
                             std::string& next) const;
    void write_open(const std::string& site, JsonWriter& j) const;
    Status book(const std::string& site, Peer& peer, const SiteSettlement::Booking& booking);
    void changed(Peer& peer);
    void look_at_guests(const std::string& site, Peer& peer);
    void take_answer(const std::string& site, Peer& peer, const SiteAccount& word);
    void count();

    Loop& loop_;
    Log& log_;
    market::Market& market_;
    MarketRecords& records_;
    Sites& sites_;
    Warnings& warnings_;
    StepTaker& steps_;
    std::map<std::string, Peer> peers_;
    std::map<std::string, SiteSettlement> stored_;  // by key, until their peers are known
    std::map<std::string, Counts> counts_;
    Nanos counted_at_{INT64_MIN};
    Timer later_;
};

}  // namespace souk
