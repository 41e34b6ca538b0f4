// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim replay: a trace through a policy on one machine of N processors.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernel/sys/host/clock.hpp"
#include "market/sim/files.hpp"
#include "market/sim/replay.hpp"
#include "market/sim/replay_solver.hpp"
#include "tools/marketsim/cli.hpp"
#include "tools/marketsim/market_options.hpp"
#include "tools/marketsim/verbs.hpp"

namespace souk::tools {
namespace {

using namespace sim;

constexpr const char* replay_conventions = R"(Conventions:
  Jobs go by submit time, equal ones in the order of the log. Dropped, and counted: jobs of
  unknown submit or run time (-1), jobs without any number of processors, jobs that need
  more than --cpus. A run time of 0 counts as 1 s. Every job runs as long as it did in the
  log: nothing is killed. --procs requested: the requested number, or the allocated one
  where none was requested; allocated: the other way round. --estimates user: the requested
  time, raised to the run time where it is shorter, the run time where there is none; exact:
  the run time. Only easy looks at estimates.
  At one instant jobs end, then arrivals queue, then the policy acts.
  wait = end - submit - run; slowdown = (end - submit) / run; bounded slowdown = max(1, (end
  - submit) / max(run, 10 s));
  makespan: first submit to last end; utilisation: work of all jobs / (cpus x makespan).
  Means are over all jobs kept.
  balance: load balancing by migration without prices (processors are time-shared evenly;
  each moved process is one migration).
  greedy_migration: the market's default algorithm on one machine: at every moment the jobs
  in order of value run, each that fits beside those before it; the others are frozen. A log
  has no prices: values are drawn from --values with --seed. A freeze and a thaw take memory
  / --disk each (memory: used, else requested, else --memory, per processor x processors),
  rounded up to seconds; processors are released at once and held during the thaw.
  proportional_share: the market's solver on one provider of --cpus CPUs, in turns of
  --quantum: each user of the log gets processor time in proportion to the sum of the values
  of its jobs; freezes and thaws cost the same as above.
  cpu_s is the CPU time of the whole program, reading included; policy_cpu_s that of the
  policy alone. They are the only figures that differ between two runs.)";

struct ReplayOptions {
    std::string trace, json, csv, per_job;
    std::vector<std::string> policies{"easy"};
    std::string procs = "requested", estimates = "user";
    Distribution distribution;
    int64_t cpus = 0, disk = 100, memory = 0, seed = 1;
    market::SolverOptions solver;  // of the policies that are the market's algorithms
};

constexpr const char* known_policies[] = {"fcfs", "easy", "balance", "greedy_migration",
                                          "proportional_share"};

struct Outcome {
    std::string policy;
    ReplayMetrics metrics;
    Dropped dropped;
    Schedule schedule;
    double policy_cpu_s = 0;
};

Result<Schedule> run_policy(const std::string& policy, const ReplayOptions& options,
                            const SwfTrace& trace, const Workload& workload) {
    if (policy == "fcfs") return replay_fcfs(workload.jobs, options.cpus);
    if (policy == "easy") return replay_easy(workload.jobs, options.cpus);
    if (policy == "balance") return replay_balance(workload.jobs, options.cpus);
    const ReplayTerms terms =
        terms_of(trace, workload, options.distribution, static_cast<uint64_t>(options.seed),
                 options.disk, options.memory);
    if (policy == "greedy_migration")
        return replay_greedy_migration(workload.jobs, options.cpus, terms);
    market::SolverOptions solver = options.solver;
    solver.algorithm = policy;
    return replay_with_solver(trace, workload.jobs, options.cpus, terms, solver);
}

nlohmann::ordered_json json_of(const ReplayOptions& options, const Outcome& outcome) {
    const ReplayMetrics& m = outcome.metrics;
    return {{"trace", std::filesystem::path(options.trace).filename().string()},
            {"policy", outcome.policy},
            {"cpus", options.cpus},
            {"procs", options.procs},
            {"estimates", options.estimates},
            {"jobs", m.jobs},
            {"dropped",
             {{"unknown_submit", outcome.dropped.unknown_submit},
              {"unknown_run", outcome.dropped.unknown_run},
              {"no_procs", outcome.dropped.no_procs},
              {"too_large", outcome.dropped.too_large}}},
            {"mean_wait_s", m.mean_wait_s},
            {"mean_slowdown", m.mean_slowdown},
            {"mean_bounded_slowdown", m.mean_bounded_slowdown},
            {"makespan_s", m.makespan_s},
            {"utilisation", m.utilisation},
            {"migrations", outcome.schedule.migrations},
            {"freezes", outcome.schedule.freezes},
            {"policy_cpu_s", outcome.policy_cpu_s},
            {"cpu_s", process_cpu_time().seconds()}};
}

// One policy: an object; several: a list of them.
std::string json_text(const ReplayOptions& options, const std::vector<Outcome>& outcomes) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const Outcome& o : outcomes) json.push_back(json_of(options, o));
    if (outcomes.size() == 1) json = nlohmann::ordered_json(json[0]);
    return json.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string csv_text(const ReplayOptions& options, const std::vector<Outcome>& outcomes) {
    std::string out =
        "policy,cpus,jobs,dropped,mean_wait_s,mean_slowdown,mean_bounded_slowdown,makespan_s,"
        "utilisation,migrations,freezes\n";
    for (const Outcome& o : outcomes)
        out += fmt::format("{},{},{},{},{:.10g},{:.10g},{:.10g},{},{:.10g},{},{}\n", o.policy,
                           options.cpus, o.metrics.jobs, o.dropped.total(), o.metrics.mean_wait_s,
                           o.metrics.mean_slowdown, o.metrics.mean_bounded_slowdown,
                           o.metrics.makespan_s, o.metrics.utilisation, o.schedule.migrations,
                           o.schedule.freezes);
    return out;
}

