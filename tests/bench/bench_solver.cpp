// SPDX-License-Identifier: GPL-2.0-or-later
// The allocation core at 100,000 jobs on 10,000 machines, against std::sort of the same jobs by
// value, one thread, in one run. Markets of the greedy: equal one-CPU machines; ten distinct
// speeds; machines of 16 CPUs with jobs of 1 to 4, where memory binds and where four speeds do;
// every machine of a speed of its own (one event then shifts thousands of jobs). Markets of the
// welfare algorithm: 20 classes with equal and with rising reserves, wide machines, a speed each.
// Prints one JSON object. For each market:
// - the sort, the solve of jobs and providers that the solver knows but has never placed (and the
// same with telling it
//   of them), their ratios: medians of CPU time, so that a busy machine does not blur them;
// - one event (arrival, departure, price change) with its solve: median, 99th percentile, maximum,
// changes. The same
//   events run three times and each event counts as the fastest of its three: what the work costs
//   is in all of them,
//   the time slices that others took in one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernel/base/rng.hpp"
#include "kernel/sys/host/clock.hpp"
#include "market/core/solver.hpp"

using namespace souk;
using namespace souk::market;

namespace {

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point t) {
    return std::chrono::duration<double, std::micro>(Clock::now() - t).count();
}

double cpu_us() { return process_cpu_time().ms() * 1e3; }

struct MarketShape {
    const char* name;
    int speeds;  // distinct ones; 1: all are standard
    int cpus_machine;
    int cpus_job;
    int memory_machine_mb;
    int memory_job_mb;
    int events = 20'000;
    const char* algorithm = "greedy_migration";
    int reserve_step = 0;  // units that each speed asks more than the one below
};

struct BenchJob {
    uint64_t key;
    JobDemand spec;
};

