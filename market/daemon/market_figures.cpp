// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/market_figures.hpp"

#include <map>

#include "kernel/base/version.hpp"

namespace souk {

namespace {

double units(Money m) { return static_cast<double>(m.micro) / 1e6; }
double count(size_t n) { return static_cast<double>(n); }

Metric by(std::string name, std::string help, const char* label,
          const std::vector<std::pair<std::string, double>>& values) {
    Metric metric{std::move(name), std::move(help), false, {}};
    for (const auto& [value, number] : values) metric.samples.push_back({{{label, value}}, number});
    return metric;
}

}  // namespace

std::vector<Metric> MarketFigures::metrics() const {
    const Nanos now = Loop::now();
    const market::Totals t = market_.totals(now);
    std::map<std::string, double> nodes;
    for (const char* state : {"busy", "free", "off", "unable", "disconnected", "lost"})
        nodes[state] = 0;
    for (const auto& [name, node] : market_.nodes())
        if (of_site(name).site.empty()) ++nodes[market_.provider_state(node, now)];
    std::vector<Metric> all = {
        by("souk_build_info", "The version of marketd.", "version", {{version(), 1}}),
        by("souk_market_jobs", "Unfinished jobs by state.", "state",
           {{"waiting", count(t.waiting)},
            {"running", count(t.running)},
            {"frozen", count(t.frozen)},
            {"in_transit", count(t.in_transit)}}),
        gauge("souk_market_standing_jobs",
              "Of the frozen jobs those that stand in memory (stand_max_s).", count(t.standing)),
        counter("souk_market_finished_jobs_total", "Jobs that have ended.",
                static_cast<double>(records_.finished().newest())),
        by("souk_market_nodes", "Nodes by state.", "state", {nodes.begin(), nodes.end()}),
        gauge("souk_market_paid_units", "What all jobs have paid.", units(t.paid)),
        by("souk_market_surplus_units_per_hour", "What the present allocation gains, per hour.",
           "of",
           {{"consumers", units(t.surplus.consumers)}, {"providers", units(t.surplus.providers)}}),
        by("souk_market_decision_seconds", "From a report to the order that follows from it.",
           "rank", {{"p50", times_.within(500).seconds()}, {"p99", times_.within(990).seconds()}}),
        counter("souk_market_commits_total", "Commits of its records since it started.",
                static_cast<double>(records_.state().db().commits())),
        counter("souk_market_receipts_total", "Receipts of the ledger.",
                static_cast<double>(records_.book().newest().seq)),
        gauge("souk_market_warnings", "Warnings since it started.", count(warnings_.all().size())),
        gauge("souk_market_connections", "Connections of nodes and tools.",
              count(connections_.all().size())),
        gauge("souk_market_settling", "1 while it waits for its nodes after a start.",
              market_.settling() ? 1 : 0)};
    const auto& rows = market_.price_history().rows();
    if (!rows.empty() && rows.rbegin()->second.closed < rows.rbegin()->second.minutes)
        all.push_back(gauge("souk_market_place_price_units",
                            "The least bid per CPU-hour that got a place, in the last minute.",
                            units(rows.rbegin()->second.least)));
    return all;
}

std::vector<StatusLine> MarketFigures::status_lines() const {
    const Nanos now = Loop::now();
    const market::Totals t = market_.totals(now);
    size_t connected = 0, offered = 0;
    for (const auto& [name, node] : market_.nodes()) {
        connected += node.connected && of_site(name).site.empty();
        offered += node.connected && node.record.has_report && node.record.report.on_market;
    }
    return {{"market", config_.name},
            {"port", connections_.port()},
            {"solver", face().solver},
            {"pricing", market_.solver_options().pricing},
            {"settling", market_.settling()},
            {"nodes", market_.nodes().size()},
            {"nodes_connected", connected},
            {"nodes_offered", offered},
            {"jobs_waiting", t.waiting},
            {"jobs_running", t.running},
            {"jobs_frozen", t.frozen},
            {"jobs_in_transit", t.in_transit},
            {"jobs_finished", records_.finished().newest()},
            {"paid", format_money(t.paid)},
            {"warnings", warnings_.all().size()},
            {"warning", warnings_.all().empty() ? std::string() : warnings_.all().back()}};
}

MarketFace MarketFigures::face() const {
    MarketFace f{config_.name,
                 {connections_.port()},
                 market_.solver_options().algorithm,
                 records_.state().db().commits(),
                 times_.within(500),
                 times_.within(990),
                 warnings_.all()};
    for (std::string& trouble : programs_.troubles()) f.warnings.push_back(std::move(trouble));
    f.uncertified = trust_.uncertified();
    if (decision_log_) {
        const DecisionFiles& files = decision_log_->files();
        f.decisions = {files.number(), files.head(), files.bytes(), files.oldest(),
                       decision_log_->trouble()};
    }
    if (program_)
        f.solver =
            config_.solver_program.front() + (program_->works() ? "" : " (down; " + f.solver + ")");
    return f;
}

}  // namespace souk
