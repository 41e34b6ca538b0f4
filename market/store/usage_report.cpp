// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/usage_report.hpp"

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/setting.hpp"
#include "kernel/wire/messages.hpp"

namespace souk {
namespace {
constexpr int64_t day_s = 86'400;
}  // namespace

Result<UsageReport> UsageReport::begin(const std::vector<std::string>& filters, uint32_t uid) {
    UsageReport r;
    r.uid_ = uid;
    for (const std::string& word : filters) {
        const auto [key, value] = parse_setting(word);
        if (key == "by") {
            if (value != "user" && value != "node" && value != "day")
                return fail("report: by is one of user, node and day, not '" + value + "'");
            r.by_ = value;
        } else if (key == "since" || key == "until") {
            const auto seconds = whole_number<int64_t>(value);
            if (!seconds || *seconds < 0)
                return fail(key + ": '" + value + "' is not a time in seconds");
            (key == "since" ? r.since_ : r.until_) = *seconds / day_s;
        } else {
            return fail("report: '" + word + "' is none of by, since and until");
        }
    }
    return r;
}

void UsageReport::Sum::add(const UsageRecord& u) {
    run += u.run.seconds();
    cpu += u.cpu.seconds();
    waited += u.waited.seconds();
    ran += u.ran.seconds();
    asked_mb += u.asked_mb.seconds();
    slowdown += static_cast<double>(u.slowdown_milli) / 1'000;
    jobs += u.jobs;
    failed += u.failed;
    moves += u.moves;
    freezes += u.freezes;
    paid += u.paid;
    earned += u.earned;
}

void UsageReport::write(JsonWriter& w, const std::string& by, const std::string& name,
                        const Sum& s) {
    w.begin_object().field(by, name).field("cpu_asked_s", s.run).field("cpu_used_s", s.cpu);
    if (s.run > 0) w.field("efficiency", s.cpu / s.run);
    w.field("paid", s.paid).field("earned", s.earned);
    if (by != "node") {
        w.field("jobs", s.jobs).field("failed", s.failed);
        w.field("moves", s.moves).field("freezes", s.freezes);
        if (s.jobs > 0) {
            w.field("wait_mean_s", s.waited / static_cast<double>(s.jobs));
            w.field("slowdown_mean", s.slowdown / static_cast<double>(s.jobs));
        }
        if (s.ran > 0) w.field("memory_asked_mean_mb", s.asked_mb / s.ran);
    }
    w.end_object();
}

Result<bool> UsageReport::step(const UsageBook& book) {
    if (seen_ >= rows_max) return fail("report: too many rows: ask for less with --since");
    TRY_ASSIGN(const auto rows, book.after(key_, since_, piece));
    for (const auto& [at, u] : rows) {
        key_ = at;
        if (u.day > until_ || u.day < since_) continue;
        if (uid_ != market::root_uid && uid_ != u.uid) continue;
        if (by_ == "node" && u.node.empty()) continue;
        sums_[by_ == "user"   ? u.user
              : by_ == "node" ? u.node
                              : std::to_string(u.day * day_s)]
            .add(u);
    }
    seen_ += rows.size();
    return rows.size() == piece;
}

Result<std::string> UsageReport::text() const {
    JsonWriter w;
    w.begin_array();
    for (const auto& [name, sum] : sums_) {
        write(w, by_, name, sum);
        if (w.bytes() > wire::json_bytes_max - 4'096)
            return fail("report: the answer is too long: ask for less with --since");
    }
    return w.end_array().take();
}

}  // namespace souk
