// SPDX-License-Identifier: GPL-2.0-or-later
// The ledger: double entry in integer micro-units between the users, the providers, the market
// itself and what is outside of it (deposits come from there, withdrawals go there). Every posting
// is a receipt; balances are nothing but their sum. What a user pays and its provider does not earn
// is the market's: with the prices in force that is nothing, so its account stays at zero.
//
// Ledger holds the balances alone and is owned by the Market; receipts leave it to be stored
// (market/store), each in the same commit as the balances that follow from it. A Tab is the receipt
// of one job that is still open, kept in the job's record; so at any time   cost of a job = its
// receipts + its tab   and   sum of all balances = 0.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

// Whose account: the market's, a user's, a provider's, or that of all that is outside.
struct Holder {
    enum class Kind : uint8_t { market, user, node, outside } kind = Kind::market;
    uint32_t uid = 0;  // user
    NodeName node;     // node

    static Holder user(uint32_t uid) { return {Kind::user, uid, {}}; }
    static Holder provider(const NodeName& node) { return {Kind::node, 0, node}; }
    static Holder outside() { return {Kind::outside, 0, {}}; }
    auto operator<=>(const Holder&) const = default;
    std::string text() const;  // "market", "user 1000", "node n1", "outside"
};

// The users of jobs whose records were gone when the ledger was opened. No process has this uid.
inline constexpr uint32_t nobody_uid = UINT32_MAX;

