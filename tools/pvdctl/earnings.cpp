// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/pvdctl/earnings.hpp"

#define FMT_HEADER_ONLY  // a library more would make each start of pvdctl slower
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/zone.hpp"
#include "tools/common/entries.hpp"
#include "tools/common/job_rows.hpp"

namespace souk::tools {
namespace {

constexpr int64_t day_s = 86'400, hour_s = 3'600, forecast_days = 30;

double number(const Json& object, const char* key) {
    const auto it = object.find(key);
    return it != object.end() && it->is_number() ? it->get<double>() : 0;
}

// ---- earnings

Result<std::string> earnings_json(const std::string& node, const Answer& receipts) {
    struct Day {
        double earned = 0, cpu_s = 0, run_s = 0;
        std::set<std::string> jobs;
    };
    std::map<int64_t, Day, std::greater<>> days;
    Day all;
    TRY(for_each_entry(receipts, [&](const Json& r) {
        const auto day = static_cast<int64_t>(number(r, "to_unix_s")) / day_s * day_s;
        for (Day* const d : {&days[day], &all}) {
            d->earned += number(r, "earned");
            d->cpu_s += number(r, "cpu_s");
            d->run_s += number(r, "run_s");
            d->jobs.insert(field(r, "job"));
        }
    }));
    Json told = {{"node", node},
                 {"earned", all.earned},
                 {"cpu_s", all.cpu_s},
                 {"jobs", all.jobs.size()},
                 {"days", Json::array()}};
    for (const auto& [from, d] : days)
        told["days"].push_back({{"day_unix_s", from},
                                {"earned", d.earned},
                                {"cpu_s", d.cpu_s},
                                {"run_s", d.run_s},
                                {"jobs", d.jobs.size()}});
    return told.dump();
}

std::string hours(const Json& object, const char* key) {
    return fmt::format("{:.1f} h", number(object, key) / hour_s);
}

Result<std::string> earnings_text(const Answer& answer) {
    TRY_ASSIGN(const Json told, parse_object(answer));
    Table table({{"Day (UTC)"}, {"Earned", true}, {"Run", true}, {"CPU", true}, {"Jobs", true}});
    for (const Json& d : told.at("days")) {
        const auto at = static_cast<time_t>(number(d, "day_unix_s"));
        tm day{};
        char text[16];
        ::gmtime_r(&at, &day);
        (void)::strftime(text, sizeof text, "%Y-%m-%d", &day);
        table.add({text, fmt::format("{:.6g}", number(d, "earned")), hours(d, "run_s"),
                   hours(d, "cpu_s"), field(d, "jobs")});
    }
    const std::string sum = fmt::format("{} earned {:.6g} by {} jobs", field(told, "node"),
                                        number(told, "earned"), field(told, "jobs"));
    return told.at("days").empty() ? sum : table.text() + "\n" + sum;
}

// ---- forecast

struct Offer {
    std::string node, zone;
    int64_t speed = 100, cpus = 1;
    std::vector<double> asked;  // in each hour of the week
};

// An hour, or less, of the market's prices, at this node's speed.
struct Span {
    int64_t from_s = 0;
    double open_h = 0, price = 0;
};

std::vector<Span> spans_of(const Answer& prices, int64_t speed, Status& read) {
    std::vector<Span> all;
    read = for_each_entry(prices, [&](const Json& row) {
        Span span{static_cast<int64_t>(number(row, "from_unix_s")), 0, 0};
        for (const Json& s : row.contains("speeds") ? row.at("speeds") : Json::array())
            if (number(s, "speed") <= static_cast<double>(speed) && span.open_h == 0)
                span = {span.from_s, number(s, "open_s") / hour_s, number(s, "price")};
        if (span.open_h > 0) all.push_back(span);
    });
    return all;
}

// A place for which the market wants more than is asked would have been let, for that.
Json let_at(const Offer& offer, const std::vector<Span>& spans, double scale) {
    double let_h = 0, earned = 0;
    for (const Span& s : spans) {
        const auto hour = static_cast<size_t>(second_of_week(offer.zone, s.from_s) / hour_s);
        if (s.price <= offer.asked[hour] * scale) continue;
        let_h += s.open_h;
        earned += s.price * s.open_h * static_cast<double>(offer.cpus);
    }
    return {{"scale", scale}, {"let_h", let_h}, {"earned", earned}};
}

Result<std::string> forecast_json(const Offer& offer, const Answer& prices) {
    Status read;
    const auto spans = spans_of(prices, offer.speed, read);
    TRY(read);
    double open_h = 0;
    for (const Span& s : spans) open_h += s.open_h;
    Json told = {{"node", offer.node},
                 {"speed", offer.speed},
                 {"cpus", offer.cpus},
                 {"known_h", open_h},
                 {"at", Json::array()}};
    for (const double scale : {0.0, 0.5, 1.0, 1.5, 2.0})
        told["at"].push_back(let_at(offer, spans, scale));
    told["earned"] = told.at("at").at(2).at("earned");
    return told.dump();
}

// A forecast is no account: three digits of it say something.
std::string three_of(double value) {
    if (value <= 0) return "0";
    const double step = std::pow(10, std::floor(std::log10(value)) - 2);
    return three_digits(fmt::format("{:.6f}", std::round(value / step) * step));
}

Result<std::string> forecast_text(const Answer& answer) {
    TRY_ASSIGN(const Json told, parse_object(answer));
    if (told.contains("no_jobs"))
        return std::string(
            "this market has had no job yet: nobody has paid for a place, and nothing can be "
            "forecast by its prices");
    if (number(told, "known_h") == 0)
        return std::string("the market has no prices of the last 30 days");
    Table table({{"Asked"}, {"Let", true}, {"Earned", true}});
    for (const Json& row : told.at("at"))
        table.add(
            {number(row, "scale") == 1 ? "as now" : fmt::format("{:g} of it", number(row, "scale")),
             three_of(number(row, "let_h")) + " h", three_of(number(row, "earned"))});
    return fmt::format("by {} h of the market's prices, for {} CPUs at speed {}:\n",
                       three_of(number(told, "known_h")), field(told, "cpus"),
                       field(told, "speed")) +
           table.text();
}

CtlQuestion forecast() {
    const auto offer = std::make_shared<Offer>();
    CtlQuestion last{"prices", {}, forecast_text};
    last.args = {std::to_string(unix_now().ns / 1'000'000'000 - forecast_days * day_s),
                 std::to_string(hour_s)};
    last.then = [offer](const Answer& prices) -> Result<CtlQuestion> {
        CtlQuestion q{"", {}, forecast_text};
        q.here = [offer, prices] { return forecast_json(*offer, prices); };
        return q;
    };
    CtlQuestion asked{"provider-price", {}, nullptr};
    asked.then = [offer, last](const Answer& answer) -> Result<CtlQuestion> {
        TRY_ASSIGN(const Json p, parse_object(answer));
        if (!p.contains("hours") || p.at("hours").size() != 168) return fail("no prices are told");
        for (const Json& price : p.at("hours")) offer->asked.push_back(price.get<double>());
        offer->zone = p.contains("zone") ? p.at("zone").get<std::string>() : "";
        return last;
    };
    // The market's prices are what owners ask as long as nobody wants a place.
    CtlQuestion of_market{"status", {}, forecast_text};
    of_market.then = [offer, asked](const Answer& answer) -> Result<CtlQuestion> {
        TRY_ASSIGN(const Json market, parse_object(answer));
        if (number(market.value("jobs", Json::object()), "total") > 0) return asked;
        CtlQuestion none{"", {}, forecast_text};
        none.here = [offer] {
            return Json{{"node", offer->node}, {"no_jobs", true}, {"known_h", 0}}.dump();
        };
        return none;
    };
    CtlQuestion first{"provider-status", {}, forecast_text};
    first.then = [offer, of_market](const Answer& answer) -> Result<CtlQuestion> {
        TRY_ASSIGN(const Json p, parse_object(answer));
        offer->node = field(p, "node");
        offer->speed = static_cast<int64_t>(number(p, "speed"));
        offer->cpus = static_cast<int64_t>(number(p, "cpus"));
        return of_market;
    };
    return first;
}

}  // namespace

Result<CtlQuestion> parse_earnings(std::span<char*> words) {
    const std::string verb = words[0];
    if (words.size() > (verb == "earnings" ? 2 : 1))
        return fail(verb + ": unexpected argument '" + words[words.size() - 1] + "'");
    if (verb == "forecast") return forecast();
    int64_t days = 30;
    if (words.size() == 2) {
        const auto said = parse_whole(words[1], 1, 3'650);
        if (!said) return wrap("earnings", said.error());
        days = *said;
    }
    CtlQuestion first{"provider-status", {}, earnings_text};
    first.then = [days](const Answer& answer) -> Result<CtlQuestion> {
        TRY_ASSIGN(const Json p, parse_object(answer));
        const std::string node = field(p, "node");
        const int64_t since = unix_now().ns / 1'000'000'000 - days * day_s;
        CtlQuestion receipts{
            "receipts", {"node=" + node, "since=" + std::to_string(since)}, earnings_text};
        receipts.then = [node](const Answer& all) -> Result<CtlQuestion> {
            CtlQuestion q{"", {}, earnings_text};
            q.here = [node, all] { return earnings_json(node, all); };
            return q;
        };
        return receipts;
    };
    return first;
}

}  // namespace souk::tools
