// SPDX-License-Identifier: GPL-2.0-or-later
// QuoteDesk: the quotes that wait to be reckoned. One takes as long as a decision, so each step of
// the market reckons for a few milliseconds alone, for all who ask in turn. Bounded for each user
// and each node. Pure. Owned by Marketd.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"
#include "kernel/wire/messages.hpp"

namespace souk {

class QuoteDesk {
  public:
    static constexpr size_t user_most = 32, node_most = 256;  // that wait
    static constexpr Nanos step_share = Nanos::from_ms(5);

    struct Asked {
        uint64_t connection = 0;
        NodeName from;  // the node on which its user is; empty: the market's own machine
        wire::CtlRequest request;
    };
    // An error: too many of that user or node wait.
    Status take(Asked asked);
    // Has one of each user reckoned in turn, until none waits, or the clock has gone on for
    // `step_share` (one at least is reckoned). Returns whether more wait.
    bool answer(const std::function<void(const Asked&)>& reckon,
                const std::function<Nanos()>& clock);

  private:
    using Asker = std::pair<NodeName, uint32_t>;  // from where, and the uid
    std::map<Asker, std::deque<Asked>> waiting_;
    Asker last_;
};

}  // namespace souk
