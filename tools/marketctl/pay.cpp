// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/pay.hpp"

#include <utility>

#include "kernel/base/money.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

std::string what_of(const Json& entry) {
    const std::string kind = field(entry, "kind"), job = field(entry, "job");
    return kind == "use" ? "job " + job : job == "-" ? kind : kind + ", job " + job;
}

Result<std::string> statement_text(const Answer& entries) {
    Table table({{"Receipt", true},
                 {"When"},
                 {"What"},
                 {"With"},
                 {"Amount", true},
                 {"Balance", true},
                 {"Note"}});
    return table.text_of(entries, [](const Json& e) -> std::vector<std::string> {
        return {field(e, "receipt"), local_time(e, "at_unix_s"), what_of(e),      field(e, "with"),
                field(e, "amount"),  field(e, "balance"),        field(e, "note")};
    });
}

Result<std::string> statement_csv(const Answer& entries) {
    static constexpr const char* keys[] = {"receipt", "at_unix_s", "kind",    "job",
                                           "with",    "amount",    "balance", "note"};
    return csv_of(entries, keys);
}

Result<CtlQuestion> statement_question(std::span<char*> words, bool csv, MoneyOptions& money) {
    if (words.size() > 1)
        return fail("statement: unexpected argument '" + std::string(words[1]) + "'");
    CtlQuestion question{
        "statement", {words.empty() ? "-" : words[0]}, csv ? statement_csv : statement_text};
    if (const std::string since = std::exchange(money.since, {}); !since.empty()) {
        TRY_ASSIGN(const int64_t seconds, parse_moment("--since", since));
        question.args.push_back("since=" + std::to_string(seconds));
    }
    if (const std::string limit = std::exchange(money.limit, {}); !limit.empty()) {
        TRY_ASSIGN(const int64_t n, parse_whole(limit, 1, 1'000'000'000));
        question.args.push_back("limit=" + std::to_string(n));
    }
    return question;
}

}  // namespace

Result<std::optional<CtlQuestion>> pay_question(std::string_view verb, std::span<char*> words,
                                                const PayOptions& o, bool csv,
                                                MoneyOptions& money) {
    const std::string name(verb);
    const bool payout = verb == "payout",
               moves = payout || verb == "deposit" || verb == "withdraw" || verb == "transfer";
    if (!moves && !o.note.empty())
        return fail(name + ": --note is for deposit, withdraw, transfer and payout");
    if (verb != "transfer" && !o.of.empty()) return fail(name + ": --of is for transfer");
    if (verb == "statement") {
        TRY_ASSIGN(CtlQuestion question, statement_question(words, csv, money));
        return std::optional(std::move(question));
    }
    if (!moves) return std::optional<CtlQuestion>();
    if (words.size() < 2)
        return fail(name + (payout ? ": a node and an amount are wanted"
                                   : ": a user and an amount are wanted"));
    if (words.size() > (payout ? 3 : 2))
        return fail(name + ": unexpected argument '" + words[payout ? 3 : 2] + "' (--note TEXT)");
    const std::string amount = words[1];
    if (const auto good = parse_money(amount); !good && !(payout && amount == "all"))
        return wrap(name, good.error());
    CtlQuestion question{name, {words[0], amount}, message_text};
    if (payout) question.args.emplace_back(words.size() > 2 ? words[2] : "-");
    if (verb == "transfer") question.args.insert(question.args.begin(), o.of.empty() ? "-" : o.of);
    question.args.push_back(o.note);
    return std::optional(std::move(question));
}

}  // namespace souk::tools