JobDemand random_job(Rng& rng, const MarketShape& m, int64_t arrival_ms) {
    JobDemand j;
    j.value = Money{rng.between(1'000'000, 1'000'000'000)};
    j.cpus = static_cast<int32_t>(rng.between(1, m.cpus_job));
    j.memory_mb = rng.between(1, m.memory_job_mb);
    j.user = static_cast<uint32_t>(rng.below(100));
    j.arrival = Nanos::from_ms(arrival_ms);
    return j;
}

double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
}

double sort_us(const std::vector<BenchJob>& jobs) {
    struct Row {
        Money value;
        Nanos arrival;
        uint64_t key;
        uint32_t index;
    };
    std::vector<Row> rows;
    rows.reserve(jobs.size());
    for (const BenchJob& j : jobs)
        rows.push_back({j.spec.value, j.spec.arrival, j.key, static_cast<uint32_t>(j.key)});
    const double begin = cpu_us();
    std::sort(rows.begin(), rows.end(),
              [](const Row& a, const Row& b) { return a.value > b.value; });
    const double us = cpu_us() - begin;
    if (rows[0].value < rows[1].value) std::abort();  // the sort is not optimised away
    return us;
}

void tell(Solver& solver, const MarketShape& shape, const std::vector<BenchJob>& jobs,
          int machines) {
    for (int i = 0; i < machines; ++i) {
        ProviderSpec p;
        p.reserve = Money::units(1 + i % shape.speeds * shape.reserve_step);
        p.speed = shape.speeds == 1 ? speed_standard : 50 + i % shape.speeds;
        p.cpus = shape.cpus_machine;
        p.memory_mb = shape.memory_machine_mb;
        solver.add_provider(ProviderKey{static_cast<uint64_t>(i) + 1}, p);
    }
    for (const BenchJob& j : jobs) solver.add_job(JobKey{j.key}, j.spec);
}

// Lowers each entry of `us` to what the event took this time; the changes of all.
size_t run_events(Solver& solver, const MarketShape& shape, const std::vector<BenchJob>& jobs,
                  std::vector<double>& us) {
    Rng rng(2027);
    std::vector<uint64_t> keys;
    keys.reserve(jobs.size());
    for (const BenchJob& j : jobs) keys.push_back(j.key);
    uint64_t next = jobs.size() + 1;
    size_t changes = 0;
    for (size_t i = 0; i < us.size(); ++i) {
        const JobDemand fresh = random_job(rng, shape, static_cast<int64_t>(jobs.size() + i));
        const size_t victim = rng.below(keys.size());
        const auto t = Clock::now();
        if (i % 3 == 0)
            solver.add_job(JobKey{next}, fresh);
        else if (i % 3 == 1)
            solver.remove_job(JobKey{keys[victim]});
        else
            solver.change_value(JobKey{keys[victim]}, fresh.value);
        changes += solver.solve(Nanos::from_s(static_cast<int64_t>(i) + 2)).size();
        us[i] = std::min(us[i], us_since(t));
        if (i % 3 == 0)
            keys.push_back(next++);
        else if (i % 3 == 1)
            keys[victim] = keys.back(), keys.pop_back();
    }
    return changes;
}

void run(const MarketShape& shape, int jobs, int machines) {
    constexpr int rounds = 9, event_rounds = 3;
    Rng rng(2026);
    std::vector<BenchJob> all;
    all.reserve(static_cast<size_t>(jobs));
    for (int i = 0; i < jobs; ++i)
        all.push_back({static_cast<uint64_t>(i) + 1, random_job(rng, shape, i)});
    std::vector<double> sorts, solves, tolds;
    std::vector<double> event_us(static_cast<size_t>(shape.events), 1e12);
    size_t changes = 0;
    Solver solver;
    SolverOptions options;
    options.algorithm = shape.algorithm;
    if (!solver.set_options(options)) std::abort();
    for (int r = 0; r < rounds; ++r) {
        sorts.push_back(sort_us(all));
        solver.clear();
        const double begin = cpu_us();
        tell(solver, shape, all, machines);
        const double told = cpu_us();
        if (solver.solve(Nanos::from_s(1)).empty()) std::abort();
        const double solved = cpu_us();
        solves.push_back(solved - told);
        tolds.push_back(solved - begin);
        if (r >= rounds - event_rounds) changes = run_events(solver, shape, all, event_us);
    }
    const double pay = cpu_us();
    // the integral: see mixed_payments
    const size_t payments = shape.cpus_job == 1 ? solver.payments().size() : 0;
    const double payments_us = cpu_us() - pay;
    std::sort(event_us.begin(), event_us.end());
    const double sorted = median(sorts), solved = median(solves), told = median(tolds);
    std::printf(
        "  {\"name\": \"%s\", \"jobs\": %d, \"machines\": %d, \"sort_ms\": %.3f, \"solve_ms\": "
        "%.3f, "
        "\"ratio\": %.2f, \"told_and_solve_ms\": %.3f, \"told_ratio\": %.2f, \"event_us_median\": "
        "%.2f, "
        "\"event_us_p99\": %.1f, \"event_us_max\": %.0f, \"changes_per_event\": %.1f, "
        "\"payments\": %zu, "
        "\"payments_ms\": %.2f},\n",
        shape.name, jobs, machines, sorted / 1e3, solved / 1e3, solved / sorted, told / 1e3,
        told / sorted, median(event_us), event_us[event_us.size() * 99 / 100], event_us.back(),
        static_cast<double>(changes) / shape.events, payments, payments_us / 1e3);
}

// The prices of all running jobs where CPUs and memory break the ranking: one integral each.
void mixed_payments(uint64_t jobs, uint64_t machines, int rounds, bool last) {
    const MarketShape shape{"payments of a mixed market", 4, 16, 4, 8192, 2048};
    Rng rng(7);
    Solver solver;
    for (uint64_t i = 1; i <= machines; ++i) {
        ProviderSpec p;
        p.reserve = Money::units(1);
        p.speed = 50 + static_cast<int32_t>(i) % shape.speeds;
        p.cpus = shape.cpus_machine;
        p.memory_mb = shape.memory_machine_mb;
        solver.add_provider(ProviderKey{i}, p);
    }
    std::vector<double> us;
    for (uint64_t i = 1; i <= jobs; ++i)
        solver.add_job(JobKey{i}, random_job(rng, shape, static_cast<int64_t>(i)));
    size_t payments = 0;
    for (int r = 0; r < rounds; ++r) {
        solver.change_value(JobKey{1}, Money::units(r + 1));  // the cache is stale
        solver.solve(Nanos::from_s(r));
        const double begin = cpu_us();
        payments = solver.payments().size();
        us.push_back(cpu_us() - begin);
    }
    const double all_us = median(us);
    us.clear();
    for (int r = 0; r < 9; ++r) {  // what an order needs: the price of one job after a change
        solver.change_value(JobKey{1}, Money::units(r + 2));
        solver.solve(Nanos::from_s(rounds + r));
        const JobKey one = solver.guests(ProviderKey{static_cast<uint64_t>(r) + 1}).at(0);
        const double begin = cpu_us();
        if (!solver.price(one)) std::abort();
        us.push_back(cpu_us() - begin);
    }
    std::printf(
        "  {\"name\": \"%s\", \"jobs\": %lu, \"machines\": %lu, \"payments\": %zu, "
        "\"payments_ms\": %.2f, "
        "\"one_price_ms\": %.3f}%s\n",
        shape.name, static_cast<unsigned long>(jobs), static_cast<unsigned long>(machines),
        payments, all_us / 1e3, median(us) / 1e3, last ? "" : ",");
}
}  // namespace

int main(int argc, char** argv) {
    if (argc > 1) {
        std::fprintf(stderr, "bench_solver: unknown argument '%s': it takes none\n", argv[1]);
        return 2;
    }
    const MarketShape shapes[] = {
        {"equal machines", 1, 1, 1, 4096, 1024},
        {"ten speeds", 10, 1, 1, 4096, 1024},
        {"16 CPUs, memory binds", 1, 16, 4, 8192, 2048},
        {"16 CPUs, four speeds", 4, 16, 4, 65536, 2048},
        {"a speed each", 10'000, 1, 1, 4096, 1024, 1'000},
        {"welfare, 20 classes", 20, 1, 1, 4096, 1024, 20'000, "welfare"},
        {"welfare, 20 classes and reserves", 20, 1, 1, 4096, 1024, 20'000, "welfare", 48},
        {"welfare, 16 CPUs, four speeds", 4, 16, 4, 65536, 2048, 20'000, "welfare", 100},
        {"welfare, a speed each", 10'000, 1, 1, 4096, 1024, 200, "welfare"},
    };
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::printf("{\"bench\": \"solver\", \"results\": [\n");
    for (const MarketShape& s : shapes) run(s, 100'000, 10'000);
    mixed_payments(1'000, 100, 9, false);
    mixed_payments(10'000, 1'000, 3, true);
    std::printf("]}\n");
    return 0;
}
