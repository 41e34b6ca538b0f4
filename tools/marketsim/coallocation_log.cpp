// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim coallocation --log: a job log split into components, under each policy: the utilisation
// beyond which waits grow without bound, and the response below it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "market/sim/files.hpp"
#include "tools/marketsim/coallocation.hpp"

namespace souk::tools {
namespace {

namespace co = sim::coallocation;

constexpr uint32_t backlog = 50;

struct AtLoad {
    double load;
    co::Figures figures;
};
struct LogRow {
    std::string policy, placement;
    double most = 0;  // utilisation with a backlog
    std::vector<AtLoad> loads;
};

Result<co::World> world_of(const CoallocationOptions& o, const sim::SwfTrace& trace,
                           co::LogTerms terms) {
    std::vector<co::Cluster> clusters;
    for (const int64_t cpus : o.clusters)
        clusters.push_back({"c" + std::to_string(clusters.size()), cpus});
    terms.equal_worth = o.values == "worth";
    for (const auto& [name, kind] :
         {std::pair{"ordered", co::Kind::ordered}, std::pair{"unordered", co::Kind::unordered},
          std::pair{"flexible", co::Kind::flexible}, std::pair{"total", co::Kind::total}})
        if (o.requests == name) terms.kind = kind;
    return co::log_world(trace, std::move(clusters), terms, o.terms);
}

Result<LogRow> row_of(const CoallocationOptions& o, const sim::SwfTrace& trace,
                      const std::string& policy, const std::string& placement) {
    LogRow row{policy, by_market(policy) ? "its own" : placement, 0, {}};
    co::LogTerms full = o.log_terms;
    full.backlog = backlog;
    TRY_ASSIGN(co::World world, world_of(o, trace, full));
    TRY_ASSIGN(const co::Outcome outcome, run_world(o, world, policy, placement));
    row.most = co::steady_utilisation(world, outcome);
    for (const double load : o.loads) {
        co::LogTerms some = o.log_terms;
        some.load = load;
        TRY_ASSIGN(co::World arrivals, world_of(o, trace, some));
        TRY_ASSIGN(const co::Outcome at, run_world(o, arrivals, policy, placement));
        row.loads.push_back({load, co::figures_of(arrivals, at)});
    }
    return row;
}

StudyText text_of(const CoallocationOptions& o, const std::vector<LogRow>& rows) {
    StudyText out;
    out.table = fmt::format("{:<18} {:<15} {:>8}", "policy", "placement", "most %");
    for (const double load : o.loads) out.table += fmt::format(" {:>14}", load);
    out.table += "   (mean response s / longest wait s at these loads)\n";
    out.csv =
        "policy,placement,utilisation_max,load,response_s,wait_s,wait_max_s,utilisation,"
        "moves,freezes\n";
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const LogRow& r : rows) {
        out.table += fmt::format("{:<18} {:<15} {:>8.1f}", r.policy, r.placement, 100 * r.most);
        nlohmann::ordered_json loads = nlohmann::ordered_json::array();
        for (const AtLoad& at : r.loads) {
            const co::Figures& f = at.figures;
            out.table += fmt::format(" {:>7.0f}/{:>6.0f}", f.response_s, f.wait_max_s);
            out.csv += fmt::format("{},{},{:.5g},{},{:.6g},{:.6g},{:.6g},{:.5g},{},{}\n", r.policy,
                                   r.placement, r.most, at.load, f.response_s, f.wait_s,
                                   f.wait_max_s, f.utilisation, f.moves, f.freezes);
            loads.push_back({{"load", at.load},
                             {"response_s", f.response_s},
                             {"wait_s", f.wait_s},
                             {"wait_max_s", f.wait_max_s},
                             {"utilisation", f.utilisation},
                             {"moves", f.moves},
                             {"freezes", f.freezes}});
        }
        out.table += "\n";
        json.push_back({{"policy", r.policy},
                        {"placement", r.placement},
                        {"utilisation_max", r.most},
                        {"loads", loads}});
    }
    out.json = json.dump(2) + "\n";
    return out;
}

}  // namespace

Result<StudyText> log_study(const CoallocationOptions& o) {
    TRY_ASSIGN(const sim::SwfTrace trace, sim::read_swf(o.log));
    std::vector<std::string> policies = o.policies;
    if (policies.empty()) {
        for (const co::PolicyEntry& entry : co::policies()) policies.emplace_back(entry.name);
        policies.emplace_back("market");
    }
    std::vector<LogRow> rows;
    for (const std::string& policy : policies)
        for (const std::string& placement : o.placements) {
            if (by_market(policy) && placement != o.placements.front()) continue;
            TRY_ASSIGN(LogRow row, row_of(o, trace, policy, placement));
            rows.push_back(std::move(row));
        }
    return text_of(o, rows);
}

}  // namespace souk::tools
