// SPDX-License-Identifier: GPL-2.0-or-later
// PlanDesk: the plan of what is to run where and until when, as marketctl asks for it in parts. To
// reckon one takes as long as a decision, so one result is kept for a moment for all who ask the
// same, and for those who read its parts; and one user has only so many reckoned.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "kernel/wire/messages.hpp"
#include "market/core/market.hpp"

namespace souk {

class PlanDesk {
  public:
    static constexpr Nanos kept_for = Nanos::from_s(2);   // for whoever asks the same
    static constexpr Nanos read_for = Nanos::from_s(60);  // after its last part was asked for
    static constexpr size_t kept_most = 8;
    // One user, who is not root, has at most so many reckoned in that time, and all users of a node
    // together, which says itself who they are.
    static constexpr size_t asks_most = 5, asks_node_most = 25;
    static constexpr Nanos asks_span = Nanos::from_s(10);

    // Arguments of `plan`: until=SECONDS (Unix time), off=NODE@SECONDS (that node takes nobody from
    // then on). `after` and `next`: where the list goes on. Others than its user and root do not
    // hear the name of a job. `from`: the node or the site on which its user is; empty: this one.
    wire::CtlReply answer(const market::Market& market, const wire::CtlRequest& request,
                          const std::string& from, Nanos now);
    uint64_t reckoned() const { return last_; }

  private:
    struct Kept {
        uint64_t number = 0;
        std::string words;
        Nanos made, used;
        market::MarketPlan plan;
    };
    using Asker = std::pair<std::string, uint32_t>;  // from where, and the uid
    Status may_reckon(const Asker& who, Nanos now);
    Result<const Kept*> plan_of(const market::Market& market, const wire::CtlRequest& request,
                                const Asker& who, Nanos now);
    Result<std::string> part(const market::Market& market, const wire::CtlRequest& request,
                             const Asker& who, Nanos now, std::string& next);

    std::list<Kept> kept_;  // the newest last
    uint64_t last_ = 0;
    std::map<Asker, std::deque<Nanos>> asked_;
    std::map<std::string, std::deque<Nanos>> asked_from_;
};

}  // namespace souk
