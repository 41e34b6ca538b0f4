// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/money.hpp"

#include <algorithm>
#include <ctime>

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/units.hpp"
#include "tools/common/job_state.hpp"
#include "tools/common/program.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/peer_books.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

constexpr Nanos needs_unit{0}, span_max = Nanos::from_s(36'525 * 86'400LL);

}  // namespace

Result<int64_t> parse_moment(const char* option, const std::string& text) {
    if (const auto ago = parse_span(text, needs_unit, Nanos{}, span_max))
        return std::max<int64_t>(0, ::time(nullptr) - ago->ns / 1'000'000'000);
    for (const char* form : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
        std::tm date{};
        const char* end = ::strptime(text.c_str(), form, &date);
        if (!end || *end) continue;
        date.tm_isdst = -1;
        return std::max<int64_t>(0, ::mktime(&date));
    }
    return fail(
        std::string(option) + ": '" + text +
        "' is neither a date such as 2026-11-20 or 2026-11-20T08:00 nor a span such as 12h");
}

Result<int64_t> parse_span_s(const char* option, const std::string& text) {
    const auto span = parse_span(text, needs_unit, Nanos::from_s(1), span_max);
    if (!span) return wrap(option, span.error());
    return span->ns / 1'000'000'000;
}

Status take_money_options(const MoneyOptions& o, CtlQuestion& question) {
    const bool receipts = question.verb == "receipts", ledger = question.verb == "ledger";
    const bool jobs = question.verb == "list-jobs";
    if (!receipts && !(o.job + o.provider + o.since).empty())
        return fail(question.verb + ": --job, --provider and --since are for receipts");
    if (!receipts && !jobs && !(o.user + o.limit).empty())
        return fail(question.verb + ": --user and --limit are for receipts and list-jobs");
    if (!jobs && !o.state.empty()) return fail(question.verb + ": --state is for list-jobs");
    const bool chosen = !question.args.empty();  // marketctl history
    if (jobs && !chosen)
        question.args.push_back("state=" + (o.state.empty() ? "live" : status_of_word(o.state)));
    const bool restore = question.verb == "restore";
    if (!ledger && !(o.db + o.seen).empty())
        return fail(question.verb + ": --db and --seen are for ledger verify");
    if (question.verb != books_verb && !(o.peer + o.file).empty())
        return fail(question.verb + ": --peer and --file are for ledger verify");
    if (!restore && !o.dir.empty()) return fail(question.verb + ": --dir is for restore");
    if (ledger && o.db.empty() && !o.seen.empty()) return fail("ledger verify: --seen is for --db");
    if (ledger) question.verb = "ledger-verify";
    if (ledger) question.verdict = ledger_verdict;
    if (ledger && !o.db.empty())
        question.here = [file = o.db, seen = o.seen] {
            return output_of_sibling("souk-ledger", {"verify", file, seen});
        };
    if (restore)
        question.here = [file = question.args[0], dir = o.dir] {
            return output_of_sibling("souk-ledger", {"restore", file, dir});
        };
    if (!o.job.empty()) {
        TRY_ASSIGN(const JobId id, parse_job_id(o.job));
        question.args.push_back("job=" + id.text());
    }
    if (!o.user.empty()) question.args.push_back("user=" + o.user);
    if (!o.provider.empty()) {
        if (!valid_node_name(o.provider)) return fail("'" + o.provider + "' is not a node name");
        question.args.push_back("node=" + o.provider);
    }
    if (!o.since.empty()) {
        TRY_ASSIGN(const int64_t seconds, parse_moment("--since", o.since));
        question.args.push_back("since=" + std::to_string(seconds));
    }
    if (!o.limit.empty()) {
        TRY_ASSIGN(const int64_t n, parse_whole(o.limit, 1, 1'000'000'000));
        question.args.push_back("limit=" + std::to_string(n));
    }
    return {};
}

Result<std::string> accounts_text(const Answer& accounts) {
    Table table({{"Account"}, {"Name"}, {"UID", true}, {"Balance", true}, {"Open", true}});
    return table.text_of(accounts, [](const Json& a) -> std::vector<std::string> {
        return {field(a, "account"), field(a, "name"), field(a, "uid"), field(a, "balance"),
                field(a, "open")};
    });
}

Result<std::string> receipts_text(const Answer& receipts) {
    Table table({{"Receipt", true},
                 {"Job"},
                 {"User"},
                 {"Node"},
                 {"From"},
                 {"To"},
                 {"Run", true},
                 {"CPU", true},
                 {"Price", true},
                 {"Paid", true},
                 {"Because"}});
    return table.text_of(receipts, [](const Json& r) -> std::vector<std::string> {
        return {field(r, "receipt"),
                field(r, "job"),
                field(r, "user"),
                field(r, "node"),
                local_time(r, "from_unix_s"),
                local_time(r, "to_unix_s"),
                duration(r, "run_s"),
                duration(r, "cpu_s"),
                field(r, "price"),
                field(r, "paid"),
                r.value("kind", "use") == "use" ? field(r, "reason") : field(r, "kind")};
    });
}

Result<std::string> ledger_text(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    return lines({{"Receipts", field(s, "receipts")},
                  {"Accounts", field(s, "accounts")},
                  {"Paid", field(s, "paid")},
                  {"Earned", field(s, "earned")},
                  {"Market", field(s, "market")},
                  {"Head", field(s, "head")}});
}

Status ledger_verdict(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    if (s.contains("warning")) return fail(CauseCode::unsound, field(s, "warning"));
    return {};
}

Result<std::string> backup_text(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    return lines({{"File", field(s, "file")},
                  {"Bytes", field(s, "bytes")},
                  {"Receipts", field(s, "receipts")},
                  {"Head", field(s, "head")}});
}

Result<std::string> restore_text(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    std::vector<std::pair<std::string, std::string>> rows = {{"Restored", field(s, "restored")}};
    if (s.contains("kept")) rows.emplace_back("What was there", field(s, "kept"));
    rows.emplace_back("Receipts", field(s, "receipts"));
    rows.emplace_back("Head", field(s, "head"));
    return lines(rows);
}

}  // namespace souk::tools
