// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: this node's figures for Prometheus, and its status for scripts.
#include <map>

#include "agentd/daemon/agent.hpp"
#include "kernel/base/version.hpp"

namespace souk {

Status Agent::open_metrics() {
    if (!config_.status_file.empty())
        status_file_ = std::make_unique<StatusFile>(
            loop_, log_, "agentd", config_.status_file, config_.status_every,
            [this] { return status_lines(); },
            [this](const std::string&, std::string_view text) { return root_.put_status(text); });
    if (config_.metrics.empty()) return {};
    metrics_page_ = std::make_unique<MetricsPage>(loop_, [this] { return metrics(); });
    if (const Status listens = metrics_page_->listen(config_.metrics); !listens)
        return wrap("metrics: " + config_.metrics, listens.error());
    return {};
}

std::vector<Metric> Agent::metrics() const {
    constexpr double megabyte = 1 << 20;
    const auto units = [](Money m) { return static_cast<double>(m.micro) / 1e6; };
    const ProviderReport r = offer_->provider().report();
    std::map<std::string, double> phases;
    for (int p = static_cast<int>(JobPhase::waiting); p < static_cast<int>(JobPhase::finished); ++p)
        phases[to_string(static_cast<JobPhase>(p))] = 0;
    for (const auto& [seq, job] : home_->machine().jobs())
        if (job.phase != JobPhase::finished) ++phases[to_string(job.phase)];
    Metric jobs{
        "souk_node_home_jobs", "Unfinished jobs that were submitted here, by phase.", false, {}};
    for (const auto& [phase, n] : phases) jobs.samples.push_back({{{"phase", phase}}, n});
    Metric build{
        "souk_build_info", "The version of agentd.", false, {{{{"version", version()}}, 1}}};
    std::vector<Metric> all = {
        std::move(build),
        std::move(jobs),
        gauge("souk_node_guests", "Jobs that this node holds: that run, or lie here.",
              static_cast<double>(guests_->count())),
        gauge("souk_node_on_market", "1 while its owner offers it.", r.on_market ? 1 : 0),
        gauge("souk_node_can_take_jobs", "0 while something keeps it from taking jobs.",
              r.cannot.empty() ? 1 : 0),
        gauge("souk_node_market_connected", "1 while it has a connection to the market.",
              market_->connected() ? 1 : 0),
        gauge("souk_node_reserve_units", "The least per CPU-hour that its owner takes.",
              units(r.reserve)),
        gauge("souk_node_current_price_units", "What its guests pay per CPU-hour.",
              units(offer_->note().current_price)),
        gauge("souk_node_next_price_units", "The bid per CPU-hour that gets a place here.",
              units(offer_->note().next_price)),
        gauge("souk_node_earned_units", "What it has earned.", units(offer_->note().earned)),
        gauge("souk_node_cpus", "CPUs that it offers.", r.cpus),
        gauge("souk_node_speed", "Its speed; 100 is a standard machine.",
              static_cast<double>(r.speed)),
        gauge("souk_node_memory_bytes", "Memory that it offers.",
              static_cast<double>(r.memory_mb) * megabyte),
        gauge("souk_node_memory_free_bytes", "Of that, what is free.",
              static_cast<double>(r.free_mb) * megabyte),
        gauge("souk_node_load_ratio", "CPU time that its jobs use, of all its CPUs.",
              r.load_permille / 1e3),
        gauge("souk_node_wait_ratio", "Time that its jobs wait for a CPU, of all its CPUs.",
              r.wait_permille / 1e3)};
    if (const auto& pressure = load_.memory_pressure())
        all.push_back(gauge("souk_node_memory_pressure_ratio",
                            "Of the last 10 s, the part in which a task of the machine stood still "
                            "for want of memory.",
                            *pressure / 1e3));
    for (Metric& m : presence_->history().metrics()) all.push_back(std::move(m));
    for (Metric& m : guest_metrics()) all.push_back(std::move(m));
    return all;
}

std::vector<StatusLine> Agent::status_lines() const {
    const ProviderReport r = offer_->provider().report();
    size_t waiting = 0, frozen = 0, unfinished = 0;
    for (const auto& [seq, job] : home_->machine().jobs()) {
        unfinished += job.phase != JobPhase::finished;
        waiting += job.phase == JobPhase::waiting;
        frozen += job.phase == JobPhase::frozen;
    }
    return {{"node", config_.node},
            {"address", config_.address},
            {"market", market_->market()},
            {"market_connected", market_->connected()},
            {"market_trouble", market_->trouble()},
            {"on_market", r.on_market},
            {"cannot", r.cannot},
            {"guests", guests_->count()},
            {"home_jobs", unfinished},
            {"home_jobs_waiting", waiting},
            {"home_jobs_frozen", frozen},
            {"reserve", format_money(r.reserve)},
            {"current_price", format_money(offer_->note().current_price)},
            {"next_price", format_money(offer_->note().next_price)},
            {"earned", format_money(offer_->note().earned)},
            {"speed", r.speed},
            {"cpus", r.cpus},
            {"memory_mb", r.memory_mb},
            {"free_mb", r.free_mb},
            {"load_permille", r.load_permille},
            {"wait_permille", r.wait_permille}};
}

}  // namespace souk
