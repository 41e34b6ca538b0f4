// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim compare --owners: what users pay and wait, and owners earn, in each mix of strategies
// and of owners' prices.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "market/sim/estimate.hpp"
#include "tools/marketsim/compare_report.hpp"

namespace souk::tools {

using namespace sim;

namespace {

constexpr size_t by_its_end = 0;  // of the measures of lies.hpp

std::string with_half(const Estimate& e, int digits) {
    return e.half ? fmt::format("{:.{}f} +- {:.{}f}", e.mean, digits, *e.half, digits)
                  : fmt::format("{:.{}f}", e.mean, digits);
}

template <class Of>
Estimate over_seeds(const std::vector<Standing>& seeds, Of of) {
    std::vector<double> values;
    for (const Standing& s : seeds) values.push_back(of(s));
    return estimate(values);
}

// Estimates for each kind of owners what they earned and their surplus, over the seeds in which
// there was one.
std::map<Asks, std::pair<Estimate, Estimate>> owners_of(const Variant& v) {
    std::map<Asks, std::array<std::vector<double>, 2>> values;
    for (const Standing& seed : v.standings)
        for (const ByOwner& row : seed.owners) {
            values[row.asks][0].push_back(row.earned);
            values[row.asks][1].push_back(row.surplus);
        }
    std::map<Asks, std::pair<Estimate, Estimate>> all;
    for (const auto& [asks, of] : values) all[asks] = {estimate(of[0]), estimate(of[1])};
    return all;
}

Cases cases_of(const Variant& v) {
    Cases all;
    for (const Standing& seed : v.standings)
        all.insert(all.end(), seed.cases.begin(), seed.cases.end());
    return all;
}

}  // namespace

Standing standing_of(const Imported& w, const MarketRunOptions& run, const RunOutcome& outcome,
                     int64_t alpha_s) {
    Standing s;
    double paid = 0, work = 0, wait = 0, slowdown = 0;
    size_t finished = 0;
    for (size_t i = 0; i < w.jobs.size(); ++i) {
        const JobOutcome& out = outcome.jobs[i];
        paid += static_cast<double>(out.paid.micro_s) / 3600e6;
        work += static_cast<double>(out.done) / 360'000 * w.jobs[i].cpus;
        if (out.end_s < 0) continue;
        ++finished;
        const auto stay = static_cast<double>(out.end_s - w.jobs[i].start_s),
                   least = static_cast<double>(std::max(w.jobs[i].run_s, alpha_s));
        slowdown += std::max(stay, least) / least;
        wait += stay - static_cast<double>(w.jobs[i].run_s);
    }
    const auto n = static_cast<double>(std::max<size_t>(finished, 1));
    s.price = work > 0 ? paid / work : 0;
    s.wait_s = wait / n;
    s.slowdown = slowdown / n;
    const auto units = [](const MoneySeconds& m) {
        return static_cast<double>(m.micro_s) / 3600e6;
    };
    s.welfare = units(outcome.totals.consumers) + units(outcome.totals.providers);
    s.envy = s.welfare > 0 ? 100 * units(outcome.totals.envy) / s.welfare : 0;
    s.owners = by_owner(w.providers, run.asks, outcome);
    return s;
}

std::string owners_table(const std::vector<Variant>& variants) {
    size_t width = 8;
    for (const Variant& v : variants) width = std::max(width, v.name.size());
    std::string out;
    for (const Variant& v : variants) {
        if (v.owners.of.empty() || !v.error.empty()) continue;
        if (out.empty())
            out = fmt::format(
                "\nby owners: paid for a standard CPU-hour; seconds in the system beyond the run "
                "time; earned, and\nabove what lending costs, for an offered CPU-hour; envy in % "
                "of welfare; what the lie gains that is\nchosen on one half of the seeds and told "
                "on the other, in % of what its job pays\n"
                "{:<{}} {:>18} {:>20} {:>18} {:>22} {:<5} {:>18} {:>18} {:>18} {}\n",
                "variant", width, "price", "wait", "slowdown", "welfare", "asks", "earned",
                "surplus", "envy", "lie");
        const auto& all = v.standings;
        std::string lie;
        if (const Cases cases = cases_of(v); !cases.empty()) {
            const Chosen c = chosen(cases, by_its_end);
            for (const std::string& name : c.names) lie += (lie.empty() ? "" : "; ") + name;
            lie += fmt::format(": {:.2f} +- {:.2f}", c.percent_of_job.mean(),
                               c.percent_of_job.half_width());
        }
        for (const auto& [asks, earned] : owners_of(v)) {
            out += fmt::format(
                "{:<{}} {:>18} {:>20} {:>18} {:>22} {:<5} {:>18} {:>18} {:>18} {}\n", v.name, width,
                with_half(over_seeds(all, [](const Standing& s) { return s.price; }), 3),
                with_half(over_seeds(all, [](const Standing& s) { return s.wait_s; }), 0),
                with_half(over_seeds(all, [](const Standing& s) { return s.slowdown; }), 2),
                with_half(over_seeds(all, [](const Standing& s) { return s.welfare; }), 0),
                to_string(asks), with_half(earned.first, 3), with_half(earned.second, 3),
                with_half(over_seeds(all, [](const Standing& s) { return s.envy; }), 2), lie);
        }
    }
    return out;
}

nlohmann::ordered_json owners_json(const Variant& v) {
    const auto figure = [](const Estimate& e) {
        nlohmann::ordered_json found = {{"mean", e.mean}};
        if (e.half) found["ci95"] = *e.half;
        return found;
    };
    const auto& all = v.standings;
    nlohmann::ordered_json json = {
        {"owners", v.owners.name},
        {"price", figure(over_seeds(all, [](const Standing& s) { return s.price; }))},
        {"wait_s", figure(over_seeds(all, [](const Standing& s) { return s.wait_s; }))},
        {"bounded_slowdown", figure(over_seeds(all, [](const Standing& s) { return s.slowdown; }))},
        {"welfare", figure(over_seeds(all, [](const Standing& s) { return s.welfare; }))},
        {"envy_percent", figure(over_seeds(all, [](const Standing& s) { return s.envy; }))}};
    for (const auto& [asks, earned] : owners_of(v))
        json["by_owner"].push_back({{"asks", to_string(asks)},
                                    {"earned", figure(earned.first)},
                                    {"surplus", figure(earned.second)}});
    const Cases cases = cases_of(v);
    if (cases.empty()) return json;
    const Chosen c = chosen(cases, by_its_end);
    json["lie_chosen_beforehand"] = {{"cases", cases.size()},
                                     {"lies", c.names},
                                     {"gain_percent", c.percent_of_job.mean()},
                                     {"ci95", c.percent_of_job.half_width()}};
    auto each = by_lie(cases, by_its_end);
    for (size_t n = 0; n < each.size(); ++n)
        if (!each[n].empty())
            json["each_lie"].push_back({{"lie", lies[n].name()},
                                        {"gain_percent", each[n].mean()},
                                        {"ci95", each[n].half_width()}});
    return json;
}

}  // namespace souk::tools
