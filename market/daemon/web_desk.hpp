// SPDX-License-Identifier: GPL-2.0-or-later
// WebDesk: answers what a souk-web asks for a user who has logged in there
// (market/core/web_sessions.hpp). Owned by Marketd.
#pragma once

#include <string>

#include "kernel/sys/host/accounts.hpp"
#include "market/core/web_sessions.hpp"
#include "market/daemon/config.hpp"
#include "market/daemon/connections.hpp"
#include "market/daemon/market_trust.hpp"
#include "market/daemon/step_taker.hpp"

namespace souk {

class WebDesk {
  public:
    WebDesk(Log& log, const MarketConfig& config, const MarketTrust& trust, ReplyQueue& replies)
        : log_(log), config_(config), trust_(trust), replies_(replies) {}

    // An error: the configured user of souk-web is none of this machine.
    Status check_user() const;
    // True: the request was about a page and is answered. Otherwise it is none of a page, or it is
    // now what the user of a session asks.
    bool answer(uint64_t number, const Connection& c, wire::CtlRequest& request);

  private:
    using Speaker = market::WebSessions::Speaker;
    Result<std::string> answered(const Speaker& who, const wire::CtlRequest& request);

    Log& log_;
    const MarketConfig& config_;
    const MarketTrust& trust_;
    ReplyQueue& replies_;
    market::WebSessions sessions_;
    SystemAccounts accounts_;
};

}  // namespace souk
