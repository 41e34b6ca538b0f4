// SPDX-License-Identifier: GPL-2.0-or-later
// OperatorWaits: operators who gave an order by hand and wait for what becomes of it. Owned by
// Marketd.
#pragma once

#include <vector>

#include "market/core/market.hpp"
#include "market/daemon/connections.hpp"
#include "market/daemon/step_taker.hpp"

namespace souk {

class OperatorWaits {
  public:
    OperatorWaits(Loop& loop, const market::Market& market, Connections& connections)
        : loop_(loop), market_(market), connections_(connections) {}

    // The arguments: ID, NODE or -, freeze or run; the failures and, of a freeze, the freezes,
    // otherwise the migrations that the order's answer said; how many milliseconds at most. An
    // error: the caller may not wait, or too many do.
    Status await(uint64_t connection, const wire::CtlRequest& request);
    // Answers those whose order has an end or whose time is over. To be called when what came in is
    // decided and durable.
    void answer();
    void close() { timer_.cancel(); }

  private:
    struct Waiter {
        uint64_t connection = 0, request = 0;
        uint32_t uid = 0;
        JobId job;
        NodeName node;
        bool freezes = false;
        uint64_t failures = 0, before = 0;
        Nanos deadline, answer_at;
        Nanos limit;
    };
    Cause moved_on(const Waiter& w, const Cause& over) const;

    Loop& loop_;
    const market::Market& market_;
    Connections& connections_;
    std::vector<Waiter> waiters_;
    Timer timer_;
};

}  // namespace souk
