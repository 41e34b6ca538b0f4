// SPDX-License-Identifier: GPL-2.0-or-later
// ReceiptBook: the market's receipts in its state database, one row each, chained: a row is the
// hash of (the hash of the row before, a blank, the receipt's text), in 64 hexadecimal digits, a
// blank, and that text. So whoever changes, adds or takes away one changes the hash of all that
// follow. They are appended to the database's next commit and never changed; none of them is kept
// in memory. Owned by whoever owns the database. Errors: the database's own, and the first receipt
// that is not what it was.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/sys/store/statedb.hpp"
#include "market/core/ledger.hpp"
#include "market/core/receipt_mark.hpp"

namespace souk {

// This is the version of the records in a market's state.db. 2: with a ledger; a database of
// version 1 is opened, and gets one. 3: finished jobs have rows of their own (finished.hpp). 4:
// receipts name decisions.
inline constexpr int market_schema_version = 4, market_schema_oldest = 1;
// Rows of these kinds are in it.
inline constexpr const char *kind_job = "job", *kind_node = "node", *kind_account = "account",
                            *kind_meta = "meta", *kind_receipt = "receipt", *kind_user = "user",
                            *kind_price = "price", *kind_finished = "finished",
                            *kind_finished_id = "finished-id", *kind_finished_of = "finished-of";

class ReceiptBook {
  public:
    // Reads the newest receipt. `db` outlives the book.
    static Result<ReceiptBook> open(StateDb& db) { return open(db, db); }
    // Writes into `records`, which end up in `db`, and outlive it too.
    static Result<ReceiptBook> open(StateDb& db, Records& records);

    void append(const market::Receipt& receipt);
    // The newest one that was appended.
    const ReceiptMark& newest() const { return newest_; }
    Result<std::string> hash_of(uint64_t seq) const;  // empty: there is no such receipt

    struct Filter {
        std::optional<JobId> job;
        std::optional<uint32_t> uid;
        std::optional<NodeName> node;
        std::optional<market::Holder> holder;  // that have an entry in this account
        Nanos since{INT64_MIN};                // Unix time: those that end then or later
        bool lets(const market::Receipt& r) const;
    };
    struct Entry {
        market::Receipt receipt;
        std::string hash;
    };
    struct Page {
        std::vector<Entry> entries;      // the newest first
        std::optional<uint64_t> before;  // more may be found before this number
    };
    // Returns the balance of an account by the receipts that are committed.
    Result<Money> balance(const market::Holder& holder) const;
    // Returns committed receipts whose number is below `before`, at most so many. It looks at a
    // bounded number of receipts, so there may be more even if the page is not full.
    Result<Page> page(const Filter& filter, uint64_t before, size_t entries_max) const;

  private:
    ReceiptBook(StateDb& db, Records& records) : db_(&db), records_(&records) {}
    StateDb* db_;
    Records* records_;
    ReceiptMark newest_;
};

// Walks over all receipts, the oldest first, a bounded number a step: checks the chain of hashes,
// and adds up sums.
class ReceiptWalk {
  public:
    // `seen` is a receipt as somebody outside has it. A different receipt in its place is an error.
    explicit ReceiptWalk(const StateDb& db, ReceiptMark seen = {})
        : db_(db), seen_(std::move(seen)) {}
    // Sums by job are kept where `of_job` says so. False: there were no more. Errors: the first bad
    // receipt, by number.
    template <class F>
    Result<bool> step(F of_job) {
        TRY_ASSIGN(const auto rows, next());
        for (const StateDb::Row& row : rows) {
            TRY_ASSIGN(const market::Receipt receipt, read(row));
            TRY(check_.add(receipt, of_job(receipt.job)));
        }
        return !rows.empty();
    }
    const market::LedgerCheck& check() const { return check_; }
    const std::string& head() const { return head_; }
    // Call it at the end. Error: `seen` has not come.
    Status reached() const;

  private:
    Result<std::vector<StateDb::Row>> next() const;
    Result<market::Receipt> read(const StateDb::Row& row);

    const StateDb& db_;
    ReceiptMark seen_;
    market::LedgerCheck check_;
    std::string head_, key_;
};

// The whole of a market's database: chain, sums, balances, and each job's cost. Errors: what is
// wrong, with its number or name.
struct LedgerSummary {
    uint64_t receipts = 0, accounts = 0;
    Money paid, earned, market;
    std::string head, warning;  // warning: all fits, and there may be more
};
Result<LedgerSummary> verify_ledger(const StateDb& db, const ReceiptMark& seen = {});
// Writes the summary as marketctl shows it (tools/common/replies.md).
std::string ledger_json(const LedgerSummary& summary);

}  // namespace souk
