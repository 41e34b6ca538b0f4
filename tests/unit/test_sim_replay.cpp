// SPDX-License-Identifier: GPL-2.0-or-later
// FCFS and EASY against implementations that follow the definitions word by word and keep nothing
// between two events.
#include <algorithm>
#include <list>
#include <map>

#include "kernel/base/rng.hpp"
#include "market/sim/files.hpp"
#include "market/sim/replay.hpp"
#include "market/sim/replay_solver.hpp"
#include "tests/unit/sim_traces.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::sim;

namespace {

struct NaiveRunning {
    int64_t expected_s, procs;
};

// Goes through every instant at which a job ends or arrives: starts heads while they fit; with
// backfilling, finds the head's shadow time and extra processors anew whenever a job has started.
std::vector<int64_t> naive(std::span<const ReplayJob> jobs, int64_t cpus, bool backfill) {
    std::vector<int64_t> end_s(jobs.size());
    std::list<size_t> queue;
    std::multimap<int64_t, NaiveRunning> running;  // by the time at which it ends
    int64_t free = cpus;
    size_t next = 0;
    while (next < jobs.size() || !queue.empty()) {
        int64_t now = next < jobs.size() ? jobs[next].submit_s : INT64_MAX;
        if (!running.empty()) now = std::min(now, running.begin()->first);
        for (; !running.empty() && running.begin()->first == now; running.erase(running.begin()))
            free += running.begin()->second.procs;
        for (; next < jobs.size() && jobs[next].submit_s == now; ++next) queue.push_back(next);
        const auto start = [&](size_t i) {
            free -= jobs[i].procs;
            end_s[i] = now + jobs[i].run_s;
            running.insert({end_s[i], {now + jobs[i].estimate_s, jobs[i].procs}});
        };
        while (!queue.empty() && jobs[queue.front()].procs <= free) {
            start(queue.front());
            queue.pop_front();
        }
        if (!backfill || queue.empty()) continue;
        bool started = true;
        int64_t shadow = 0, extra = 0;
        for (auto it = std::next(queue.begin()); it != queue.end() && free > 0;) {
            if (jobs[*it].procs > free) {
                ++it;
                continue;
            }
            if (started) {
                std::vector<NaiveRunning> by_estimate;
                for (const auto& [end, r] : running) by_estimate.push_back(r);
                std::sort(by_estimate.begin(), by_estimate.end(),
                          [](const NaiveRunning& a, const NaiveRunning& b) {
                              return a.expected_s < b.expected_s;
                          });
                extra = free - jobs[queue.front()].procs;
                for (const NaiveRunning& r : by_estimate) {
                    if (extra >= 0 && r.expected_s != shadow) break;
                    shadow = r.expected_s;
                    extra += r.procs;
                }
                started = false;
            }
            if (now + jobs[*it].estimate_s <= shadow || jobs[*it].procs <= extra) {
                start(*it);
                it = queue.erase(it);
                started = true;
            } else {
                ++it;
            }
        }
    }
    return end_s;
}

void check_both(std::span<const ReplayJob> jobs, int64_t cpus, const std::string& where) {
    for (const bool easy : {false, true}) {
        const std::vector<int64_t> expected = naive(jobs, cpus, easy);
        const Schedule got = easy ? replay_easy(jobs, cpus) : replay_fcfs(jobs, cpus);
        for (size_t i = 0; i < jobs.size(); ++i)
            ck_assert_msg(got.end_s[i] == expected[i],
                          "%s, %s: job %zu of %zu ends at %ld, by the definition at %ld",
                          where.c_str(), easy ? "easy" : "fcfs", i, jobs.size(),
                          static_cast<long>(got.end_s[i]), static_cast<long>(expected[i]));
    }
}

std::vector<ReplayJob> random_jobs(Rng& rng, size_t n, int64_t cpus, int64_t gap_max,
                                   int64_t run_max) {
    std::vector<ReplayJob> jobs;
    int64_t t = 0;
    for (size_t i = 0; i < n; ++i) {
        t += rng.between(0, gap_max);
        const auto run = static_cast<int32_t>(rng.between(1, run_max));
        const int64_t procs =
            rng.chance(0.7) ? rng.between(1, std::max<int64_t>(1, cpus / 8)) : rng.between(1, cpus);
        jobs.push_back({t, run, run * static_cast<int32_t>(rng.between(1, 4)),
                        static_cast<int32_t>(procs), static_cast<uint32_t>(i)});
    }
    return jobs;
}

}  // namespace

