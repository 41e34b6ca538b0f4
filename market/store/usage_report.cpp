// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/usage_report.hpp"

#include <map>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/setting.hpp"
#include "kernel/wire/messages.hpp"

namespace souk {
namespace {

constexpr int64_t day_s = 86'400;
constexpr size_t rows_max = 100'000, piece = 2'000;

struct Query {
    std::string by = "user";
    int64_t since = 0, until = INT64_MAX;  // days
};

Result<Query> parse(const std::vector<std::string>& filters) {
    Query q;
    for (const std::string& word : filters) {
        const auto [key, value] = parse_setting(word);
        if (key == "by") {
            if (value != "user" && value != "node" && value != "day")
                return fail("report: by is one of user, node and day, not '" + value + "'");
            q.by = value;
        } else if (key == "since" || key == "until") {
            const auto seconds = whole_number<int64_t>(value);
            if (!seconds || *seconds < 0)
                return fail(key + ": '" + value + "' is not a time in seconds");
            (key == "since" ? q.since : q.until) = *seconds / day_s;
        } else {
            return fail("report: '" + word + "' is none of by, since and until");
        }
    }
    return q;
}

struct Sum {
    double run = 0, cpu = 0, waited = 0, ran = 0, asked_mb = 0, slowdown = 0;
    int64_t jobs = 0, failed = 0, moves = 0, freezes = 0;
    Money paid, earned;

    void add(const UsageRecord& u) {
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
};

void write_sum(JsonWriter& w, const std::string& by, const std::string& name, const Sum& s) {
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

}  // namespace

Result<std::string> report_reply(const UsageBook& book, const std::vector<std::string>& filters,
                                 uint32_t uid) {
    TRY_ASSIGN(const Query q, parse(filters));
    std::map<std::string, Sum> sums;
    size_t seen = 0;
    for (std::string key;;) {
        TRY_ASSIGN(const auto rows, book.after(key, q.since, piece));
        for (const auto& [at, u] : rows) {
            key = at;
            if (u.day > q.until || u.day < q.since) continue;
            if (uid != market::root_uid && uid != u.uid) continue;
            if (q.by == "node" && u.node.empty()) continue;
            const std::string name = q.by == "user"   ? u.user
                                     : q.by == "node" ? u.node
                                                      : std::to_string(u.day * day_s);
            sums[name].add(u);
        }
        seen += rows.size();
        if (rows.size() < piece) break;
        if (seen >= rows_max) return fail("report: too many rows: ask for less with --since");
    }
    JsonWriter w;
    w.begin_array();
    for (const auto& [name, sum] : sums) {
        write_sum(w, q.by, name, sum);
        if (w.bytes() > wire::json_bytes_max - 4'096)
            return fail("report: the answer is too long: ask for less with --since");
    }
    return w.end_array().take();
}

}  // namespace souk