std::string table(const std::vector<Outcome>& outcomes) {
    std::string out = fmt::format("{:<20} {:>12} {:>12} {:>12} {:>12} {:>8} {:>10} {:>10} {:>10}\n",
                                  "policy", "wait s", "slowdown", "bounded", "makespan s", "util",
                                  "migr", "freezes", "CPU s");
    for (const Outcome& o : outcomes)
        out += fmt::format(
            "{:<20} {:>12.2f} {:>12.4f} {:>12.4f} {:>12} {:>8.4f} {:>10} {:>10} {:>10.4f}\n",
            o.policy, o.metrics.mean_wait_s, o.metrics.mean_slowdown,
            o.metrics.mean_bounded_slowdown, o.metrics.makespan_s, o.metrics.utilisation,
            o.schedule.migrations, o.schedule.freezes, o.policy_cpu_s);
    return out;
}

std::string human_text(const ReplayOptions& options, const Outcome& outcome) {
    const ReplayMetrics& m = outcome.metrics;
    const Dropped& d = outcome.dropped;
    return fmt::format(
        "policy                 {} on {} processors\njobs                   {} ({} dropped: {} of "
        "unknown submit time, "
        "{} of unknown run time, {} without processors, {} too large)\nmean wait              "
        "{:.2f} s\n"
        "mean slowdown          {:.4f}\nmean bounded slowdown  {:.4f}\nmakespan               {} "
        "s\n"
        "utilisation            {:.4f}\nmigrations             {}\nfreezes and thaws      {}\n"
        "CPU time               {:.4f} s ({:.4f} s of it the policy)\n",
        outcome.policy, options.cpus, m.jobs, d.total(), d.unknown_submit, d.unknown_run,
        d.no_procs, d.too_large, m.mean_wait_s, m.mean_slowdown, m.mean_bounded_slowdown,
        m.makespan_s, m.utilisation, outcome.schedule.migrations, outcome.schedule.freezes,
        process_cpu_time().seconds(), outcome.policy_cpu_s);
}

std::string per_job_text(const SwfTrace& trace, const Workload& workload,
                         const Schedule& schedule) {
    std::string out = "job,submit_s,end_s,run_s,procs\n";
    for (size_t i = 0; i < workload.jobs.size(); ++i) {
        const ReplayJob& job = workload.jobs[i];
        fmt::format_to(std::back_inserter(out), "{},{},{},{},{}\n", trace.jobs[job.source].id,
                       job.submit_s, schedule.end_s[i], job.run_s, job.procs);
    }
    return out;
}

