// SPDX-License-Identifier: GPL-2.0-or-later
// Answers of marketd to marketctl: one verb with its arguments to one JSON text
// (tools/common/replies.md says which keys), or one line that says why not. Pure but for what it is
// given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernel/wire/messages.hpp"
#include "market/core/market.hpp"
#include "market/store/finished.hpp"
#include "market/store/receipts.hpp"

namespace souk {

// The daemon tells this of itself, for `status`.
struct MarketFace {
    std::string name;
    std::vector<uint16_t> ports;
    std::string solver;                 // what decides now: an algorithm, or the program
    uint64_t commits = 0;               // of its records, since it started
    Nanos decision_p50, decision_p99;   // from an input to the order on its way; 0: there was none
    std::vector<std::string> warnings;  // since it started, and of programs that cannot run now
    struct Decisions {                  // of the decision log; none: there is no log
        uint64_t number = 0;
        std::string head;
        int64_t bytes = 0;
        Nanos since;          // Unix time
        std::string trouble;  // why it is not written now
    };
    std::optional<Decisions> decisions{};
    // Connected without one to a market that has certificates (insecure_until), by name.
    std::vector<NodeName> uncertified{};
};

// May change the market (cancel, move, ...): then solve() is due, and what it stores comes before
// the reply.
wire::CtlReply answer(market::Market& market, const ReceiptBook& book, const FinishedJobs& finished,
                      const wire::CtlRequest& request, const MarketFace& face, Nanos now);

}  // namespace souk
