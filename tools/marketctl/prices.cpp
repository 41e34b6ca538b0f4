// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <ctime>
#include <set>

#include "tools/common/table.hpp"
#include "tools/marketctl/money.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {

Status take_price_options(const std::string& last, const std::string& step, CtlQuestion& question) {
    if (question.verb != "prices") {
        if ((last + step).empty()) return {};
        return fail(question.verb + ": --last and --step are for prices");
    }
    constexpr int64_t rows = 48, month = 31 * 86'400;
    TRY_ASSIGN(const int64_t span, parse_span_s("--last", last.empty() ? "24h" : last));
    if (span > month) return fail("--last: prices are kept for 30d");
    int64_t row = 60;  // the first that makes a screen
    for (const int64_t s : {60, 300, 600, 1'800, 3'600, 7'200, 14'400, 43'200, 86'400}) {
        row = s;
        if (span / s <= rows) break;
    }
    if (!step.empty()) {
        TRY_ASSIGN(row, parse_span_s("--step", step));
        if (row < 60) return fail("--step: a minute is the least");
    }
    question.args = {std::to_string(std::max<int64_t>(0, ::time(nullptr) - span)),
                     std::to_string(row)};
    return {};
}

Result<std::string> prices_text(const Answer& prices) {
    std::vector<Json> rows;
    std::set<int, std::greater<>> speeds;
    for (const std::string& part : prices) {
        const Json all = parse_json(part);
        if (!all.is_array()) return fail("the daemon's answer is not a JSON list");
        for (const Json& row : all) {
            for (const Json& s : row.value("speeds", Json::array()))
                speeds.insert(s.value("speed", 0));
            rows.push_back(row);
        }
    }
    std::vector<std::string> titles;
    for (const int speed : speeds) titles.push_back("Speed " + std::to_string(speed));
    std::vector<Table::Column> columns = {{"From"},      {"For", true},  {"Least", true},
                                          {"Low", true}, {"High", true}, {"No place", true}};
    for (const std::string& title : titles) columns.push_back({title.c_str(), true});
    Table table(std::move(columns));
    for (const Json& row : rows) {
        std::vector<std::string> cells = {
            local_time(row, "from_unix_s"), duration(row, "span_s"),    rounded_money(row, "least"),
            rounded_money(row, "low"),      rounded_money(row, "high"), duration(row, "closed_s")};
        for (const int speed : speeds) {
            cells.emplace_back("-");
            for (const Json& s : row.value("speeds", Json::array()))
                if (s.value("speed", 0) == speed) cells.back() = rounded_money(s, "price");
        }
        table.add(std::move(cells));
    }
    return table.text();
}

}  // namespace souk::tools