Status replay(ReplayOptions& options) {
    TRY_ASSIGN(const SwfTrace trace, read_swf(options.trace));
    TRY_ASSIGN(options.cpus, processors_of(trace, options.trace, options.cpus));
    const Workload workload = workload_of(
        trace, options.cpus, options.procs == "requested" ? Procs::requested : Procs::allocated,
        options.estimates == "user" ? Estimates::user : Estimates::exact);
    std::vector<Outcome> outcomes;
    for (const std::string& policy : options.policies) {
        Outcome& outcome = outcomes.emplace_back();
        outcome.policy = policy;
        outcome.dropped = workload.dropped;
        const double before = process_cpu_time().seconds();
        TRY_ASSIGN(outcome.schedule, run_policy(policy, options, trace, workload));
        outcome.policy_cpu_s = process_cpu_time().seconds() - before;
        outcome.metrics = metrics_of(workload.jobs, outcome.schedule, options.cpus);
    }
    const Outcome& first = outcomes.front();
    OutputFiles files;
    files.spare(options.trace);
    const std::string json = options.json.empty() ? "" : json_text(options, outcomes);
    const std::string csv = options.csv.empty() ? "" : csv_text(options, outcomes);
    if (!options.json.empty() && options.json != "-") TRY(files.add(options.json, json));
    if (!options.csv.empty() && options.csv != "-") TRY(files.add(options.csv, csv));
    if (!options.per_job.empty())
        TRY(files.add(options.per_job, per_job_text(trace, workload, first.schedule)));
    TRY(files.commit());
    if (options.json == "-") return print(json);
    if (options.csv == "-") return print(csv);
    return print(outcomes.size() == 1 ? human_text(options, first) : table(outcomes));
}

}  // namespace

int marketsim_replay(int argc, char** argv) {
    ReplayOptions options;
    CommandLine line{
        .tool = "marketsim replay",
        .summary = "A job log straight through a scheduling policy on one machine of N processors.",
        .options = {option(0, "policy", options.policies,
                           one_of({std::begin(known_policies), std::end(known_policies)}),
                           "the policy, or several with commas, side by side", Default::shown)},
        .footer = replay_conventions,
        .arguments = {
            {"trace", "the log: Standard Workload Format, text or gzip", set_text(options.trace)}}};
    std::vector<Option>& rows = line.options;
    add_log_options(rows, options.cpus, options.distribution);
    rows.push_back(option(0, "procs", options.procs, one_of({"requested", "allocated"}),
                          "which number of processors a job has", Default::shown));
    rows.push_back(option(0, "estimates", options.estimates, one_of({"user", "exact"}),
                          "which run times the policy expects", Default::shown));
    rows.push_back(
        option(0, "seed", options.seed, whole(0, INT64_MAX), "of the values", Default::shown));
    rows.push_back(option(0, "disk", options.disk, whole(0, 1'000'000),
                          "MB/s of freezes and thaws; 0: they take no time", Default::shown));
    options.solver.quantum = Nanos::from_s(600);
    add_solver_options(rows, options.solver);
    rows.push_back(option(0, "memory", options.memory, megabytes(0, 1'000'000),
                          "memory per processor of a job whose memory the log does not know: MB, "
                          "or 4G",
                          Default::shown));
    rows.push_back(option(0, "json", options.json, file_name(),
                          "write the result to this file as JSON (-: to stdout)"));
    rows.push_back(option(0, "csv", options.csv, file_name(),
                          "write the result to this file as CSV, a line a policy (-: to stdout)"));
    rows.push_back(option(0, "per-job", options.per_job, file_name(),
                          "write each job's submit, end, run and processors to this file as CSV"));
    if (const auto status = parse_options(line, argc, argv)) return *status;
    if (options.policies.size() > 1 && !options.per_job.empty())
        return usage_error(line, "--per-job takes one policy");
    return exit_status(line, replay(options));
}

}  // namespace souk::tools
