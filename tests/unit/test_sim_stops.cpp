// SPDX-License-Identifier: GPL-2.0-or-later
// Suspended jobs of a simulated market that stand in memory before they go to disk.
#include <algorithm>

#include "market/sim/stopped_jobs.hpp"
#include "tests/unit/sim_world.hpp"

using namespace souk;
using namespace souk::sim;
using unit::drawn;

namespace {

// More work than the machines can do at once; each job has 200 MB, each machine `memory_mb`.
Imported workload(uint64_t seed, int64_t memory_mb) {
    Imported w = drawn(seed, [](ImportConfig& config) {
        config.jobs_max = 60;
        config.providers = 3;
        config.reservation = {Distribution::Kind::fix, {1}};
        config.interarrival = {Distribution::Kind::uniform, {0, 200}};
        config.memory = {Distribution::Kind::fix, {200}};
    });
    for (SimProvider& p : w.providers) p.memory_mb = memory_mb;
    return w;
}

struct Sums {
    uint64_t stops = 0, resumes = 0, freezes = 0, moves = 0;
    int64_t carried_mb = 0, stay_s = 0;
};

Sums run(const Imported& w, const char* algorithm, bool two_stage) {
    MarketRunOptions options;
    options.solver.algorithm = algorithm;
    options.solver.quantum = Nanos::from_s(30);
    options.disk_mb_per_s = 50;
    options.two_stage = two_stage;
    const RunOutcome outcome = unit::run(w, options);
    Sums s;
    for (size_t i = 0; i < w.jobs.size(); ++i) {
        const JobOutcome& job = outcome.jobs[i];
        // Whatever becomes of it on its way, a job does all its work, and none twice.
        ck_assert_int_ge(job.end_s, w.jobs[i].start_s + w.jobs[i].run_s);
        ck_assert_int_eq(job.done, w.jobs[i].run_s * 100);
        ck_assert_uint_le(job.resumes, job.stops);
        s.stops += job.stops;
        s.resumes += job.resumes;
        s.freezes += job.freezes;
        s.moves += job.moves;
        s.carried_mb += job.moved_mb;
        s.stay_s += job.end_s - w.jobs[i].start_s;
    }
    return s;
}

}  // namespace

START_TEST(turns_in_memory_carry_next_to_nothing_where_all_fit) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        const Imported w = workload(seed, 1'000'000);
        const Sums disk = run(w, "proportional_share", false),
                   memory = run(w, "proportional_share", true);
        ck_assert(disk.stops == 0 && disk.freezes > 100);
        // The first ones teach it; what goes elsewhere is moved.
        ck_assert_msg(memory.freezes <= 2 * market::StopRecord::enough && memory.resumes > 100,
                      "seed %d: %d freezes, %d resumes", static_cast<int>(seed),
                      static_cast<int>(memory.freezes), static_cast<int>(memory.resumes));
        ck_assert(memory.carried_mb < disk.carried_mb / 2 && memory.stay_s < disk.stay_s);
    }
}
END_TEST

START_TEST(where_memory_is_short_what_stands_goes_to_disk_when_that_is_wanted) {
    for (const char* algorithm : {"proportional_share", "greedy_migration"})
        for (uint64_t seed = 1; seed <= 10; ++seed) {
            const Imported w = workload(seed, 450);  // room for two, of which one runs
            const Sums disk = run(w, algorithm, false), memory = run(w, algorithm, true);
            ck_assert(memory.stops > 0 && memory.freezes <= disk.freezes + memory.stops);
            ck_assert(memory.freezes > 0);
        }
    // No room for a second one: all that is suspended goes to disk at once.
    const Sums none = run(workload(1, 200), "greedy_migration", true);
    ck_assert(none.stops > 0 && none.resumes == 0 && none.freezes >= none.stops);
}
END_TEST

START_TEST(who_bids_least_goes_first_and_memory_is_never_held_twice) {
    std::vector<SimJob> jobs;
    for (int64_t i = 0; i < 5; ++i)
        jobs.push_back({i + 1, 0, 100, Money::units(10 + i % 3), 100, 1, 1});
    const SimProvider machine{1, 0, -1, {}, 500, 4, 100};
    StoppedJobs s(jobs, {&machine, 1}, 100);
    for (uint32_t j = 0; j < 4; ++j) ck_assert_int_ge(s.stops(j, 0, j), 0);
    ck_assert(s.wanted(0, false, 10).empty());
    s.holds(4, 0);
    ck_assert(s.wanted(0, false, 10).empty());
    s.holds(4, 0);                                                  // as much again
    ck_assert(s.wanted(0, false, 10) == std::vector<uint32_t>{3});  // of bid 10, the last to stop
    s.wins(2, 11);
    ck_assert((s.wanted(0, true, 12) == std::vector<uint32_t>{0, 1}));
    ck_assert(s.wanted(0, true, 12).empty());
}
END_TEST

START_TEST(a_machine_that_leaves_sends_what_stands_there_to_disk) {
    Imported w = workload(3, 1'000'000);
    for (SimProvider& p : w.providers)
        if (p.id == w.providers.front().id) p.end_s = 2'000;
    const Sums s = run(w, "proportional_share", true);
    ck_assert(s.stops > 0 && s.freezes > 0);
}
END_TEST

UNIT_SUITE(sim_stops, turns_in_memory_carry_next_to_nothing_where_all_fit,
           where_memory_is_short_what_stands_goes_to_disk_when_that_is_wanted,
           who_bids_least_goes_first_and_memory_is_never_held_twice,
           a_machine_that_leaves_sends_what_stands_there_to_disk);
