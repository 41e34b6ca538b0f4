// SPDX-License-Identifier: GPL-2.0-or-later
// NodeQuestions: questions that only one node can answer: the home of a job (its story), or the
// node on which it runs (its load). They are passed on to that agentd, and its answer back. An
// agentd says in its hello whether it can be asked. Owned by Marketd.
#pragma once

#include <map>

#include "market/core/market.hpp"
#include "market/daemon/connections.hpp"
#include "market/daemon/market_records.hpp"
#include "market/daemon/step_taker.hpp"

namespace souk {

class NodeQuestions {
  public:
    NodeQuestions(Loop& loop, const market::Market& market, const MarketRecords& records,
                  Connections& connections)
        : loop_(loop), market_(market), records_(records), connections_(connections) {}

    // An error: the node cannot be asked, or the caller may not ask that.
    Status ask(uint64_t connection, const wire::CtlRequest& request);
    // An answer counts only from the node that was asked.
    Status answered(const NodeName& node, const wire::Frame& frame);
    void lost(const NodeName& node);
    void close() { open_.clear(); }

  private:
    struct Question {
        uint64_t connection = 0, request = 0;
        NodeName node;
        Timer limit;
    };
    Status may_ask(const wire::CtlRequest& request, const JobId& id) const;
    Result<NodeName> node_to_ask(const wire::CtlRequest& request, const JobId& id) const;
    void end(uint64_t number, wire::CtlReply reply);

    Loop& loop_;
    const market::Market& market_;
    const MarketRecords& records_;
    Connections& connections_;
    std::map<uint64_t, Question> open_;
    uint64_t next_ = 1;
};

}  // namespace souk
