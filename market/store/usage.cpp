// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/usage.hpp"

#include <sys/wait.h>

#include <algorithm>

#include "kernel/base/fields.hpp"
#include "kernel/wire/field_codec.hpp"
#include "market/store/records.pb-c.h"

namespace souk {

SOUK_FIELDS(UsageRecord,  //
            field("day", &UsageRecord::day, rule::between(0, 1'000'000)),
            field("uid", &UsageRecord::uid), field("user", &UsageRecord::user, rule::name),
            field("node", &UsageRecord::node, rule::node_or_none), field("run", &UsageRecord::run),
            field("cpu", &UsageRecord::cpu), field("paid", &UsageRecord::paid),
            field("earned", &UsageRecord::earned), field("jobs", &UsageRecord::jobs),
            field("failed", &UsageRecord::failed), field("moves", &UsageRecord::moves),
            field("freezes", &UsageRecord::freezes), field("waited", &UsageRecord::waited),
            field("slowdown_milli", &UsageRecord::slowdown_milli), field("ran", &UsageRecord::ran),
            field("asked_mb", &UsageRecord::asked_mb));

namespace wire {
SOUK_RECORD_CODEC(UsageRecord, pb__market_usage)
}

namespace {

constexpr int64_t day_ns = 86'400'000'000'000;
constexpr size_t recent_max = 4'096;

std::string digits(uint64_t n, size_t width) {
    const std::string text = std::to_string(n);
    return std::string(width - std::min(width, text.size()), '0') + text;
}

std::string day_key(int64_t day) { return digits(static_cast<uint64_t>(day), 7); }

// a x b / c, at most what fits.
int64_t scaled(int64_t a, int64_t b, int64_t c = 1) {
    const __int128 product = static_cast<__int128>(a) * b / c;
    return static_cast<int64_t>(std::clamp<__int128>(product, INT64_MIN / 4, INT64_MAX / 4));
}

void sum(int64_t& to, int64_t more) {
    to = std::clamp(to + std::clamp(more, INT64_MIN / 4, INT64_MAX / 4), INT64_MIN / 2,
                    INT64_MAX / 2);
}

}  // namespace

template <class F>
Status UsageBook::change(int64_t day, uint32_t uid, const std::string& user, const NodeName& node,
                         F add) {
    if (day < 0 || day > 1'000'000) return {};
    const std::string key = day_key(day) + " " + digits(uid, 10) + " " + node;
    auto at = recent_.find(key);
    if (at == recent_.end()) {
        TRY_ASSIGN(const auto known, records_->get(kind_usage, key));
        UsageRecord record;
        if (known) {
            TRY_ASSIGN(record, wire::unpack<UsageRecord>(*known));
        }
        if (recent_.size() >= recent_max) recent_.clear();
        at = recent_.emplace(key, std::move(record)).first;
    }
    UsageRecord& record = at->second;
    record.day = day;
    record.uid = uid;
    record.user = user;
    record.node = node;
    add(record);
    records_->put(kind_usage, key, wire::pack(record));
    return {};
}

Status UsageBook::add(const market::Receipt& r) {
    if (r.kind != market::Receipt::Kind::use || r.node.empty()) return {};
    return change(r.to.ns / day_ns, r.uid, r.user, r.node, [&](UsageRecord& u) {
        sum(u.run.ns, scaled(r.run.ns, r.cpus));
        sum(u.cpu.ns, r.cpu.ns);
        sum(u.paid.micro, r.paid.micro);
        sum(u.earned.micro, r.earned.micro);
    });
}

Status UsageBook::add(const market::JobRecord& job) {
    const JobReport& r = job.report;
    const int64_t ran = std::max<int64_t>(0, r.stats.run_time.ns);
    const int64_t span = std::max<int64_t>(ran, job.ended.ns - r.submitted.ns);
    return change(job.ended.ns / day_ns, r.uid, r.user, {}, [&](UsageRecord& u) {
        constexpr int64_t least_ns = 10'000'000'000;  // of bounded slowdown
        ++u.jobs;
        const bool good = WIFEXITED(r.wait_status) && WEXITSTATUS(r.wait_status) == 0;
        // One that was ended with the others of its job has failed only if they have.
        const bool own = !r.why.empty() && (*r.why).code != CauseCode::component_ended;
        u.failed += !good || own;
        u.moves += r.stats.migrations;
        u.freezes += r.stats.freezes;
        sum(u.waited.ns, span - ran);
        sum(u.slowdown_milli,
            std::max<int64_t>(1'000, scaled(span, 1'000, std::max(ran, least_ns))));
        sum(u.ran.ns, ran);
        sum(u.asked_mb.ns, scaled(ran, r.terms.memory_mb));
    });
}

Result<std::vector<std::pair<std::string, UsageRecord>>> UsageBook::after(const std::string& key,
                                                                          int64_t from,
                                                                          size_t rows_max) const {
    TRY_ASSIGN(
        const auto rows,
        db_->after(kind_usage, std::max(key, day_key(std::max<int64_t>(0, from))), rows_max));
    std::vector<std::pair<std::string, UsageRecord>> records;
    for (const StateDb::Row& row : rows) {
        auto record = wire::unpack<UsageRecord>(row.value);
        if (!record) return wrap("the sums of " + row.key, record.error());
        records.emplace_back(row.key, *std::move(record));
    }
    return records;
}

Result<bool> UsageBook::trim(int64_t day, size_t rows_max) {
    const std::string bound = day_key(std::max<int64_t>(0, day - kept_days));
    TRY_ASSIGN(const auto rows, db_->after(kind_usage, "", rows_max));
    for (const StateDb::Row& row : rows) {
        if (row.key >= bound) return false;
        recent_.erase(row.key);
        records_->erase(kind_usage, row.key);
    }
    return rows.size() == rows_max;
}

}  // namespace souk
