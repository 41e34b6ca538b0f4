// SPDX-License-Identifier: GPL-2.0-or-later
// The simulator. Prints one JSON object:
// - example: whether the published example has its published figures;
// - traces: CPU milliseconds from unpacked SWF text on disk to the metrics (median of 5 runs), and
// of the policy alone,
//   for SDSC-SP2 (128 processors) and HPC2N (240), with the ratio of greedy migration to our own
//   FCFS;
// - scale: the same for synthetic logs of 10,000, 100,000 and 1,000,000 jobs (load 0.9 on 256
// processors), and the peak
//   memory of a process of its own that replays them, per job (the text is streamed: all of it is
//   the jobs').
// - solver: greedy migration of DAS2 by its special path and by the market's solver, in one run.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernel/base/check.hpp"
#include "kernel/base/rng.hpp"
#include "kernel/sys/host/clock.hpp"
#include "market/sim/files.hpp"
#include "market/sim/replay.hpp"
#include "market/sim/replay_solver.hpp"
#include "market/sim/report.hpp"

using namespace souk;
using namespace souk::sim;

namespace {

double cpu_ms() { return process_cpu_time().ms(); }

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

struct Cost {
    double all_ms = 0, policy_ms = 0, mean_wait_s = 0;
    size_t jobs = 0;
};

Schedule run_policy(const std::string& policy, const SwfTrace& trace, const Workload& w,
                    int64_t cpus) {
    if (policy == "fcfs") return replay_fcfs(w.jobs, cpus);
    if (policy == "easy") return replay_easy(w.jobs, cpus);
    if (policy == "balance") return replay_balance(w.jobs, cpus);
    return replay_greedy_migration(
        w.jobs, cpus, terms_of(trace, w, *parse_distribution("uniform 10 60"), 1, 100, 0));
}

Cost once(const std::string& path, const std::string& policy, int64_t cpus) {
    const double begin = cpu_ms();
    const Result<SwfTrace> trace = read_swf(path);
    MUST(trace.has_value());
    const Workload w = workload_of(*trace, cpus, Procs::requested, Estimates::user);
    const double ready = cpu_ms();
    const Schedule schedule = run_policy(policy, *trace, w, cpus);
    const double done = cpu_ms();
    const ReplayMetrics m = metrics_of(w.jobs, schedule, cpus);
    return {cpu_ms() - begin, done - ready, m.mean_wait_s, w.jobs.size()};
}

Cost measure(const std::string& path, const std::string& policy, int64_t cpus, int rounds) {
    std::vector<double> all, policy_only;
    Cost cost;
    for (int i = 0; i < rounds; ++i) {
        cost = once(path, policy, cpus);
        all.push_back(cost.all_ms);
        policy_only.push_back(cost.policy_ms);
    }
    cost.all_ms = median(all);
    cost.policy_ms = median(policy_only);
    return cost;
}

// Bytes that a fresh process (this program again, as `bench_sim --peak ...`) needs at its peak
// beyond what it began with.
int64_t peak_bytes(const std::string& path, const std::string& policy, int64_t cpus) {
    const std::string command = "/proc/" + std::to_string(getpid()) + "/exe --peak '" + path +
                                "' " + policy + " " + std::to_string(cpus);
    std::FILE* answer = popen(command.c_str(), "r");
    MUST(answer != nullptr);
    long long bytes = 0;
    MUST(std::fscanf(answer, "%lld", &bytes) == 1 && pclose(answer) == 0);
    return bytes;
}

int print_peak(const std::string& path, const std::string& policy, int64_t cpus) {
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    once(path, policy, cpus);
    getrusage(RUSAGE_SELF, &after);
    std::printf("%lld\n", (static_cast<long long>(after.ru_maxrss) - before.ru_maxrss) * 1024);
    return 0;
}

// A log of load 0.9 on 256 processors: exponential-like gaps and runs, mostly small jobs, estimates
// 1 to 5 times the run.
void write_synthetic(const std::string& path, int64_t jobs) {
    Rng rng(1);
    std::ofstream out(path);
    double t = 0;
    for (int64_t i = 1; i <= jobs; ++i) {
        const int64_t run = 1 + static_cast<int64_t>(rng.unit() * rng.unit() * 14'400);
        const int64_t procs = rng.chance(0.5) ? rng.between(1, 8) : int64_t{1} << rng.below(7);
        t += rng.unit() * 2 * 3'600 * 11.4 / (256 * 0.9);
        out << i << ' ' << static_cast<int64_t>(t) << " -1 " << run << ' ' << procs << " -1 -1 "
            << procs << ' ' << run * rng.between(1, 5) << " -1 1 " << rng.below(100)
            << " -1 -1 -1 -1 -1 -1\n";
    }
}

bool example_is_exact() {
    std::string jobs, providers;
    for (int i = 1; i <= 5; ++i) {
        providers += std::to_string(i) + " 0 -1 10 1000 1 100\n";
        jobs += std::to_string(i) + " 0 50 " + std::to_string(25 - i) + " 100 1\n";
    }
    const auto j = *parse_jobs(jobs + "6 5 45 25 100 1\n7 10 40 26 100 1\n");
    const RunReport r = report_of(j, 5, *run_market(j, *parse_providers(providers), {}), 10);
    return r.weighted_completion_s == 9446 && r.weighted_stay_s == 9487 && r.operation_s == 2 &&
           r.concurrent_freezes_max == 2 && r.freezes_total == 4 && r.moves_total == 0;
}

const char* const policies[] = {"fcfs", "easy", "balance", "greedy_migration"};

void print_costs(const std::string& path, int64_t cpus, int rounds, bool memory) {
    double fcfs_ms = 0;
    for (const char* policy : policies) {
        const int64_t bytes = memory ? peak_bytes(path, policy, cpus) : 0;
        const Cost c = measure(path, policy, cpus, rounds);
        if (policy == policies[0]) fcfs_ms = c.all_ms;
        std::printf(
            "%s{\"policy\": \"%s\", \"jobs\": %zu, \"cpu_ms\": %.2f, \"policy_ms\": %.2f, "
            "\"of_fcfs\": %.2f, "
            "\"us_per_job\": %.3f, \"mean_wait_s\": %.2f",
            policy == policies[0] ? "" : ",\n    ", policy, c.jobs, c.all_ms, c.policy_ms,
            c.all_ms / fcfs_ms, c.all_ms * 1e3 / static_cast<double>(c.jobs), c.mean_wait_s);
        if (memory)
            std::printf(", \"peak_bytes_per_job\": %.0f",
                        static_cast<double>(bytes) / static_cast<double>(c.jobs));
        std::printf("}");
    }
}

void unpack(const std::string& from, const std::string& to) {
    const std::string command = "zcat '" + from + "' > '" + to + "'";
    MUST(std::system(command.c_str()) == 0);
}

void print_solver(const std::string& path) {
    const SwfTrace trace = *read_swf(path);
    const Workload w = workload_of(trace, 64, Procs::requested, Estimates::user);
    ReplayTerms terms = terms_of(trace, w, *parse_distribution("uniform 10 60"), 1, 0, 0);
    const double a = cpu_ms();
    const Schedule special = replay_greedy_migration(w.jobs, 64, terms);
    const double b = cpu_ms();
    const auto generic = replay_with_solver(trace, w.jobs, 64, terms, {});
    const double c = cpu_ms();
    std::printf(
        ",\n  \"solver\": {\"trace\": \"DAS2-fs1\", \"special_path_ms\": %.2f, "
        "\"market_solver_ms\": %.2f, \"equal\": "
        "%s}",
        b - a, c - b, generic && generic->end_s == special.end_s ? "true" : "false");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 5 && std::string(argv[1]) == "--peak")
        return print_peak(argv[2], argv[3], std::atoll(argv[4]));
    if (argc > 1) {
        std::fprintf(
            stderr,
            "bench_sim: unknown argument '%s': it takes none (SOUK_TRACES names the traces)\n",
            argv[1]);
        return 2;
    }
    char name[] = "/tmp/souk-bench-sim-XXXXXX";
    const std::string directory = mkdtemp(name);
    const char* named = std::getenv("SOUK_TRACES");
    const std::string traces = named ? named : "../shared/traces";
    std::printf("{\"example_exact\": %s,\n  \"scale\": [", example_is_exact() ? "true" : "false");
    const char* comma = "";
    for (const int64_t jobs : {10'000, 100'000, 1'000'000}) {
        const std::string path = directory + "/synthetic.swf";
        write_synthetic(path, jobs);
        std::printf("%s", comma);
        print_costs(path, 256, jobs > 100'000 ? 3 : 9, true);
        comma = ",\n    ";
    }
    std::printf("],\n  \"traces\": {");
    comma = "";
    if (std::filesystem::is_directory(traces)) {
        for (const auto& [trace, cpus] :
             {std::pair{"SDSC-SP2-1998-4.2-cln", 128}, std::pair{"HPC2N-2002-2.2-cln", 240}}) {
            const std::string path = directory + "/" + trace + ".swf";
            unpack(traces + "/" + trace + ".swf.gz", path);
            std::printf("%s\"%s\": [", comma, trace);
            print_costs(path, cpus, 5, false);
            std::printf("]");
            comma = ",\n  ";
        }
        std::printf("}");
        print_solver(traces + "/DAS2-fs1-2003-1.swf.gz");
        std::printf("}\n");
    } else {
        std::fprintf(stderr,
                     "no traces in '%s' (set SOUK_TRACES): only the synthetic logs were measured\n",
                     traces.c_str());
        std::printf("}}\n");
    }
    std::filesystem::remove_all(directory);
    return 0;
}
