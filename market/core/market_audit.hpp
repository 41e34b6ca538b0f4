// SPDX-License-Identifier: GPL-2.0-or-later
// MarketAudit: checks what always holds of a Market's book and ledger: money is neither made nor
// lost, and the counts of nodes and users are those of their jobs. For tests. Pure.
#pragma once

#include <map>
#include <string>

#include "market/core/book.hpp"
#include "market/core/ledger.hpp"
#include "market/core/places.hpp"

namespace souk::market {

class MarketAudit {
  public:
    MarketAudit(const Book& book, const Ledger& ledger, const Places& places)
        : book_(book), ledger_(ledger), places_(places) {}

    // The first invariant that does not hold; empty if all do.
    std::string run() const;

  private:
    struct Sums {
        std::map<NodeName, std::pair<int64_t, int64_t>> used;  // CPUs, MB
        Money paid, earned;
        std::map<Holder, Money> open;  // in no receipt yet
    };
    std::string jobs(Sums& sums) const;
    std::string nodes(Sums& sums) const;
    std::string users() const;

    const Book& book_;
    const Ledger& ledger_;
    const Places& places_;
};

}  // namespace souk::market
