// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/receipts.hpp"

#include <algorithm>

#include "kernel/base/cause.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/store/sha256.hpp"
#include "market/store/records.hpp"

namespace souk {
namespace {

using market::Receipt;

constexpr size_t hash_digits = 64, key_digits = 20;
constexpr size_t step_rows = 2'000;
// Looked at for one page: about 10 ms.
constexpr size_t scan_rows_max = 4'000;

std::string first_hash() { return std::string(hash_digits, '0'); }

std::string key_of(uint64_t seq) {
    const std::string digits = std::to_string(seq);
    return std::string(key_digits - digits.size(), '0') + digits;
}

tl::unexpected<Error> bad(const std::string& key, const std::string& why) {
    return fail(
        CauseCode::unsound,
        "receipt " + key.substr(std::min(key.find_first_not_of('0'), key.size())) + ": " + why);
}

Result<ReceiptBook::Entry> parse_row(const StateDb::Row& row) {
    if (row.value.size() <= hash_digits || row.value[hash_digits] != ' ')
        return bad(row.key, "it is not one");
    auto receipt = market::parse_receipt(std::string_view(row.value).substr(hash_digits + 1));
    if (!receipt) return bad(row.key, receipt.error().message);
    if (key_of(receipt->seq) != row.key)
        return bad(row.key, "it has the number " + std::to_string(receipt->seq));
    return ReceiptBook::Entry{std::move(*receipt), row.value.substr(0, hash_digits)};
}

}  // namespace

Result<ReceiptBook> ReceiptBook::open(StateDb& db, Records& records) {
    ReceiptBook book(db, records);
    TRY_ASSIGN(const auto newest, db.before(kind_receipt, "~", 1));
    book.newest_.head = first_hash();
    if (!newest.empty()) {
        std::string_view key = newest[0].key;
        book.newest_ = {take_number<uint64_t>(key).value_or(0),
                        newest[0].value.substr(0, hash_digits)};
    }
    return book;
}

Result<std::string> ReceiptBook::hash_of(uint64_t seq) const {
    TRY_ASSIGN(const auto value, records_->get(kind_receipt, key_of(seq)));
    return value ? value->substr(0, hash_digits) : "";
}

void ReceiptBook::append(const Receipt& receipt) {
    const std::string text = receipt_text(receipt);
    newest_ = {receipt.seq, sha256_hex(newest_.head + " " + text)};
    records_->put(kind_receipt, key_of(receipt.seq), newest_.head + " " + text);
}

bool ReceiptBook::Filter::lets(const Receipt& r) const {
    const bool of_user = !uid || (r.uid == *uid && (r.moves() || !r.job.home.empty())) ||
                         (r.kind == Receipt::Kind::transfer && r.other == *uid);
    if ((job && r.job != *job) || !of_user || (node && r.node != *node) || r.to < since)
        return false;
    if (!holder) return true;
    const auto all = market::postings(r);
    return std::any_of(all.begin(), all.end(), [this](const market::Posting& p) {
        return p.holder == *holder && p.amount.micro != 0;
    });
}

Result<Money> ReceiptBook::balance(const market::Holder& holder) const {
    TRY_ASSIGN(const auto row, db_->get(kind_account, holder.text()));
    if (!row) return Money{};
    TRY_ASSIGN(const auto account, wire::unpack<market::AccountRecord>(*row));
    return account.balance;
}

Result<ReceiptBook::Page> ReceiptBook::page(const Filter& filter, uint64_t before,
                                            size_t entries_max) const {
    Page page;
    TRY_ASSIGN(const auto rows, db_->before(kind_receipt, key_of(before), scan_rows_max));
    for (const StateDb::Row& row : rows) {
        TRY_ASSIGN(Entry entry, parse_row(row));
        // Receipts are written when they end, so all that come before an older one are older. (But
        // for clocks that were set.)
        constexpr Nanos clock_slack = Nanos::from_s(86'400);
        if (filter.since.ns > INT64_MIN + clock_slack.ns &&
            entry.receipt.to < filter.since - clock_slack)
            return page;
        page.before = entry.receipt.seq;
        if (!filter.lets(entry.receipt)) continue;
        page.entries.push_back(std::move(entry));
        if (page.entries.size() == entries_max) break;
    }
    if (rows.size() < scan_rows_max && (rows.empty() || page.before == 1)) page.before.reset();
    return page;
}

Result<std::vector<StateDb::Row>> ReceiptWalk::next() const {
    auto rows = db_.after(kind_receipt, key_, step_rows);
    if (!rows)
        return wrap("receipts from " + std::to_string(check_.receipts() + 1) + " on", rows.error());
    return rows;
}

Result<Receipt> ReceiptWalk::read(const StateDb::Row& row) {
    TRY_ASSIGN(auto entry, parse_row(row));
    if (sha256_hex((head_.empty() ? first_hash() : head_) + " " +
                   row.value.substr(hash_digits + 1)) != entry.hash)
        return bad(row.key, "its hash is not that of what it says and of the one before");
    head_ = std::move(entry.hash);
    key_ = row.key;
    if (seen_.seq > 0 && seen_.seq == entry.receipt.seq && seen_.head != head_)
        return bad(row.key, "an agent has seen it with the hash " + seen_.head + ", here it has " +
                                head_ + ": this ledger has another past");
    return std::move(entry.receipt);
}

Status ReceiptWalk::reached() const {
    if (seen_.seq <= check_.receipts()) return {};
    return fail(CauseCode::unsound, "an agent has seen receipt " + std::to_string(seen_.seq) +
                                        ", and the last here is " +
                                        std::to_string(check_.receipts()) +
                                        ": this is an older state of the ledger");
}

namespace {
template <class Record>
Result<Record> record_of(const char* what, const StateDb::Row& row) {
    auto record = wire::unpack<Record>(row.value);
    if (!record) return wrap(what + row.key, record.error());
    return record;
}
}  // namespace

Result<LedgerSummary> verify_ledger(const StateDb& db, const ReceiptMark& seen) {
    std::map<JobId, std::pair<Money, market::Tab>> jobs;
    TRY_ASSIGN(const auto job_rows, db.load(kind_job));
    for (const auto& row : job_rows) {
        TRY_ASSIGN(const auto job, record_of<market::JobRecord>("the record of job ", row));
        if (job.report.id.text() != row.key)
            return fail(CauseCode::unsound,
                        "the record of job " + row.key + " is that of " + job.report.id.text());
        jobs.emplace(job.report.id, std::pair{job.account.amount, job.tab});
    }
    for (std::string key;;) {
        TRY_ASSIGN(const auto rows, db.after(kind_finished, key, step_rows));
        for (const auto& row : rows) {
            TRY_ASSIGN(const auto job,
                       record_of<market::JobRecord>("the record of finished job ", row));
            jobs.emplace(job.report.id, std::pair{job.account.amount, job.tab});
        }
        if (rows.empty()) break;
        key = rows.back().key;
    }
    std::map<market::Holder, market::AccountRecord> accounts;
    TRY_ASSIGN(const auto account_rows, db.load(kind_account));
    for (const auto& row : account_rows) {
        TRY_ASSIGN(auto account, record_of<market::AccountRecord>("the account of ", row));
        const market::Holder holder = account.holder;
        if (holder.text() != row.key)
            return fail(CauseCode::unsound,
                        "the account of " + row.key + " is that of " + holder.text());
        accounts.emplace(holder, std::move(account));
    }
    ReceiptWalk walk(db, seen);
    for (bool more = true; more;) {
        TRY_ASSIGN(more, walk.step([&](const JobId& id) { return jobs.contains(id); }));
    }
    TRY_ASSIGN(const auto meta_rows, db.load(kind_meta));
    for (const auto& row : meta_rows) {
        TRY_ASSIGN(const auto meta, record_of<market::MetaRecord>("the record of the ", row));
        if (meta.receipts != walk.check().receipts())
            return fail(CauseCode::unsound, "there are " + std::to_string(walk.check().receipts()) +
                                                " receipts, and there were " +
                                                std::to_string(meta.receipts));
    }
    TRY(walk.check().same_balances(accounts));
    TRY(walk.reached());
    for (const auto& [id, job] : jobs) TRY(walk.check().same_cost(id, job.first, job.second));
    return LedgerSummary{walk.check().receipts(),
                         accounts.size(),
                         walk.check().paid(),
                         walk.check().earned(),
                         walk.check().paid() - walk.check().earned(),
                         walk.head(),
                         db.log_missing() ? StateDb::log_missing_text(db.path()) : ""};
}

std::string ledger_json(const LedgerSummary& s) {
    JsonWriter w;
    w.begin_object()
        .field("receipts", s.receipts)
        .field("accounts", s.accounts)
        .field("paid", s.paid);
    w.field("earned", s.earned).field("market", s.market).field("head", s.head);
    if (!s.warning.empty()) w.field("warning", s.warning);
    w.end_object();
    return w.take();
}

}  // namespace souk