START_TEST(fcfs_and_easy_follow_the_definitions_on_random_loads) {
    // Light and heavy loads, many equal times (short gaps and runs), machines of 1 to 200
    // processors.
    Rng rng(3);
    for (int round = 0; round < 1500; ++round) {
        const int64_t cpus = rng.chance(0.2) ? 1 : rng.between(2, 200);
        const int64_t gap = rng.between(0, 30), run = rng.between(1, 60);
        const auto jobs = random_jobs(rng, 1 + rng.below(120), cpus, gap, run);
        check_both(jobs, cpus, "round " + std::to_string(round));
    }
}
END_TEST

START_TEST(fcfs_and_easy_follow_the_definitions_with_thousands_waiting) {
    // Overload: the queue grows to thousands, so blocks are skipped and holes are closed.
    Rng rng(4);
    check_both(random_jobs(rng, 12'000, 64, 6, 60), 64, "overload");
    check_both(random_jobs(rng, 12'000, 1000, 0, 500), 1000, "all at once");
}
END_TEST

START_TEST(fcfs_and_easy_follow_the_definitions_on_every_recorded_trace) {
    const auto directory =
        unit::traces_directory("fcfs_and_easy_follow_the_definitions_on_every_recorded_trace");
    if (!directory) return;
    for (const auto& entry : std::filesystem::directory_iterator(*directory)) {
        if (!entry.path().string().ends_with(".swf.gz")) continue;
        const auto trace = read_swf(entry.path());
        ck_assert_msg(trace.has_value(), "%s", trace ? "" : trace.error().message.c_str());
        const Workload w = workload_of(*trace, trace->max_procs, Procs::requested, Estimates::user);
        check_both(w.jobs, trace->max_procs, entry.path().filename());
    }
}
END_TEST

namespace {

// Greedy migration by its definition: at every event, all active jobs are taken in order of value,
// then arrival, and each that fits runs.
Schedule naive_greedy(std::span<const ReplayJob> jobs, int64_t cpus, const ReplayTerms& terms) {
    struct Active {
        size_t job;
        // it advances from ready_s while it runs
        int64_t left_s, ready_s = 0, frozen_s = INT64_MIN;
        bool runs = false;
    };
    Schedule out;
    out.end_s.resize(jobs.size());
    std::vector<Active> active;
    size_t next = 0;
    while (next < jobs.size() || !active.empty()) {
        int64_t now = next < jobs.size() ? jobs[next].submit_s : INT64_MAX;
        for (const Active& a : active)
            if (a.runs) now = std::min(now, a.ready_s + a.left_s);
        std::erase_if(active, [&](const Active& a) {
            const bool done = a.runs && a.ready_s + a.left_s == now;
            if (done) out.end_s[a.job] = now;
            return done;
        });
        for (; next < jobs.size() && jobs[next].submit_s == now; ++next)
            active.push_back({next, jobs[next].run_s});
        std::stable_sort(active.begin(), active.end(), [&](const Active& a, const Active& b) {
            return terms.value[a.job] != terms.value[b.job]
                       ? terms.value[a.job] > terms.value[b.job]
                       : a.job < b.job;
        });
        int64_t free = cpus;
        for (Active& a : active) {
            const int64_t carry = terms.carry_s.empty() ? 0 : terms.carry_s[a.job];
            const bool fits = jobs[a.job].procs <= free;
            if (fits) free -= jobs[a.job].procs;
            if (a.runs && !fits) {
                a.left_s -= std::max<int64_t>(0, now - a.ready_s);
                a.frozen_s = now;
                ++out.freezes;
            } else if (!a.runs && fits) {
                const bool thaw = a.frozen_s != INT64_MIN;
                out.freezes += thaw;
                a.ready_s = thaw ? std::max(now, a.frozen_s + carry) + carry : now;
            }
            a.runs = fits;
        }
    }
    return out;
}

ReplayTerms random_terms(Rng& rng, size_t n, bool carry) {
    ReplayTerms terms;
    const int64_t values = rng.between(1, 60);
    for (size_t i = 0; i < n; ++i) {
        terms.value.push_back(Money::units(rng.between(1, values)));
        if (carry) terms.carry_s.push_back(static_cast<int32_t>(rng.between(0, 20)));
    }
    return terms;
}

void check_greedy(std::span<const ReplayJob> jobs, int64_t cpus, const ReplayTerms& terms,
                  const std::string& where) {
    const Schedule expected = naive_greedy(jobs, cpus, terms);
    const Schedule got = replay_greedy_migration(jobs, cpus, terms);
    ck_assert_uint_eq(got.freezes, expected.freezes);
    for (size_t i = 0; i < jobs.size(); ++i)
        ck_assert_msg(got.end_s[i] == expected.end_s[i],
                      "%s: job %zu of %zu ends at %ld, by the definition at %ld", where.c_str(), i,
                      jobs.size(), static_cast<long>(got.end_s[i]),
                      static_cast<long>(expected.end_s[i]));
}

}  // namespace

START_TEST(greedy_migration_follows_its_definition_on_random_loads) {
    Rng rng(5);
    for (int round = 0; round < 3000; ++round) {
        const int64_t cpus = rng.chance(0.2) ? 1 : rng.between(2, 200);
        const int64_t gap = rng.between(0, 30), run = rng.between(1, 60);
        const auto jobs = random_jobs(rng, 1 + rng.below(120), cpus, gap, run);
        check_greedy(jobs, cpus, random_terms(rng, jobs.size(), rng.chance(0.5)),
                     "round " + std::to_string(round));
    }
    // Enough ranks for every level of the sets.
    const auto jobs = random_jobs(rng, 9'000, 300, 8, 60);
    check_greedy(jobs, 300, random_terms(rng, jobs.size(), true), "9000 jobs");
}
END_TEST

START_TEST(greedy_migration_follows_its_definition_on_recorded_traces) {
    const auto directory =
        unit::traces_directory("greedy_migration_follows_its_definition_on_recorded_traces");
    if (!directory) return;
    for (const char* name : {"NASA-iPSC-1993-3.1-cln", "DAS2-fs1-2003-1", "SDSC-SP2-1998-4.2-cln",
                             "HPC2N-2002-2.2-cln"}) {
        const auto trace = read_swf(*directory + "/" + name + ".swf.gz");
        ck_assert(trace.has_value());
        const Workload w = workload_of(*trace, trace->max_procs, Procs::requested, Estimates::user);
        const ReplayTerms terms =
            terms_of(*trace, w, *parse_distribution("uniform 10 60"), 1, 100, 0);
        check_greedy(w.jobs, trace->max_procs, terms, name);
    }
}
END_TEST

START_TEST(the_special_path_of_greedy_migration_equals_the_markets_solver) {
    // Freezing takes no time here. If it takes time, the two differ as replay_solver.hpp says.
    Rng rng(8);
    SwfTrace trace;
    for (int i = 0; i < 400; ++i) trace.jobs.push_back({.id = i});
    for (int round = 0; round < 300; ++round) {
        const int64_t cpus = rng.between(1, 60);
        const auto jobs =
            random_jobs(rng, 1 + rng.below(150), cpus, rng.between(0, 30), rng.between(1, 60));
        const ReplayTerms terms = random_terms(rng, jobs.size(), false);
        const auto generic = replay_with_solver(trace, jobs, cpus, terms, {});
        ck_assert_msg(generic.has_value(), "%s", generic ? "" : generic.error().message.c_str());
        const Schedule special = replay_greedy_migration(jobs, cpus, terms);
        ck_assert_uint_eq(special.freezes, generic->freezes);
        ck_assert(special.end_s == generic->end_s);
    }
}
END_TEST

START_TEST(a_higher_value_takes_the_processors_and_gives_them_back) {
    // One processor; the second job is worth more: the first is frozen at 10 (3 s), thawed at 30 (3
    // s) and has 90 s left.
    const std::vector<ReplayJob> jobs = {{0, 100, 100, 1, 0}, {10, 20, 20, 1, 1}};
    const ReplayTerms terms{{Money::units(1), Money::units(2)}, {3, 3}};
    const Schedule s = replay_greedy_migration(jobs, 1, terms);
    ck_assert(s.end_s == (std::vector<int64_t>{123, 30}));
    ck_assert_uint_eq(s.freezes, 2);
}
END_TEST

START_TEST(balance_shares_the_processors_evenly) {
    // Two jobs on one processor: each at half speed from 10 to 30, so the first has run 20 of its
    // 40 s then.
    const std::vector<ReplayJob> two = {{0, 40, 40, 1, 0}, {10, 10, 10, 1, 1}};
    ck_assert(replay_balance(two, 1).end_s == (std::vector<int64_t>{50, 30}));
    // Two processors, loads 2 and 2 (jobs 0 and 2, 1 and 3); both jobs of one processor end: one
    // process moves over.
    const std::vector<ReplayJob> four = {
        {0, 100, 100, 1, 0}, {0, 10, 10, 1, 1}, {0, 100, 100, 1, 2}, {0, 10, 10, 1, 3}};
    const Schedule s = replay_balance(four, 2);
    ck_assert(s.end_s == (std::vector<int64_t>{110, 20, 110, 20}));
    ck_assert_uint_eq(s.migrations, 1);
}
END_TEST

START_TEST(balance_agrees_with_a_fluid_of_real_numbers) {
    Rng rng(6);
    for (int round = 0; round < 500; ++round) {
        const int64_t cpus = rng.between(1, 60);
        const auto jobs =
            random_jobs(rng, 1 + rng.below(80), cpus, rng.between(0, 30), rng.between(1, 200));
        const Schedule got = replay_balance(jobs, cpus);
        std::vector<double> left(jobs.size());
        for (size_t i = 0; i < jobs.size(); ++i) left[i] = jobs[i].run_s;
        // Second by second; a job that ends inside a second holds its processors until the second
        // is over.
        std::vector<int64_t> end(jobs.size(), -1);
        size_t open = jobs.size();
        for (int64_t now = 0; open > 0; ++now) {
            int64_t processes = 0;
            for (size_t i = 0; i < jobs.size(); ++i)
                if (end[i] < 0 && jobs[i].submit_s <= now) processes += jobs[i].procs;
            for (size_t i = 0; i < jobs.size(); ++i) {
                if (end[i] >= 0 || jobs[i].submit_s > now) continue;
                left[i] -= std::min(1.0, static_cast<double>(cpus) /
                                             static_cast<double>(std::max<int64_t>(1, processes)));
                if (left[i] > 1e-4) continue;
                end[i] = now + 1;
                --open;
            }
        }
        for (size_t i = 0; i < jobs.size(); ++i)
            ck_assert_msg(std::abs(got.end_s[i] - end[i]) <= 1,
                          "round %d: job %zu ends at %ld, as a fluid at %ld", round, i,
                          static_cast<long>(got.end_s[i]), static_cast<long>(end[i]));
    }
}
END_TEST

START_TEST(a_small_job_backfills_only_where_it_cannot_delay_the_head) {
    // 4 processors: job 0 holds 3 until 100; job 1 needs 4; job 2 (1 processor, 100 s) would end
    // after the shadow time and no processor is extra; job 3 (1 processor, 50 s) backfills at once.
    const std::vector<ReplayJob> jobs = {
        {0, 100, 100, 3, 0}, {1, 10, 10, 4, 1}, {2, 100, 100, 1, 2}, {3, 50, 50, 1, 3}};
    const Schedule easy = replay_easy(jobs, 4);
    ck_assert(easy.end_s == (std::vector<int64_t>{100, 110, 210, 53}));
    const Schedule fcfs = replay_fcfs(jobs, 4);
    ck_assert(fcfs.end_s == (std::vector<int64_t>{100, 110, 210, 160}));
}
END_TEST

START_TEST(the_conventions_choose_processors_estimates_and_what_is_dropped) {
    SwfTrace trace;
    trace.jobs = {
        {.id = 1, .submit_s = 9, .run_s = 5, .allocated = 2, .requested = 4, .requested_s = 3},
        {.id = 2, .submit_s = 1, .run_s = 0, .allocated = 3, .requested = -1, .requested_s = 60},
        {.id = 3, .submit_s = 1, .run_s = -1, .allocated = 3, .requested = 3},
        {.id = 4, .submit_s = 1, .run_s = 7, .allocated = 0, .requested = -1},
        {.id = 5, .submit_s = 1, .run_s = 7, .allocated = 1, .requested = 5}};
    const Workload a = workload_of(trace, 4, Procs::requested, Estimates::user);
    ck_assert(a.dropped.unknown_run == 1 && a.dropped.no_procs == 1 && a.dropped.too_large == 1);
    ck_assert_uint_eq(a.jobs.size(), 2);
    ck_assert(a.jobs[0].source == 1 && a.jobs[0].run_s == 1 && a.jobs[0].estimate_s == 60 &&
              a.jobs[0].procs == 3);
    ck_assert(a.jobs[1].source == 0 && a.jobs[1].estimate_s == 5 && a.jobs[1].procs == 4);
    const Workload b = workload_of(trace, 4, Procs::allocated, Estimates::exact);
    ck_assert(b.dropped.too_large == 0 && b.jobs.size() == 3);
    ck_assert(b.jobs[0].estimate_s == 1 && b.jobs[1].source == 4 && b.jobs[2].procs == 2);
}
END_TEST

START_TEST(metrics_follow_their_definitions) {
    const std::vector<ReplayJob> jobs = {{10, 4, 4, 2, 0}, {12, 20, 20, 1, 1}};
    const ReplayMetrics m = metrics_of(jobs, {.end_s = {20, 40}}, 2);
    ck_assert_uint_eq(m.jobs, 2);
    ck_assert_double_eq_tol(m.mean_wait_s, (6 + 8) / 2.0, 1e-12);
    ck_assert_double_eq_tol(m.mean_slowdown, (10 / 4.0 + 28 / 20.0) / 2, 1e-12);
    ck_assert_double_eq_tol(m.mean_bounded_slowdown, (1 + 28 / 20.0) / 2, 1e-12);
    ck_assert_int_eq(m.makespan_s, 30);
    ck_assert_double_eq_tol(m.utilisation, (8 + 20) / 60.0, 1e-12);
    ck_assert_uint_eq(metrics_of({}, {}, 2).jobs, 0);
}
END_TEST

UNIT_SUITE_LONG(sim_replay, 300, fcfs_and_easy_follow_the_definitions_on_random_loads,
                fcfs_and_easy_follow_the_definitions_with_thousands_waiting,
                fcfs_and_easy_follow_the_definitions_on_every_recorded_trace,
                greedy_migration_follows_its_definition_on_random_loads,
                greedy_migration_follows_its_definition_on_recorded_traces,
                the_special_path_of_greedy_migration_equals_the_markets_solver,
                a_higher_value_takes_the_processors_and_gives_them_back,
                balance_shares_the_processors_evenly, balance_agrees_with_a_fluid_of_real_numbers,
                a_small_job_backfills_only_where_it_cannot_delay_the_head,
                the_conventions_choose_processors_estimates_and_what_is_dropped,
                metrics_follow_their_definitions);
