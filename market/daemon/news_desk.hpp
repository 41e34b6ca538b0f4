// SPDX-License-Identifier: GPL-2.0-or-later
// NewsDesk: this market's part in what sites tell each other of themselves and of others
// (market/core/site_news.hpp, docs/sites.md). Each second it tells some of its peers, drawn anew,
// what they lack; its own word is made every few seconds. Nothing of it is stored: a market that is
// started again has heard of all within seconds. Without peers nothing of this runs. Owned by
// Marketd.
#pragma once

#include <optional>
#include <string>

#include "market/core/market.hpp"
#include "market/core/site_news.hpp"
#include "market/daemon/sites.hpp"

namespace souk {

class NewsDesk {
  public:
    NewsDesk(Loop& loop, const MarketConfig& config, market::Market& market, Sites& sites)
        : loop_(loop), config_(config), market_(market), sites_(sites) {}
    void close() { timer_.cancel(); }

    void site_up(const std::string& site);
    // A peer tells what it has heard. Errors: it says what is no such word.
    Status heard(const Connection& c, const wire::Frame& frame);
    // Lists what is known of other sites, by name, as JSON; the next part begins after `next`.
    std::string list(const std::string& after, std::string& next);

  private:
    void tell();
    market::SiteNews& news();
    SiteWord own_word(Nanos unix) const;

    Loop& loop_;
    const MarketConfig& config_;
    market::Market& market_;
    Sites& sites_;
    std::optional<market::SiteNews> news_;  // when the name of this site is known
    Nanos said_at_{};                       // when it made its own word; 0: never
    Timer timer_;
};

}  // namespace souk
