// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/market_records.hpp"

#include <map>
#include <utility>

#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "market/store/records.hpp"

namespace souk {

namespace {
// The record is kept under this name.
std::string key_of(const market::MetaRecord&) { return "market"; }
std::string key_of(const market::NodeRecord& r) { return r.node; }
std::string key_of(const market::JobRecord& r) { return r.report.id.text(); }
std::string key_of(const market::AccountRecord& r) { return r.holder.text(); }
std::string key_of(const market::UserRecord& r) { return std::to_string(r.uid); }
std::string key_of(const market::PriceRecord& r) { return std::to_string(r.minute); }

// Reads all records of one kind into the machine. Returns how many there are.
template <class Record>
Result<size_t> load_all(JournalDb& db, std::string_view kind, market::Market& market) {
    size_t n = 0;
    TRY(db.read_all(kind, [&](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(auto record, wire::unpack<Record>(row.value));
        if (key_of(record) != row.key) return fail("it is of " + key_of(record));
        market.load(std::move(record));
        ++n;
        return {};
    }));
    return n;
}
}  // namespace

Nanos MarketRecords::calendar() { return unix_now() - Loop::now(); }

Result<MarketRecords::Read> MarketRecords::load() {
    TRY_ASSIGN(book_, ReceiptBook::open(state_.db(), state_));
    TRY_ASSIGN(finished_, FinishedJobs::open(state_.db(), state_));
    TRY_ASSIGN(const size_t metas, load_all<market::MetaRecord>(state_, kind_meta, market_));
    if (metas == 0 && state_.is_aside(kind_meta, key_of(market::MetaRecord{})))
        market_.load(meta_again());
    TRY_ASSIGN(const size_t nodes, load_all<market::NodeRecord>(state_, kind_node, market_));
    TRY_ASSIGN(const size_t jobs, load_all<market::JobRecord>(state_, kind_job, market_));
    TRY(load_all<market::AccountRecord>(state_, kind_account, market_));
    load_lost_accounts();
    TRY(load_all<market::UserRecord>(state_, kind_user, market_));
    TRY(load_all<market::PriceRecord>(state_, kind_price, market_));
    // The newest finished jobs say how long programs take.
    TRY_ASSIGN(const auto ended, finished_->before(finished_->newest() + 1, 1'000));
    for (auto job = ended.rbegin(); job != ended.rend(); ++job) market_.learn(*job);
    usage_.emplace(state_.db(), state_);
    sites_.emplace(state_.db(), state_);
    trim_usage();
    return Read{jobs, nodes};
}

// Makes the record of the market itself from what other records say that it held. No order was
// given yet with the number of this microsecond, so orders go on from there; nothing is brought
// forward into the ledger a second time.
market::MetaRecord MarketRecords::meta_again() const {
    market::MetaRecord meta;
    meta.seq_limit = static_cast<uint64_t>((Loop::now() + calendar()).ns / 1'000);
    meta.finish_seq = finished_->newest();
    meta.ledger = meta.finished_retired = true;
    meta.receipts = book_->newest().seq;
    return meta;
}

// A balance is the sum of an account's receipts: so much of an account whose record cannot be read
// is known.
void MarketRecords::load_lost_accounts() {
    std::map<std::string, market::AccountRecord> lost;
    for (const JournalDb::SetAside& a : state_.set_aside())
        if (a.kind == kind_account) lost.emplace(a.key, market::AccountRecord{});
    if (lost.empty()) return;
    for (std::optional<uint64_t> before = UINT64_MAX; before;) {
        const auto page = book_->page({}, *before, SIZE_MAX);
        if (!page) return warnings_.add("balances are not summed up: " + page.error().message);
        for (const ReceiptBook::Entry& entry : page->entries)
            for (const market::Posting& p : market::postings(entry.receipt)) {
                const auto account = lost.find(p.holder.text());
                if (account == lost.end()) continue;
                account->second.holder = p.holder;
                account->second.balance += p.amount;
                if (entry.receipt.moves()) account->second.moved += p.amount;
            }
        before = page->before;
    }
    for (auto& [key, account] : lost)
        if (account.holder.text() == key) market_.load(std::move(account));
}

void MarketRecords::say_aside() {
    for (const JournalDb::SetAside& a : state_.set_aside())
        log_.error("a record of the state cannot be read, and is set aside",
                   {{"RECORD", a.kind + " " + a.key},
                    {"WHY", a.why},
                    {"do", "see docs/state-on-disk.md; souk doctor lists them"}});
    for (const auto& [job, address] : market_.lost_addresses())
        log_.error("two jobs have one address: the one that was submitted later has lost it",
                   {{"JOB", job.text()},
                    {"address", address.text()},
                    {"do",
                     "it stays where it runs, and its next ticket gives it no address: "
                     "cancel it, and submit it anew"}});
}

void MarketRecords::store(const std::vector<market::StoreOp>& ops) {
    for (const market::StoreOp& op : ops) {
        if (const auto* job = std::get_if<market::JobRecord>(&op)) {
            if (job->finish_seq > finished_->newest())
                sum_up(*job);  // one that is told again is summed up already
            if (job->finish_seq > 0)
                finished_->append(*job);
            else
                state_.put(kind_job, job->report.id.text(), wire::pack(*job));
        }
        if (const auto* node = std::get_if<market::NodeRecord>(&op))
            state_.put(kind_node, node->node, wire::pack(*node));
        if (const auto* account = std::get_if<market::AccountRecord>(&op))
            state_.put(kind_account, account->holder.text(), wire::pack(*account));
        if (const auto* receipt = std::get_if<market::Receipt>(&op)) {
            book_->append(*receipt);
            sites_->append(*receipt);
            sum_up(*receipt);
        }
        if (const auto* meta = std::get_if<market::MetaRecord>(&op))
            state_.put(kind_meta, "market", wire::pack(*meta));
        if (const auto* user = std::get_if<market::UserRecord>(&op))
            state_.put(kind_user, std::to_string(user->uid), wire::pack(*user));
        if (const auto* price = std::get_if<market::PriceRecord>(&op))
            state_.put(kind_price, std::to_string(price->minute), wire::pack(*price));
        if (const auto* gone = std::get_if<market::EraseNode>(&op))
            state_.erase(kind_node, gone->node);
        if (const auto* gone = std::get_if<market::ErasePrice>(&op))
            state_.erase(kind_price, std::to_string(gone->minute));
        if (const auto* gone = std::get_if<market::EraseUser>(&op))
            state_.erase(kind_user, std::to_string(gone->uid));
    }
}

template <class Record>
void MarketRecords::sum_up(const Record& record) {
    if (const Status added = usage_->add(record); !added)
        log_.limited("usage", Loop::now(), Level::error, "cannot add to the sums for reports",
                     {{"WHY", added.error()}});
}

Status MarketRecords::recall(const JobId& id) {
    if (market_.find(id)) return {};
    TRY_ASSIGN(auto known, finished_->find(id));
    if (known) market_.recall(std::move(*known));
    return {};
}

// Erases a bounded number at once, the rest soon, and those that grow too old each hour.
void MarketRecords::trim_finished() {
    constexpr size_t rows_max = 256;
    constexpr Nanos soon = Nanos::from_ms(10), later = Nanos::from_s(3'600);
    const bool by_age = config_.finished_age > Nanos{};
    const Nanos since = by_age ? Loop::now() + calendar() - config_.finished_age : Nanos{};
    const Result<bool> more = finished_->trim(config_.finished_max, since, rows_max);
    if (!more)
        log_.limited("trim", Loop::now(), Level::error, "cannot erase old finished jobs",
                     {{"WHY", more.error()}});
    const bool go_on = more && *more;
    if (go_on || by_age)
        trim_timer_ = loop_.after(go_on ? soon : later, [this] {
            trim_finished();
            steps_.wake();  // commits
        });
}

// Erases once a day, a bounded number at once.
void MarketRecords::trim_usage() {
    constexpr size_t rows_max = 256;
    constexpr Nanos soon = Nanos::from_ms(100), later = Nanos::from_s(86'400);
    const int64_t today = (Loop::now() + calendar()).ns / later.ns;
    const Result<bool> more = usage_->trim(today, rows_max);
    if (!more)
        log_.limited("usage", Loop::now(), Level::error, "cannot erase old sums for reports",
                     {{"WHY", more.error()}});
    usage_timer_ = loop_.after(more && *more ? soon : later, [this] {
        trim_usage();
        steps_.wake();  // commits
    });
}

void MarketRecords::close() {
    usage_timer_.cancel();
    trim_timer_.cancel();
}

}  // namespace souk
