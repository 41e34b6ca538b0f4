// SPDX-License-Identifier: GPL-2.0-or-later
// SiteEntry: a receipt that concerns two sites, as both write it (docs/sites.md): names are full,
// and a debt has a direction, so that the entries of one stay of a job say the same in both books.
// Each entry also has the newest mark of the other site's book that was known when it was written:
// who changes or drops an entry later is found out by the other's book.
//
// SiteComparison reads the entries of both books and says where they differ. Those of this site are
// what its own market says, and those of the other are claims, which may be anything. The same job
// on the same node is one stay, however often it comes there, because the two markets make their
// receipts at different moments. Pure: the hash is its caller's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "market/core/ledger.hpp"
#include "market/core/receipt_mark.hpp"

namespace souk::market {

struct SiteEntry {
    uint64_t number = 0;    // 1, 2, ... without a gap, among those between these two sites
    std::string kind;       // the receipt's (to_string)
    std::string job, node;  // full names; "-": none
    Nanos from, to, run;
    Money amount;            // `owes` owes the other so much more by it; below 0: taken back
    std::string owes;        // a site
    uint64_t id = 0;         // settlement: the number of the payer's statement
    std::string mark = "-";  // the other's book, as ReceiptMark::text; "-": none was heard
    bool operator==(const SiteEntry&) const = default;
};

// Makes the entry of a receipt of site `own`. nullopt: it does not concern that other site, whose
// account here is `account`. Number, mark and id are the caller's.
std::optional<SiteEntry> site_entry(const Receipt& receipt, std::string_view own,
                                    std::string_view other, uint32_t account);
// Fields with a tab between two of them, as receipt_text.
std::string site_entry_text(const SiteEntry& entry);
// Errors: not what site_entry_text writes.
Result<SiteEntry> parse_site_entry(std::string_view text);

// Makes the hash of an entry with that text behind the one of that hash (empty: it is the first).
using SiteHash = std::string (*)(std::string_view);
std::string next_site_hash(const std::string& head, std::string_view text, SiteHash hash);

// Reads one book, entry by entry, and makes its chain of hashes anew.
class SiteBookReader {
  public:
    // `site`: whose it is.
    SiteBookReader(std::string site, SiteHash hash) : site_(std::move(site)), hash_(hash) {}
    // Errors: it is not the next entry.
    Result<SiteEntry> read(std::string_view text);
    const ReceiptMark& newest() const { return newest_; }
    // Somebody was told of that mark. To be said before the book is read.
    void expect(const ReceiptMark& mark) { expected_.try_emplace(mark.seq, mark.head); }
    // The first mark that the book, which is at its end, does not have; nullopt: it has all.
    std::optional<uint64_t> lacks() const;

  private:
    std::string site_;
    SiteHash hash_;
    ReceiptMark newest_;
    std::map<uint64_t, std::string> expected_;
    uint64_t other_ = 0;  // the first that has another hash than was expected
};

class SiteComparison {
  public:
    // So many stays that are not in the own book are looked at.
    static constexpr size_t unknown_max = 100'000;
    // Sums and spans are equal if they differ by less than this: the two markets hear of a price at
    // different moments.
    static constexpr int64_t tolerance_permille = 10;
    static constexpr Nanos tolerance = Nanos::from_s(5);

    SiteComparison(std::string own, std::string other)
        : own_(std::move(own)), other_(std::move(other)) {}

    // Stays that are not over may lack receipts on either side, so they are not compared: those
    // of these jobs, and those with an own entry from then on (Unix time). The other's word decides
    // that only about a stay of which there is no own entry, and only up to `until`: what it says
    // to be later differs.
    void leave_open(const std::string& job) { open_.insert(job); }
    void leave_open_from(Nanos time) { open_from_ = std::min(open_from_, time); }
    void expect_until(Nanos time) { until_ = time; }

    void add_own(const SiteEntry& entry);
    // Errors: the other's book is no book, or endless.
    Status add_theirs(const SiteEntry& entry);

    struct Summary {
        size_t stays = 0, open = 0;
        Money here, there;  // the other owes this site, by each book
        // each in one line, by stays in their order; those above a bound are counted only
        std::vector<std::string> differences;
        size_t more = 0;
    };
    static constexpr size_t lines_max = 1'000;
    Summary summary() const;

  private:
    struct Side {
        bool is = false;
        Nanos to, run;
        Money amount;
        void add(const SiteEntry& entry);
        void add(const Side& other);
    };
    struct Both {
        Side own, theirs;
    };
    // The kind (of a stay: empty), job and node; who owes, a tab, and what tells others than stays
    // apart: the statement's number of a settlement, else the entry's.
    using Key = std::tuple<std::string, std::string, std::string, std::string>;
    static Key key_of(const SiteEntry& entry);
    std::optional<std::string> difference(const Key& key, const Both& both) const;
    bool is_open(const Key& key, const Both& both) const;
    std::optional<std::string> difference_of_all() const;
    Money sign(const SiteEntry& entry) const;

    std::string own_, other_;
    std::set<std::string> open_;
    Nanos open_from_ = Nanos::never(), until_ = Nanos::never();
    std::map<Key, Both> stays_;
    size_t unknown_ = 0;
    Money here_, there_;
};

}  // namespace souk::market