// No number of the ledger may leave the range of its records (kernel/base/fields.hpp), whatever
// users bid and nodes ask. So much an account may hold or owe, and so much may be outside in all.
inline constexpr Money account_most = Money::units(250'000'000'000),
                       outside_most = Money::units(500'000'000'000);
// Says how much more an account may be charged for use that has paid `own` for it in all, where
// all accounts have paid `paid`. None gets more than it leaves to the others, so a few cannot use
// the books up: what they leave is there for accounts that have paid little.
Money room_for_use(Money own, Money paid);

struct AccountRecord {
    Holder holder;
    std::string name;  // of a user, as a home last said it
    Money balance;     // what came in less what went out: a user's falls, a provider's rises
    // of a user: the UTC day of its newest receipts, and what it has paid by those of that day
    int64_t day = -1;
    Money day_paid;
    Money moved;  // of the balance: by deposits and the like, not by use
    // of a user: its newest allowance that ends with its time, and what it has paid since
    Money granted, used;
};

// One posting. Its text is canonical: what is stored, and what the hash chain runs over.
struct Receipt {
    // opening: brought forward from before there was a ledger; those behind it move money:
    // expiry is what an allowance leaves at its end, refund what a guest pays beside its price to
    // an owner to whom it has made a promise be missed, broken what a user gets back since a
    // deadline that was promised to a job was missed (the note has the cause), settlement what
    // another site has paid this one, or this one to it, outside of both markets
    enum class Kind : uint8_t {
        use = 1,
        opening,
        deposit,
        withdrawal,
        transfer,
        payout,
        allowance,
        expiry,
        refund,
        broken,
        settlement
    };
    uint64_t seq = 0;  // 1, 2, ... without a gap
    Kind kind = Kind::use;
    JobId job;  // opening: may be none
    uint32_t uid = 0;
    std::string user;
    NodeName node;   // opening: may be none
    Nanos from, to;  // Unix time
    // that it ran and is charged for: without moves and freezes; negative: taken back
    Nanos run;
    Nanos cpu;    // CPU time that it used, as its node measured it
    Money price;  // per CPU-hour; of prices that changed within seconds the mean
    int32_t cpus = 0;
    Money paid;    // by the user
    Money earned;  // by the provider
    // The newest decisions when it was opened and when it was closed (decision_log.hpp): its prices
    // are of these and of those between them. 0: there was no log.
    uint64_t decided_from = 0, decided_to = 0;
    // The code of what the market said of the job when it was closed (reason.hpp, cause.hpp): why
    // it left the place, is there still, or has ended. Empty: a receipt of before.
    std::string reason = {};
    // The home of a job that sees its home's files has counted these for it since the last receipt:
    // sent to it, got from it, and requests.
    uint64_t files_out = 0, files_in = 0, files_requests = 0;
    bool has_files() const { return files_out > 0 || files_in > 0 || files_requests > 0; }
    // A receipt that moves money says who gets a transfer, whose word it was, and what for.
    uint32_t other = 0;
    std::string other_user = {};
    uint32_t by = 0;
    std::string note = {};
    bool moves() const { return kind > Kind::opening; }
    bool operator==(const Receipt&) const = default;
};
const char* to_string(Receipt::Kind kind);
// Fields with a tab between two of them, numbers decimal; no field holds a control character. The
// reason is left out where there is none, and the decisions where there are neither, as they are in
// receipts of before. Counts of files stand behind the reason ("-" where there is none), where
// there are any. One that moves money has behind the amounts to whom, by whom, and the note.
std::string receipt_text(const Receipt& receipt);
// Errors: not what receipt_text writes.
Result<Receipt> parse_receipt(std::string_view text);

// Its entries: they add up to nothing.
struct Posting {
    Holder holder;
    Money amount;
};
std::vector<Posting> postings(const Receipt& receipt);

// The charges of one job since its last receipt.
struct Tab {
    Nanos from, to;  // Unix time; `to` is that of the last receipt when nothing was charged since
    Nanos run;
    Money price;  // the mean, by run time
    Money amount;
    Nanos cpu;             // of the job's CPU time, what its receipts hold
    uint64_t decided = 0;  // the newest decision when it was opened
    // of what the job's files took, what its receipts hold
    uint64_t files_out = 0, files_in = 0, files_requests = 0;
    bool empty() const { return run.ns == 0 && amount.micro == 0; }
    // A stretch of `span` (negative: taken back) that ended at `now` (Unix time) and cost `cost`.
    void add(Money at_price, Nanos span, Money cost, Nanos now);
    bool operator==(const Tab&) const = default;
};

class Ledger {
  public:
    void load(AccountRecord record) {
        accounts_.insert_or_assign(record.holder, std::move(record));
    }
    void set_last(uint64_t seq) { last_ = seq; }
    // The UTC day that receipts are of from now on. `same`: the same day under another number (the
    // clock was set back).
    void set_day(int64_t day, bool same);
    uint64_t last() const { return last_; }

    // Numbers it and posts both sides.
    const Receipt& post(Receipt receipt);
    // The newest allowance of a user is of so much that ends with its time, and nothing of it is
    // used. And what is left of the one before.
    void grant(uint32_t uid, Money ends);
    Money left_of_grant(uint32_t uid) const;
    // These return what was posted, and the accounts that it changed, since this was last asked.
    std::vector<Receipt> take_posted() { return std::exchange(posted_, {}); }
    std::vector<AccountRecord> take_changed();

    const std::map<Holder, AccountRecord>& accounts() const { return accounts_; }
    Money balance(const Holder& holder) const;
    Money by_use(const Holder& holder) const;  // of the balance
    Money sum() const;                         // of all balances: 0
    Money paid_today(uint32_t uid) const;

  private:
    AccountRecord& account(const Holder& holder);
    std::map<Holder, AccountRecord> accounts_;
    std::set<Holder> changed_;
    std::vector<Receipt> posted_;
    uint64_t last_ = 0;
    int64_t day_ = -1;
};

// Adds up receipts that were read back, to compare with what the records say. The chain of hashes
// is its caller's.
class LedgerCheck {
  public:
    // The next one, in the order of their numbers. Sums by job are kept where `of_job` says so.
    // Errors: a number is missing.
    Status add(const Receipt& receipt, bool of_job);
    // Errors: the first account or job whose record says something else.
    Status same_balances(const std::map<Holder, AccountRecord>& accounts) const;
    Status same_cost(const JobId& job, Money cost, const Tab& tab) const;

    uint64_t receipts() const { return receipts_; }
    Money paid() const { return paid_; }
    Money earned() const { return earned_; }

  private:
    std::map<Holder, Money> balances_;
    std::map<JobId, Money> by_job_;
    uint64_t receipts_ = 0;
    Money paid_, earned_;
};

}  // namespace souk::market
