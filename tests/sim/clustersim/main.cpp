// SPDX-License-Identifier: GPL-2.0-or-later
// clustersim: the cluster simulator (tests/sim/cluster.hpp) by seed, any number of them. A seed
// that fails is run again with ever fewer of its faults, and the shortest of those runs is printed:
// its first line says how to have it again.
#include <cstdio>
#include <optional>

#include "kernel/base/json.hpp"
#include "kernel/sys/host/clock.hpp"
#include "tests/sim/fault_table.hpp"
#include "tools/common/typed_options.hpp"

namespace souk::sim {
namespace {

constexpr int shorter_runs_max = 2'000;
constexpr Nanos shorter_max = Nanos::from_s(30);  // of CPU time

struct Run {
    std::string failure;
    Cluster::Counts counts;
    Nanos end;
    std::deque<std::string> trace;
};

Run run(uint64_t seed, Mutation mutation, ClusterSize size, const Faults& faults, bool trace) {
    Cluster cluster(seed, mutation, trace, size, faults);
    Run r;
    r.failure = cluster.run();
    r.counts = cluster.counts();
    r.end = cluster.now();
    r.trace = cluster.trace();
    return r;
}

// Fewer faults with which that seed still fails, in whatever way: first the last ones are left out,
// then ever smaller stretches of those before, until none can be spared. What is left out changes
// what comes after, so the fewest need not be found. (Zeller, Hildebrandt: 'Simplifying and
// Isolating Failure-Inducing Input', TSE 2002, in its simplest form.)
Faults fewest(uint64_t seed, Mutation mutation, ClusterSize size, uint64_t seen) {
    Faults best;
    int runs = 0;
    const Nanos began = process_cpu_time();
    const auto fails = [&](const Faults& f) {
        return ++runs <= shorter_runs_max && process_cpu_time() < began + shorter_max &&
               !run(seed, mutation, size, f, false).failure.empty();
    };
    best.max = seen;
    for (uint64_t step = seen; step > 0; step /= 2)
        for (Faults f = best; f.max >= step;) {
            f.max -= step;
            if (!fails(f)) break;
            best = f;
        }
    for (uint64_t length = std::max<uint64_t>(best.max / 2, 1); length > 0;) {
        bool spared = false;
        for (uint64_t end = best.max; end > 0; end -= std::min(end, length)) {
            Faults f = best;
            for (uint64_t i = end - std::min(end, length); i < end; ++i) f.without.insert(i);
            if (f.without.size() == best.without.size() || !fails(f)) continue;
            best = f;
            spared = true;
        }
        if (!spared || length > 1) length /= 2;
    }
    return best;
}

void show(uint64_t seed, Mutation mutation, ClusterSize size, const Cluster::Counts& counts) {
    const Faults faults = fewest(seed, mutation, size, counts.faults);
    const Run shortest = run(seed, mutation, size, faults, true);
    std::printf("seed %lu fails, also with %lu of its %lu faults:\n",
                static_cast<unsigned long>(seed),
                static_cast<unsigned long>(faults.max - faults.without.size()),
                static_cast<unsigned long>(counts.faults));
    for (const std::string& line : shortest.trace) std::printf("  %s\n", line.c_str());
    std::printf("seed %lu: %s\n", static_cast<unsigned long>(seed), shortest.failure.c_str());
}

// One seed with its story: each step of each machine, what the network did with it, and what went
// wrong.
int tell(uint64_t seed, Mutation mutation, ClusterSize size) {
    const Run r = run(seed, mutation, size, {}, true);
    for (const std::string& line : r.trace) std::printf("%s\n", line.c_str());
    std::printf("seed %lu: %s\n", static_cast<unsigned long>(seed),
                r.failure.empty() ? "all is well" : r.failure.c_str());
    return r.failure.empty() ? 0 : 1;
}

// Long: it adds up and prints each figure.
int simulate(uint64_t from, uint64_t seeds, Mutation mutation, ClusterSize size, bool json) {
    Cluster::Counts sum;
    double virtual_s = 0;
    uint64_t failed = 0, done = 0;
    for (uint64_t seed = from; seed < from + seeds && failed < 3; ++seed) {
        const Run r = run(seed, mutation, size, {}, false);
        const Cluster::Counts& c = r.counts;
        ++done;
        virtual_s += r.end.seconds();
        sum.events += c.events, sum.faults += c.faults, sum.crashes += c.crashes,
            sum.breaks += c.breaks;
        sum.moves += c.moves, sum.freezes += c.freezes, sum.thaws += c.thaws,
            sum.failed_moves += c.failed_moves;
        sum.returns += c.returns, sum.pauses += c.pauses, sum.missed += c.missed,
            sum.evacuated += c.evacuated, sum.memory_wanted += c.memory_wanted;
        sum.paced += c.paced, sum.hurried += c.hurried, sum.in_time += c.in_time,
            sum.explained += c.explained;
        sum.lies += c.lies;
        sum.limited += c.limited;
        sum.booked.add(c.booked);
        sum.jobs += c.jobs, sum.ended += c.ended, sum.cancelled += c.cancelled, sum.lost += c.lost;
        if (r.failure.empty()) continue;
        ++failed;
        std::printf("seed %lu: %s\n", static_cast<unsigned long>(seed), r.failure.c_str());
        std::fflush(stdout);  // the search for a shorter run takes a while
        show(seed, mutation, size, c);
    }
    const double cpu = process_cpu_time().seconds();
    if (json) {
        JsonWriter w;
        w.begin_object().field("seeds", done).field("failed", failed);
        w.field("nodes", size.nodes).field("jobs", size.jobs);
        w.field("simulated_s", virtual_s)
            .field("cpu_s", cpu)
            .field("times_real_time", virtual_s / cpu);
        w.field("liars", size.liars).field("lies", sum.lies);
        w.field("events", sum.events).field("faults", sum.faults).field("moves", sum.moves);
        w.field("owner_returns", sum.returns).field("owner_missed", sum.missed);
        w.field("evacuated", sum.evacuated).field("memory_wanted", sum.memory_wanted);
        w.field("paced", sum.paced).field("hurried", sum.hurried);
        w.field("in_time", sum.in_time).field("explained", sum.explained);
        w.field("places_sold", sum.booked.sold).field("places_begun", sum.booked.begun);
        w.field("places_excused", sum.booked.excused).field("limited", sum.limited);
        w.field("promises_kept", sum.booked.kept).field("promises_broken", sum.booked.broken);
        w.field("promises_given_up", sum.booked.given_up);
        w.field("events_per_s", static_cast<double>(sum.events) / cpu).end_object();
        std::printf("%s\n", w.take().c_str());
        return failed > 0 ? 1 : 0;
    }
    const auto n = [](uint64_t v) { return static_cast<unsigned long>(v); };
    std::printf(
        "%lu seeds, %lu failed; %.1f simulated hours in %.1f s of CPU time (%.0f times real time); "
        "%lu events, "
        "%lu faults (%lu crashes, %lu breaks); %lu moves, %lu failed, %lu freezes, %lu thaws; %lu "
        "jobs: %lu "
        "ended, %lu cancelled, %lu lost to their PID 1; owners came %lu times, %lu guests were "
        "stopped for them, %lu returns missed a promise and said so; %lu images came home; the "
        "memory "
        "of %lu that stood was wanted; %lu pieces left at the owner's rate and %lu faster, to be "
        "in time; %lu were gone in time and %lu late by a fault; %lu lies",
        n(done), n(failed), virtual_s / 3600, cpu, virtual_s / cpu, n(sum.events), n(sum.faults),
        n(sum.crashes), n(sum.breaks), n(sum.moves), n(sum.failed_moves), n(sum.freezes),
        n(sum.thaws), n(sum.jobs), n(sum.ended), n(sum.cancelled), n(sum.lost), n(sum.returns),
        n(sum.pauses), n(sum.missed), n(sum.evacuated), n(sum.memory_wanted), n(sum.paced),
        n(sum.hurried), n(sum.in_time), n(sum.explained), n(sum.lies));
    const BookedWatch::Counts& b = sum.booked;
    if (size.booked)
        std::printf(
            "; %lu places were sold, %lu began in time and %lu did not, for a reason; of promised "
            "deadlines %lu were kept, %lu broken and %lu given up; %lu jobs reached their limits",
            n(b.sold), n(b.begun), n(b.excused), n(b.kept), n(b.broken), n(b.given_up),
            n(sum.limited));
    std::printf("\n");
    return failed > 0 ? 1 : 0;
}

int run_main(int argc, char** argv) {
    std::optional<uint64_t> seeds, from, seed;
    std::string bug;
    bool json = false, trace = false, fault_rows = false;
    ClusterSize size;
    const auto any = tools::whole(0, INT64_MAX);
    const tools::CommandLine line{
        .tool = "clustersim",
        .summary =
            "clustersim: the node agents and the market's books on virtual time, under "
            "faults by seed.",
        .options = {
            option(0, "seeds", seeds, tools::whole(1, int64_t{1} << 40), "how many (default 2000)"),
            option(0, "from", from, any, "the first seed (default 1)"),
            option(0, "seed", seed, any, "this one alone"),
            {0, "trace", nullptr, "with --seed: its story, each step of each machine",
             tools::set_flag(trace)},
            option(0, "nodes", size.nodes, tools::whole(2, 1000),
                   "nodes of each cluster (default: 2 to 4, by the seed)"),
            option(0, "jobs", size.jobs, tools::whole(1, 100'000),
                   "jobs of each (default: 1 to 8)"),
            option(0, "components", size.components, tools::whole(2, 100),
                   "of each job, which start together (default: it is a job of its own)"),
            option(0, "liars", size.liars, tools::whole(1, 100),
                   "of its nodes lie to homes, guests and the market (default: none)"),
            {0, "booked", nullptr,
             "the real market gives the orders, and jobs ask for places for later and for "
             "deadlines that are promised",
             tools::set_flag(size.booked)},
            option(0, "bug", bug, tools::any_text(),
                   "a deliberate bug, by name: it should be found"),
            {0, "json", nullptr, "the last line as JSON", tools::set_flag(json)},
            {0, "fault-table", nullptr,
             "print what comes of each fault in a move, as docs/move.md has it",
             tools::set_flag(fault_rows)}}};
    if (const auto status = tools::parse_options(line, argc, argv)) return *status;
    if (seed && (seeds || from))
        return complain_usage(line.tool, "--seed excludes --seeds and --from");
    if (trace && !seed) return complain_usage(line.tool, "--trace needs --seed");
    if (size.booked && (size.components > 0 || size.liars > 0))
        return complain_usage(line.tool, "--booked excludes --components and --liars");
    if (fault_rows) return std::fputs(fault_table().c_str(), stdout) < 0 ? 1 : 0;
    uint8_t mutation = 0;
    std::string known;
    for (uint8_t m = 1; m < static_cast<uint8_t>(Mutation::count_); ++m) {
        if (bug == mutation_name(Mutation{m})) mutation = m;
        known += std::string(known.empty() ? "" : ", ") + mutation_name(Mutation{m});
    }
    if (!bug.empty() && mutation == 0)
        return complain_usage(line.tool, "--bug: there is no '" + bug + "'; there are " + known);
    if (seed && trace) return tell(*seed, Mutation{mutation}, size);
    return seed ? simulate(*seed, 1, Mutation{mutation}, size, json)
                : simulate(from.value_or(1), seeds.value_or(2000), Mutation{mutation}, size, json);
}

}  // namespace
}  // namespace souk::sim

int main(int argc, char** argv) { return souk::sim::run_main(argc, argv); }
