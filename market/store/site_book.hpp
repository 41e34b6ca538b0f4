// SPDX-License-Identifier: GPL-2.0-or-later
// SiteBook: for each peer, the receipts of this market that concern the two, as both sites write
// them (market/core/site_entries.hpp), chained by themselves: a row is the hash of (the hash of the
// row before, a blank, the entry's text: SiteBookReader), in 64 hexadecimal digits, a blank, the
// number of the receipt, a blank, and that text. A peer is shown these and no other receipts, and
// keeps the newest number and hash that it was told of, as this site keeps that of the peer's book.
// So neither can change, add or drop an entry that the other has heard of.
//
// Rows are appended in the commit of their receipts and never changed. The books of a peer are
// under the number of its account, which no other site gets. Owned by MarketRecords.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernel/sys/store/statedb.hpp"
#include "market/core/site_entries.hpp"
#include "market/store/receipts.hpp"

namespace souk {

inline constexpr const char* kind_site_entry = "site-entry";

class SiteBook {
  public:
    // Both outlive the book.
    SiteBook(const StateDb& db, Records& records) : db_(db), records_(records) {}

    void set_own(std::string name) { own_ = std::move(name); }
    // From now on its receipts are entered; its account has that number (market::site_account).
    Status know(const std::string& site, uint32_t account);
    void forget(const std::string& site) {
        peers_.erase(site);
        settles_.erase(site);
    }
    // The newest mark of the peer's book that this site has heard of, for the entries to come.
    void heard(const std::string& site, const std::string& mark);
    // The receipt that is posted next settles that statement (SiteStatement::id).
    void settles(const std::string& site, uint64_t id) {
        if (peers_.contains(site)) settles_[site].push_back(id);
    }

    void append(const market::Receipt& receipt);
    // The peers for which something was entered since this was last asked.
    std::set<std::string> take_changed() { return std::exchange(changed_, {}); }
    ReceiptMark newest(const std::string& site) const;

    // Whether there are entries under that account.
    Result<bool> has_book(uint32_t account) const;
    // Returns committed entries behind that number, the oldest first, at most so many: their texts.
    Result<std::vector<std::string>> after(const std::string& site, uint64_t number,
                                           size_t entries_max) const;

  private:
    struct Peer {
        uint32_t account = 0;
        ReceiptMark newest;
        std::string heard = "-";
    };
    const StateDb& db_;
    Records& records_;
    std::string own_;
    std::map<std::string, Peer> peers_;
    std::map<std::string, std::vector<uint64_t>> settles_;
    std::set<std::string> changed_;
};

}  // namespace souk
