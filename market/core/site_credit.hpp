// SPDX-License-Identifier: GPL-2.0-or-later
// SiteCredit: what another site and this one owe each other by the books of this one, and how far
// the other may owe more (docs/sites.md). Jobs of a peer pay from the peer's account; jobs of this
// site that run there pay the peer's nodes; settlements are booked in the peer's account. What the
// peer owes is what its account lacks less what its nodes have here.
//
// A peer that owes as much as its terms let it gets no offer, and none of its jobs comes. Those
// that are here are frozen, as a limit that they could pass on and on would bound nothing. They go
// home. Nothing of what has run is cut, so that both books keep the same sums: the debt passes the
// limit by what runs until the market looks again, and until the jobs are frozen. Pure; part of
// Market.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "market/core/book.hpp"
#include "market/core/ledger.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class SiteCredit {
  public:
    // The market looks again so often while jobs of a peer with a limit are here, at most and at
    // least.
    static constexpr Nanos look_least = Nanos::from_ms(200), look_most = Nanos::from_s(5);

    SiteCredit(Book& book, const Ledger& ledger, WorkList& work)
        : book_(book), ledger_(ledger), work_(work) {}

    // A site is a peer; `most`: it may owe so much; nullopt: without a bound. `nodes_had`: what
    // held_by_nodes was when it became one.
    void know(const std::string& site, uint32_t account, std::optional<Money> most,
              Money nodes_had);
    void forget(const std::string& site);

    // The nodes of the site have earned so much here and not been paid out.
    Money held_by_nodes(const std::string& site) const;
    // The site owes so much by the receipts; below 0: this one owes it.
    Money posted(const std::string& site) const;
    // The same with what jobs have used since.
    Money owed(const std::string& site, Nanos now) const;
    // Says why nothing more of the site may come; an empty text: it may.
    souk::Cause why_not(const std::string& site, Nanos now) const;

    // Jobs of the site run here long after it has come to its limit. The order that freezes them
    // goes to their home by way of its own market, which need not pass it on.
    bool overstays(const std::string& site, Nanos now) const;
    static constexpr Nanos leave_limit = Nanos::from_s(60);

    // Something of what peers owe, or may owe, has changed.
    void changed() { next_ = Nanos{}; }
    void look(Nanos now);
    Nanos next() const { return next_; }

  private:
    struct Peer {
        uint32_t account = 0;
        std::optional<Money> most;
        Money nodes_had;
        Nanos over_since = Nanos::never();  // with jobs that run
    };
    void set_over(uint32_t account, bool over);

    Book& book_;
    const Ledger& ledger_;
    WorkList& work_;
    std::map<std::string, Peer> peers_;
    Nanos next_ = Nanos::never();
};

}  // namespace souk::market
