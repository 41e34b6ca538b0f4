// SPDX-License-Identifier: GPL-2.0-or-later
// ReturnHistory: how it was each time that the owner of this node came back
// (agentd/core/owner_returns.hpp). It keeps the returns in the node's database, tells the market
// which promise was missed because of which job, and shows them to the owner. OwnerPresence owns it
// and says when a return begins and ends.
#pragma once

#include <string>
#include <vector>

#include "agentd/core/owner_returns.hpp"
#include "agentd/daemon/commits.hpp"
#include "agentd/daemon/market_link.hpp"
#include "kernel/sys/net/metrics_page.hpp"

namespace souk {

// The history asks OwnerPresence what guests hold now.
class GuestsInTheWay {
  public:
    virtual ~GuestsInTheWay() = default;
    virtual OwnerReturns::Guests guests_now() const = 0;
};

class ReturnHistory {
  public:
    ReturnHistory(Loop& loop, Commits& commits, MarketLink& market, const NodeName& node,
                  const GuestsInTheWay& guests)
        : loop_(loop), commits_(commits), market_(market), node_(node), guests_(guests) {}
    Status load();
    void promise(const OwnerPromise& promise) { returns_.configured(promise); }

    void began(const std::string& cause, const std::string& why);
    // Guests may hold something else than before.
    void see();
    void ended();

    // `provider-history`: the newest returns, as many as the first argument says.
    wire::CtlReply request(const wire::CtlRequest& request) const;
    std::vector<Metric> metrics() const;

  private:
    void keep(const OwnerReturns::News& news);
    void tell_missed(const OwnerReturn& now);

    Loop& loop_;
    Commits& commits_;
    MarketLink& market_;
    const NodeName& node_;
    const GuestsInTheWay& guests_;
    OwnerReturns returns_;
    OwnerReturn told_missed_;  // the market has been told what was missed of this return
    Timer timer_;
};

}  // namespace souk
