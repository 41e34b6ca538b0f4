// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/study/study.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "market/sim/files.hpp"

namespace souk::study {

std::string number(double value, int decimals) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return text;
}

std::string Table::text() const {
    std::string out = "\n" + name + "\n\n|";
    for (const std::string& c : columns) out += " " + c + " |";
    out += "\n|";
    for (size_t c = 0; c < columns.size(); ++c) out += "---|";
    for (const auto& row : rows) {
        out += "\n|";
        for (const std::string& cell : row) out += " " + cell + " |";
    }
    return out + "\n";
}

std::string Table::json() const {
    std::string out = "{\"name\": \"" + name + "\", \"rows\": [";
    for (size_t r = 0; r < rows.size(); ++r) {
        out += r > 0 ? ",\n  {" : "\n  {";
        for (size_t c = 0; c < columns.size(); ++c)
            out += (c > 0 ? ", \"" : "\"") + columns[c] + "\": \"" + rows[r][c] + "\"";
        out += "}";
    }
    return out + "]}";
}

double Sample::mean() const {
    double sum = 0;
    for (const double v : values) sum += v;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double Sample::half_width() const {
    if (values.size() < 2) return 0;
    const double m = mean();
    double sum = 0;
    for (const double v : values) sum += (v - m) * (v - m);
    const auto n = static_cast<double>(values.size());
    return 1.96 * std::sqrt(sum / (n - 1) / n);
}

double Sample::quantile(double part) const {
    if (values.empty()) return 0;
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const double at = part * static_cast<double>(sorted.size() - 1);
    return sorted[static_cast<size_t>(std::llround(at))];
}

std::string Sample::text(int decimals) const {
    return number(mean(), decimals) + " ± " + number(half_width(), decimals);
}

size_t quarter_of(Money value) {
    return static_cast<size_t>(std::clamp<int64_t>((value.micro / 1'000'000 - 10) * 4 / 51, 0, 3));
}

std::vector<Trace> read_traces(const std::string& directory) {
    std::vector<std::string> paths;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(directory, failed))
        if (entry.path().string().ends_with(".swf.gz")) paths.push_back(entry.path().string());
    if (paths.empty()) {
        std::fprintf(stderr, "study: no *.swf.gz in '%s' (--traces DIR)\n", directory.c_str());
        std::exit(1);
    }
    std::sort(paths.begin(), paths.end());
    std::vector<Trace> traces;
    for (const std::string& path : paths) {
        auto log = sim::read_swf(path);
        if (!log) {
            std::fprintf(stderr, "study: %s: %s\n", path.c_str(), log.error().message.c_str());
            std::exit(1);
        }
        std::stable_sort(
            log->jobs.begin(), log->jobs.end(),
            [](const sim::SwfJob& a, const sim::SwfJob& b) { return a.submit_s < b.submit_s; });
        std::string name = std::filesystem::path(path).filename().string();
        traces.push_back({name.substr(0, name.find('.')), std::move(*log)});
    }
    return traces;
}

std::string Kind::text() const {
    return std::string(wide ? "wide" : "one CPU") +
           (equal_reserves ? ", equal reserves" : ", reserves drawn");
}

sim::Imported workload_of(const Trace& trace, const Kind& kind, int64_t jobs, uint64_t seed) {
    constexpr double load_wanted = 1.1;
    Rng rng(seed);
    sim::ImportConfig config;
    config.users = true;
    config.seed = seed;
    config.providers = kind.machines > 0 ? kind.machines : kind.wide ? 4 : 16;
    config.provider_cpus = {sim::Distribution::Kind::fix, {kind.wide ? 16 : 1}};
    config.speed = {sim::Distribution::Kind::uniform, {60, 100}};
    if (kind.equal_reserves)
        config.reservation = {sim::Distribution::Kind::fix, {5}};
    else
        config.reservation = {sim::Distribution::Kind::uniform, {1, 20}};
    config.cpus = kind.wide ? sim::ImportCpus::allocated : sim::ImportCpus::one;
    const auto all = static_cast<int64_t>(trace.log.jobs.size());
    // Not all jobs of a stretch can be used: a few that are too wide, or have no run time.
    const int64_t stretch = std::min(all, 4 * jobs), from = rng.between(0, all - stretch);
    sim::SwfTrace part;
    part.jobs.assign(trace.log.jobs.begin() + from, trace.log.jobs.begin() + from + stretch);
    config.jobs_max = jobs;
    auto drawn = sim::import_trace(part, config);
    const auto load = drawn ? sim::offered_load(*drawn) : std::nullopt;
    if (load && *load > 0) {
        config.arrival_divisor_micro =
            std::max<int64_t>(1, static_cast<int64_t>(load_wanted / *load * 1e6));
        drawn = sim::import_trace(part, config);
    }
    constexpr uint64_t next = 1'000'003;
    if (drawn && load) return std::move(*drawn);
    return seed > 20 * next ? sim::Imported{} : workload_of(trace, kind, jobs, seed + next);
}

sim::RunOutcome run(const sim::Imported& workload, const sim::MarketRunOptions& options) {
    auto outcome = sim::run_market(workload.jobs, workload.providers, options);
    if (!outcome) {
        std::fprintf(stderr, "study: %s\n", outcome.error().message.c_str());
        std::exit(1);
    }
    return std::move(*outcome);
}

}  // namespace souk::study
