// SPDX-License-Identifier: GPL-2.0-or-later
// NodeQuestions: questions that only one node can answer: the home of a job (its story), or the
// node on which it runs (its load). They are passed on to that agentd, and its answer back. An
// agentd says in its hello whether it can be asked. Owned by Marketd.
#pragma once

#include <cstdint>
#include <string>

#include "market/core/market.hpp"
#include "market/daemon/connections.hpp"
#include "market/daemon/market_records.hpp"
#include "market/daemon/relayed_questions.hpp"

namespace souk {

class NodeQuestions {
  public:
    NodeQuestions(Loop& loop, const market::Market& market, const MarketRecords& records,
                  Connections& connections)
        : market_(market),
          records_(records),
          connections_(connections),
          relayed_(loop, connections, each_max, user_max) {}

    // An error: the node cannot be asked, or the caller may not ask that.
    Status ask(uint64_t connection, const wire::CtlRequest& request);
    // An answer counts only from the node that was asked.
    Status answered(const NodeName& node, const wire::Frame& frame);
    void lost(const NodeName& node) { relayed_.lost(said_of(node)); }
    void close() { relayed_.close(); }

  private:
    // One node that answers nothing, or one user, leaves the others theirs.
    static constexpr size_t each_max = 64, user_max = 16;

    static std::string said_of(const NodeName& node) { return "node " + node; }
    Status may_ask(const wire::CtlRequest& request, const JobId& id) const;
    Result<NodeName> node_to_ask(const wire::CtlRequest& request, const JobId& id) const;

    const market::Market& market_;
    const MarketRecords& records_;
    Connections& connections_;
    RelayedQuestions relayed_;
};

}  // namespace souk
