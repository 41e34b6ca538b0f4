// SPDX-License-Identifier: GPL-2.0-or-later
// Gangs in the solver: 1,000 of 2 to 64 components beside 10,000 single jobs on 2,000 machines of
// 32 CPUs, one thread. Components need one or two CPUs each, all of a gang the same, and every
// tenth gang has one that needs more; all together need about a fifth more than there is. With one
// speed and with four. Prints one JSON object. For each market the solve of what the solver has
// never placed (median of rounds, CPU time), one event (a gang or a job comes, goes or bids
// otherwise) with its solve: median, mean and 99th percentile of CPU time; and the price of one
// gang.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernel/base/rng.hpp"
#include "kernel/sys/host/clock.hpp"
#include "market/core/solver.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr int gangs = 1'000, singles = 10'000, machines = 2'000, events = 2'000;

double cpu_us() { return process_cpu_time().ms() * 1e3; }

// The keys of what bids: a gang by its first component.
struct Bidders {
    std::vector<uint64_t> keys;
    uint64_t next = 1;
};

Money random_value(Rng& rng) { return Money{rng.between(1'000'000, 1'000'000'000)}; }

JobDemand random_spec(Rng& rng, int64_t cpus_max, const Bidders& all) {
    JobDemand j;
    j.value = random_value(rng);
    j.cpus = static_cast<int32_t>(rng.between(1, cpus_max));
    j.memory_mb = rng.between(1, 2048);
    j.user = static_cast<uint32_t>(rng.below(100));
    j.arrival = Nanos::from_ms(static_cast<int64_t>(all.next));
    return j;
}

void add_single(Solver& solver, Rng& rng, Bidders& all) {
    const JobDemand j = random_spec(rng, 4, all);
    if (!solver.add_job(JobKey{all.next}, j)) std::abort();
    all.keys.push_back(all.next++);
}

void add_gang(Solver& solver, Rng& rng, Bidders& all) {
    const JobDemand j = random_spec(rng, 2, all);
    std::vector<JobDemand> components(static_cast<size_t>(rng.between(2, 64)), j);
    if (rng.below(10) == 0) components[0].cpus = 4;
    if (!solver.add_gang(JobKey{all.next}, components, components.size())) std::abort();
    all.keys.push_back(all.next);
    all.next += components.size();
}

void remove(Solver& solver, uint64_t key) {
    const auto gang = solver.gang(JobKey{key});
    if (!gang) {
        solver.remove_job(JobKey{key});
        return;
    }
    for (const JobKey component : gang->required) solver.remove_job(component);
}

void tell(Solver& solver, Rng& rng, Bidders& all, int speeds) {
    for (int i = 0; i < machines; ++i) {
        ProviderSpec p;
        p.reserve = Money::units(1);
        p.speed = speeds == 1 ? speed_standard : 50 + 25 * (i % speeds);
        p.cpus = 32;
        p.memory_mb = 131'072;
        solver.add_provider(ProviderKey{static_cast<uint64_t>(i) + 1}, p);
    }
    for (int i = 0; i < singles; ++i) {
        add_single(solver, rng, all);
        if (i % (singles / gangs) == 0) add_gang(solver, rng, all);
    }
}

void run(int speeds, bool last) {
    std::vector<double> solves, us;
    Solver solver;
    Bidders all;
    Rng rng(2028);
    for (int round = 0; round < 5; ++round) {
        solver = Solver();
        all = {};
        rng = Rng(2028);
        tell(solver, rng, all, speeds);
        const double begin = cpu_us();
        if (solver.solve(Nanos::from_s(1)).empty()) std::abort();
        solves.push_back(cpu_us() - begin);
    }
    size_t changes = 0;
    for (int i = 0; i < events; ++i) {
        const size_t one = rng.below(all.keys.size());
        const bool gang = rng.below(11) == 0;
        const double begin = cpu_us();
        if (i % 3 == 0) {
            gang ? add_gang(solver, rng, all) : add_single(solver, rng, all);
        } else if (i % 3 == 1) {
            remove(solver, all.keys[one]);
            all.keys[one] = all.keys.back();
            all.keys.pop_back();
        } else {
            solver.change_value(JobKey{all.keys[one]}, random_value(rng));
        }
        changes += solver.solve(Nanos::from_s(i + 2)).size();
        us.push_back(cpu_us() - begin);
    }
    double sum = 0;
    for (const double one : us) sum += one;
    std::sort(us.begin(), us.end());
    std::sort(solves.begin(), solves.end());
    size_t running = 0;
    double price_us = 0;
    for (const uint64_t key : all.keys) {
        const auto gang = solver.gang(JobKey{key});
        if (!gang || gang->speed == 0) continue;
        if (++running != static_cast<size_t>(gangs / 4)) continue;
        const double begin = cpu_us();
        if (!solver.price(gang->required.front())) std::abort();
        price_us = cpu_us() - begin;
    }
    std::printf(
        "  {\"name\": \"%s\", \"gangs\": %d, \"running_gangs\": %zu, \"jobs\": %d, "
        "\"machines\": %d, \"solve_ms\": %.2f, \"event_us_median\": %.1f, "
        "\"event_us_mean\": %.1f, \"event_us_p99\": %.1f, \"event_us_max\": %.1f, "
        "\"changes_per_event\": %.1f, \"one_price_ms\": %.2f}%s\n",
        speeds == 1 ? "one speed" : "four speeds", gangs, running, singles, machines,
        solves[solves.size() / 2] / 1e3, us[us.size() / 2], sum / events, us[us.size() * 99 / 100],
        us.back(), static_cast<double>(changes) / events, price_us / 1e3, last ? "" : ",");
}
}  // namespace

int main(int argc, char** argv) {
    if (argc > 1) {
        std::fprintf(stderr, "bench_gangs: unknown argument '%s': it takes none\n", argv[1]);
        return 2;
    }
    std::printf("{\"bench\": \"gangs\", \"results\": [\n");
    run(1, false);
    run(4, true);
    std::printf("]}\n");
    return 0;
}
