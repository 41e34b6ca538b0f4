// SPDX-License-Identifier: GPL-2.0-or-later
// TransferPace: how often users may give money away. Each transfer is a receipt that is kept for
// good, and may make an account, so without a bound a user with one unit could fill the market's
// disk and memory a millionth at a time. Each user has a burst and then one after another, and so
// have all users of a node together, because a node says itself who they are. Root has no bound.
// Pure; whoever has gained all of his burst back is forgotten.
#pragma once

#include <map>
#include <string>

#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

class TransferPace {
  public:
    static constexpr int64_t user_burst = 1'000, node_burst = 4'000;
    static constexpr Nanos user_each = Nanos::from_s(10), node_each = Nanos::from_s(1);

    // `from`: the node on which the user is; empty: the market's own machine. False: it is one too
    // many, and counts as none.
    bool take(const NodeName& from, uint32_t uid, Nanos now);
    size_t known() const { return users_.size() + nodes_.size(); }

  private:
    // Until when the bursts are used, at the pace that they are gained back.
    std::map<uint32_t, Nanos> users_;
    std::map<NodeName, Nanos> nodes_;
    Nanos forget_at_{};
};

}  // namespace souk::market
