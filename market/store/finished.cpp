// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/finished.hpp"

#include "kernel/base/number.hpp"
#include "market/store/receipts.hpp"
#include "market/store/records.hpp"

namespace souk {
namespace {

constexpr size_t number_digits = 20;

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

}  // namespace

Result<FinishedJobs> FinishedJobs::open(StateDb& db, Records& records) {
    FinishedJobs jobs(db, records);
    TRY_ASSIGN(const auto first, db.after(kind_finished, "", 1));
    if (first.empty()) return jobs;
    TRY_ASSIGN(jobs.oldest_, number(first[0].key));
    TRY_ASSIGN(const auto last, db.before(kind_finished, "~", 1));
    TRY_ASSIGN(jobs.newest_, number(last[0].key));
    return jobs;
}

void FinishedJobs::append(const market::JobRecord& record) {
    const JobId& id = record.report.id;
    const std::string key = padded(record.finish_seq);
    if (newest_ < oldest_) oldest_ = record.finish_seq;
    newest_ = std::max(newest_, record.finish_seq);
    records_->put(kind_finished, key, wire::pack(record));
    records_->put(kind_finished_id, index_key(id), key);
    records_->erase(kind_job, id.text());
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
    const uint64_t over = count() > count_max ? count() - count_max : 0;
    if (over == 0 && since.ns <= 0) return false;
    TRY_ASSIGN(const auto rows, db_->after(kind_finished, "", rows_max));
    // One that cannot be read goes with the next that can.
    std::vector<std::pair<const StateDb::Row*, std::optional<market::JobRecord>>> going;
    uint64_t gone = 0;
    size_t whole = 0;  // so many of them go
    bool all = true;
    for (const StateDb::Row& row : rows) {
        TRY_ASSIGN(const uint64_t seq, number(row.key));
        if (seq < oldest_) continue;  // its end is on the way to the disk already
        auto record = parse(row.key, row.value);
        const bool ages = record && record->ended.ns != 0 && record->ended < since;
        if (gone >= over && record && !ages) {
            all = false;
            break;
        }
        going.emplace_back(&row, record ? std::optional(std::move(*record)) : std::nullopt);
        if (gone++ < over || ages) whole = going.size();
    }
    all &= whole == going.size();
    going.resize(whole);
    for (const auto& [row, record] : going) {
        TRY_ASSIGN(const uint64_t seq, number(row->key));
        oldest_ = seq + 1;
        records_->erase(kind_finished, row->key);
        if (!record) continue;
        const std::string index = index_key(record->report.id);
        TRY_ASSIGN(const auto at, records_->get(kind_finished_id, index));
        if (at == row->key) records_->erase(kind_finished_id, index);
    }
    return all && rows.size() == rows_max;
}

}  // namespace souk
