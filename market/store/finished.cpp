// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/finished.hpp"

#include <map>

#include "kernel/base/number.hpp"
#include "market/store/receipts.hpp"
#include "market/store/records.hpp"

namespace souk {
namespace {

constexpr size_t number_digits = 20, look_rows = 1'000;

std::string padded(uint64_t n) {
    std::string text = std::to_string(n);
    return std::string(number_digits - text.size(), '0') + text;
}

// Makes keys in the order of JobId: a blank comes before all that a node's name may hold.
std::string index_key(const JobId& id) { return id.home + " " + padded(id.seq); }

Result<uint64_t> number(std::string_view text) {
    if (const auto n = whole_number<uint64_t>(text)) return *n;
    return fail("'" + std::string(text) + "' is not the number of a finished job");
}

Result<market::JobRecord> parse(const std::string& key, const std::string& value) {
    auto record = wire::unpack<market::JobRecord>(value);
    if (!record) return wrap("the record of finished job " + key, record.error());
    return record;
}

// Begins the keys of the rows of that share, which stand in the order of their numbers.
std::string share_prefix(const FinishedShares::Owner& owner) {
    return owner.home + " " + padded(owner.uid) + " ";
}

struct Share {
    FinishedShares::Owner owner;
    uint64_t number = 0;
};

std::optional<Share> parse_share(std::string_view key) {
    constexpr size_t behind = 2 * (number_digits + 1);
    if (key.size() <= behind) return std::nullopt;
    const size_t at = key.size() - behind;
    const auto uid = whole_number<uint32_t>(key.substr(at + 1, number_digits));
    const auto number = whole_number<uint64_t>(key.substr(at + 2 + number_digits));
    if (key[at] != ' ' || !uid || !number) return std::nullopt;
    return Share{{std::string(key.substr(0, at)), *uid}, *number};
}

// Returns committed rows of that share that no commit on its way erases, the newest of them first.
Result<std::vector<StateDb::Row>> oldest_of(const StateDb& db, const Records& records,
                                            const std::string& prefix, size_t rows_max) {
    std::vector<StateDb::Row> oldest;
    for (std::string key = prefix; oldest.empty();) {
        TRY_ASSIGN(auto rows, db.after(kind_finished_of, key, rows_max));
        const bool last = rows.size() < rows_max;
        if (!rows.empty()) key = rows.back().key;
        for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
            if (!row->key.starts_with(prefix)) continue;
            TRY_ASSIGN(const auto there, records.get(kind_finished_of, row->key));
            if (there) oldest.push_back(std::move(*row));
        }
        if (last || !key.starts_with(prefix)) break;
    }
    return oldest;
}

}  // namespace

Result<FinishedJobs> FinishedJobs::open(StateDb& db, Records& records) {
    FinishedJobs jobs(db, records);
    TRY_ASSIGN(const auto first, db.after(kind_finished, "", 1));
    if (!first.empty()) {
        TRY_ASSIGN(jobs.oldest_, number(first[0].key));
        TRY_ASSIGN(const auto last, db.before(kind_finished, "~", 1));
        TRY_ASSIGN(jobs.newest_, number(last[0].key));
    }
    TRY(jobs.count_shares());
    if (jobs.shared_ < jobs.newest_) TRY(jobs.share_old());
    return jobs;
}

// A version before this may have erased records since, and knew of no shares.
Status FinishedJobs::count_shares() {
    std::string key;
    for (;;) {
        TRY_ASSIGN(const auto rows, db_->after(kind_finished_of, key, look_rows));
        for (const StateDb::Row& row : rows) {
            const auto share = parse_share(row.key);
            if (!share || share->number < oldest_ || share->number > newest_) {
                records_->erase(kind_finished_of, row.key);
                continue;
            }
            shares_.add(share->owner);
            shared_ = std::max(shared_, share->number);
        }
        if (rows.size() < look_rows) return {};
        key = rows.back().key;
    }
}

Status FinishedJobs::share_old() {
    std::string key = padded(shared_);
    for (;;) {
        TRY_ASSIGN(const auto rows, db_->after(kind_finished, key, look_rows));
        for (const StateDb::Row& row : rows)
            if (const auto record = parse(row.key, row.value)) share(*record, row.key);
        if (rows.size() < look_rows) return {};
        key = rows.back().key;
    }
}

// A record that is written once more, as when more is heard of the job, counts once.
void FinishedJobs::share(const market::JobRecord& record, const std::string& key) {
    const FinishedShares::Owner owner = FinishedShares::owner_of(record.report);
    const std::string row = share_prefix(owner) + key;
    const auto known = records_->get(kind_finished_of, row);
    if (known && *known) return;
    records_->put(kind_finished_of, row, index_key(record.report.id));
    shares_.add(owner);
}

void FinishedJobs::append(const market::JobRecord& record) {
    const JobId& id = record.report.id;
    const std::string key = padded(record.finish_seq);
    newest_ = std::max(newest_, record.finish_seq);
    records_->put(kind_finished, key, wire::pack(record));
    records_->put(kind_finished_id, index_key(id), key);
    records_->erase(kind_job, id.text());
    share(record, key);
}

