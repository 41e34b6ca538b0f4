// SPDX-License-Identifier: GPL-2.0-or-later
// ReportDesk: the sums of use that people ask for (`report`). Each is added up a piece at a time,
// for all who ask in turn, as the market stands during a piece alone. Bounded for each user and
// each node. Owned by Marketd.
#pragma once

#include <deque>

#include "market/daemon/connections.hpp"
#include "market/daemon/market_records.hpp"
#include "market/store/usage_report.hpp"

namespace souk {

class ReportDesk {
  public:
    static constexpr size_t user_most = 4, node_most = 64;  // that are under way

    ReportDesk(Loop& loop, MarketRecords& records, Connections& connections)
        : loop_(loop), records_(records), connections_(connections) {}

    // Errors: what is wrong with the words, or too many of that user or node are under way.
    Status ask(uint64_t connection, const Connection& c, const wire::CtlRequest& request);
    void close() {
        timer_.cancel();
        all_.clear();
    }

  private:
    struct Asked {
        uint64_t connection = 0, request = 0;
        NodeName from;  // the node on which its user is; empty: the market's own machine
        uint32_t uid = 0;
        UsageReport report;
    };
    void go_on();

    Loop& loop_;
    MarketRecords& records_;
    Connections& connections_;
    std::deque<Asked> all_;  // whose turn is next is the first
    Timer timer_;
};

}  // namespace souk