Result<std::optional<market::JobRecord>> FinishedJobs::find(const JobId& id) const {
    TRY_ASSIGN(const auto key, records_->get(kind_finished_id, index_key(id)));
    if (!key) return std::nullopt;
    TRY_ASSIGN(const auto value, records_->get(kind_finished, *key));
    if (!value) return std::nullopt;
    TRY_ASSIGN(auto record, parse(*key, *value));
    return record;
}

Result<std::vector<market::JobRecord>> FinishedJobs::before(uint64_t before,
                                                            size_t records_max) const {
    std::vector<market::JobRecord> records;
    for (std::string key = padded(before); records.size() < records_max;) {
        const size_t wanted = records_max - records.size();
        TRY_ASSIGN(const auto rows, db_->before(kind_finished, key, wanted));
        for (const StateDb::Row& row : rows)
            if (auto record = parse(row.key, row.value)) records.push_back(std::move(*record));
        if (rows.size() < wanted) break;
        key = rows.back().key;
    }
    return records;
}

Result<std::vector<FinishedJobs::Entry>> FinishedJobs::after(const JobId& id,
                                                             size_t entries_max) const {
    TRY_ASSIGN(const auto rows,
               db_->after(kind_finished_id, id.home.empty() ? "" : index_key(id), entries_max));
    std::vector<Entry> entries;
    for (const StateDb::Row& row : rows) {
        const size_t blank = row.key.find(' ');
        if (blank == std::string::npos)
            return fail("'" + row.key + "' is not the id of a finished job");
        Entry entry;
        entry.first.home = row.key.substr(0, blank);
        TRY_ASSIGN(entry.first.seq, number(std::string_view(row.key).substr(blank + 1)));
        TRY_ASSIGN(entry.second, number(row.value));
        entries.push_back(std::move(entry));
    }
    return entries;
}

Result<bool> FinishedJobs::trim(uint64_t count_max, Nanos since, size_t rows_max) {
    TRY_ASSIGN(const bool more, trim_by_age(since, rows_max));
    TRY_ASSIGN(const bool too_many, trim_by_share(count_max, rows_max));
    return more || too_many;
}

Result<bool> FinishedJobs::trim_by_age(Nanos since, size_t rows_max) {
    if (since.ns <= 0) return false;
    TRY_ASSIGN(const auto rows, db_->after(kind_finished, padded(oldest_ - 1), rows_max));
    // One that cannot be read goes with the next that can.
    std::vector<std::pair<const StateDb::Row*, std::optional<market::JobRecord>>> going;
    size_t whole = 0;  // so many of them go
    bool all = true;
    for (const StateDb::Row& row : rows) {
        auto record = parse(row.key, row.value);
        if (record && (record->ended.ns == 0 || record->ended >= since)) {
            all = false;
            break;
        }
        going.emplace_back(&row, record ? std::optional(std::move(*record)) : std::nullopt);
        if (record) whole = going.size();
    }
    all &= whole == going.size();
    going.resize(whole);
    for (const auto& [row, record] : going) {
        TRY_ASSIGN(const uint64_t seq, number(row->key));
        oldest_ = seq + 1;
        TRY_ASSIGN(const auto there, records_->get(kind_finished, row->key));
        if (!there) continue;  // its end is on the way to the disk already
        if (!record) {
            records_->erase(kind_finished, row->key);
            continue;
        }
        const FinishedShares::Owner owner = FinishedShares::owner_of(record->report);
        const std::string share_row = share_prefix(owner) + row->key;
        TRY_ASSIGN(const auto counted, records_->get(kind_finished_of, share_row));
        if (counted) {
            records_->erase(kind_finished_of, share_row);
            shares_.drop(owner);
        }
        TRY(erase(row->key, index_key(record->report.id)));
    }
    return all && rows.size() == rows_max;
}

Result<bool> FinishedJobs::trim_by_share(uint64_t count_max, size_t rows_max) {
    std::map<FinishedShares::Owner, std::vector<StateDb::Row>> next;  // the last one goes first
    for (size_t gone = 0; shares_.count() > count_max; ++gone) {
        if (gone == rows_max) return true;
        const FinishedShares::Owner owner = shares_.largest();
        const std::string prefix = share_prefix(owner);
        auto& rows = next[owner];
        if (rows.empty()) {
            TRY_ASSIGN(rows, oldest_of(*db_, *records_, prefix, rows_max));
            if (rows.empty()) return false;  // they are on the way to the disk
        }
        const StateDb::Row row = std::move(rows.back());
        rows.pop_back();
        records_->erase(kind_finished_of, row.key);
        shares_.drop(owner);
        TRY(erase(row.key.substr(prefix.size()), row.value));
    }
    return false;
}

Status FinishedJobs::erase(const std::string& key, const std::string& index) {
    records_->erase(kind_finished, key);
    TRY_ASSIGN(const auto at, records_->get(kind_finished_id, index));
    if (at == key) records_->erase(kind_finished_id, index);
    return {};
}

}  // namespace souk
