// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of several components over clusters. Schedules of random small worlds are judged by brute
// force, and by a run that goes through every millisecond and keeps nothing between two.
#include "tests/unit/coallocation_world.hpp"

using namespace souk;
using namespace souk::unit::coallocation;

namespace {

// "cluster:cpus ...", or "none".
std::string placed(std::string_view placement, const Job& job, const std::vector<int64_t>& sizes,
                   const Idle& idle) {
    const std::vector<Cluster> clusters = clusters_of(sizes);
    const auto where = make_placement(placement, clusters)->place(job, idle);
    if (!where) return "none";
    std::string out;
    for (const Piece& p : *where)
        out += (out.empty() ? "" : " ") + std::to_string(p.cluster) + ":" + std::to_string(p.cpus);
    return out;
}

// Jobs that came later and started earlier.
size_t overtaken(const Outcome& outcome, size_t job) {
    size_t n = 0;
    for (size_t j = job + 1; j < outcome.jobs.size(); ++j)
        n += outcome.jobs[j].start_ms < outcome.jobs[job].start_ms;
    return n;
}

// FCFS, FPFS and bounded overtaking word by word, one millisecond after the other.
std::vector<int64_t> naive(const World& world, const Placement& placement, size_t passes_max) {
    std::vector<int64_t> start(world.jobs.size(), -1), end(world.jobs.size(), -1);
    std::vector<Allocation> where(world.jobs.size());
    std::vector<size_t> queue, passed(world.jobs.size());
    size_t started = 0;
    for (int64_t t = 0; started < world.jobs.size(); ++t) {
        for (size_t i = 0; i < world.jobs.size(); ++i)
            if (world.jobs[i].submit_ms == t) queue.push_back(i);
        Idle idle;
        for (const Cluster& c : world.clusters) idle.push_back(c.cpus);
        for (size_t i = 0; i < world.jobs.size(); ++i)
            if (end[i] > t) take(idle, where[i]);
        for (size_t at = 0; at < queue.size();) {
            const Job& job = world.jobs[queue[at]];
            const auto found = placement.place(job, idle);
            if (!found && passed[queue[at]] >= passes_max) break;
            if (!found) {
                ++at;
                continue;
            }
            const size_t i = queue[at];
            start[i] = t;
            where[i] = *found;
            int64_t run = job.run_ms * 1000;
            for (const Piece& p : *found)
                if (p.cluster != found->front().cluster) run = job.run_ms * world.terms.slowdown;
            end[i] = t + job.overhead_ms + (run + 999) / 1000;
            take(idle, *found);
            ++started;
            for (size_t before = 0; before < at; ++before) ++passed[queue[before]];
            queue.erase(queue.begin() + static_cast<ptrdiff_t>(at));
            at = 0;
        }
    }
    return start;
}

// Watches EASY: by when the first job that stays in the queue could start if nobody else were let
// in, by the estimates. That is found anew at each decision, without EASY's own reservation.
class Watch : public Policy {
  public:
    Watch(Policy& inner, const Placement& placement) : inner_(inner), placement_(placement) {}
    std::vector<sim::coallocation::Order> act(const View& view) override {
        std::vector<sim::coallocation::Order> orders = inner_.act(view);
        std::map<uint32_t, Allocation> started;
        for (const sim::coallocation::Order& o : orders) started[o.job] = o.where;
        Idle idle(view.idle.begin(), view.idle.end());
        std::vector<std::pair<int64_t, Allocation>> ends;
        for (const uint32_t r : view.running)
            ends.emplace_back(view.progress[r].until_ms, view.progress[r].where);
        size_t i = 0;
        for (; i < view.queue.size() && started.count(view.queue[i]) > 0; ++i) {
            const Job& job = view.jobs[view.queue[i]];
            const Allocation& where = started[view.queue[i]];
            take(idle, where);
            ends.emplace_back(
                view.now_ms + job.overhead_ms + stretched_ms(job.estimate_ms, where, *view.terms),
                where);
        }
        if (i == view.queue.size()) return orders;
        const uint32_t first = view.queue[i];
        std::sort(ends.begin(), ends.end(),
                  [](const auto& a, const auto& b) { return a.first < b.first; });
        for (size_t e = 0; e < ends.size(); ++e) {
            give(idle, ends[e].second);
            if (e + 1 < ends.size() && ends[e + 1].first == ends[e].first) continue;
            if (!placement_.place(view.jobs[first], idle)) continue;
            const auto [at, is_new] = bound.try_emplace(first, ends[e].first);
            if (!is_new) at->second = std::min(at->second, ends[e].first);
            break;
        }
        return orders;
    }
    std::map<uint32_t, int64_t> bound;

  private:
    Policy& inner_;
    const Placement& placement_;
};

// Keeps each promise that a policy makes.
class Promises : public Policy {
  public:
    explicit Promises(Policy& inner) : inner_(inner) {}
    std::optional<int64_t> wake_ms() const override { return inner_.wake_ms(); }
    std::vector<sim::coallocation::Order> act(const View& view) override {
        std::vector<sim::coallocation::Order> orders = inner_.act(view);
        for (const uint32_t job : view.queue)
            if (const auto at = inner_.promised_ms(job)) promised.try_emplace(job, *at);
        return orders;
    }
    std::map<uint32_t, int64_t> promised;

  private:
    Policy& inner_;
};

}  // namespace

START_TEST(placements_choose_as_the_reference_does) {
    // The thesis' example, and where it and the paper differ.
    const Job three = unordered({10, 20, 15});
    ck_assert_text(placed("worst_fit", three, {32, 32, 32, 32}, {24, 5, 8, 32}), "3:10 3:20 0:15");
    const Job four = unordered({8, 8, 8, 8});
    ck_assert_text(placed("worst_fit", four, {144, 64}, {144, 64}), "0:8 1:8 0:8 1:8");
    ck_assert_text(placed("worst_fit_lists", four, {144, 64}, {144, 64}), "0:8 1:8 0:8 0:8");
    ck_assert_text(placed("worst_fit", unordered({5, 5, 3, 3, 3}), {10, 9}, {10, 9}), "none");
    ck_assert_text(placed("best_fit", four, {144, 64}, {144, 64}), "1:8 0:8 1:8 0:8");
    ck_assert_text(placed("best_fit", unordered({6}), {32, 32, 32}, {9, 5, 7}), "2:6");
    ck_assert_text(placed("first_fit", four, {32, 32}, {20, 32}), "0:8 0:8 1:8 1:8");
    ck_assert_text(placed("cluster_filling", flexible(40), {144, 64}, {40, 50}), "1:40");
    ck_assert_text(placed("cluster_filling", flexible(60), {144, 64}, {40, 50}), "1:50 0:10");
    // 144 and 64 with 40 and 50 idle: loads 104/144 and 14/64; the second one fills first.
    ck_assert_text(placed("load_balancing", flexible(32), {144, 64}, {40, 50}), "1:32");
    ck_assert_text(placed("load_balancing", flexible(26), {128, 64}, {128, 64}), "0:17 1:9");
    ck_assert_text(placed("load_balancing", flexible(3, 2), {10, 10}, {10, 10}), "0:3");
    ck_assert_text(placed("worst_fit", flexible(12, 5), {10, 10}, {10, 10}), "0:7 1:5");
    ck_assert_text(placed("worst_fit", flexible(12, 1, 4), {10, 10}, {10, 10}), "none");
}
END_TEST

START_TEST(a_job_is_split_into_few_components_of_nearly_one_size) {
    const auto sizes = [](int64_t cpus, int64_t limit) {
        std::string out;
        for (const Component& c : split(cpus, limit)) out += std::to_string(c.cpus) + " ";
        return out;
    };
    ck_assert_text(sizes(16, 16), "16 ");
    ck_assert_text(sizes(17, 16), "9 8 ");
    ck_assert_text(sizes(64, 24), "22 21 21 ");
}
END_TEST

START_TEST(a_placement_gives_what_is_idle_and_refuses_only_for_lack_of_it) {
    Rng rng(7);
    for (int round = 0; round < 4000; ++round) {
        std::vector<int64_t> sizes;
        for (int64_t i = rng.between(1, 5); i > 0; --i) sizes.push_back(rng.between(1, 12));
        const std::vector<Cluster> clusters = clusters_of(sizes);
        Idle idle;
        for (const int64_t n : sizes) idle.push_back(rng.between(0, n));
        const Job job = random_job(rng, clusters, 8);
        int64_t sum = 0;
        for (const int64_t n : idle) sum += n;
        for (const PlacementEntry& entry : placements()) {
            const auto where = entry.make(clusters)->place(job, idle);
            if (where) {
                ck_assert(fits(*where, idle) && answers(*where, job));
                continue;
            }
            // A refused job must not fit wherever only one choice is left, or where the choice does
            // not matter.
            const int64_t most = *std::max_element(idle.begin(), idle.end());
            if (job.kind == Kind::flexible) ck_assert(job.component_min > 1 || job.cpus > sum);
            if (job.components.size() == 1 && job.kind != Kind::ordered) ck_assert(job.cpus > most);
            if (job.kind == Kind::ordered) {
                Idle left = idle;
                for (const Component& c : job.components) left[c.cluster] -= c.cpus;
                ck_assert(*std::min_element(left.begin(), left.end()) < 0);
            }
        }
    }
}
END_TEST

START_TEST(no_policy_starts_a_job_that_does_not_fit) {
    each_world(120, {.exact = false, .background = true}, [](const World& w, const Placement& p) {
        for (const PolicyEntry& entry : policies())
            judge(w, run_of(w, p, entry.name, {.overtakes_max = 3, .depth = 8}), false);
    });
}
END_TEST

START_TEST(fcfs_fpfs_and_bounded_overtaking_start_jobs_when_their_words_say) {
    each_world(150, {}, [](const World& w, const Placement& p) {
        const std::pair<const char*, size_t> all[] = {
            {"fcfs", 0}, {"fpfs", SIZE_MAX}, {"bounded_overtaking", 3}};
        for (const auto& [policy, passes] : all) {
            const std::vector<int64_t> start = naive(w, p, passes);
            const Outcome o = run_of(w, p, policy, {.overtakes_max = 3});
            for (size_t i = 0; i < start.size(); ++i)
                ck_assert_int_eq(o.jobs[i].start_ms, start[i]);
        }
    });
}
END_TEST

START_TEST(fcfs_never_overtakes_and_bounded_overtaking_keeps_its_bound) {
    size_t most_fpfs = 0, most_bounded = 0;
    each_world(200, {.exact = false, .background = true}, [&](const World& w, const Placement& p) {
        const Outcome fcfs = run_of(w, p, "fcfs"), fpfs = run_of(w, p, "fpfs"),
                      bounded = run_of(w, p, "bounded_overtaking", {.overtakes_max = 4});
        for (size_t i = 0; i < w.jobs.size(); ++i) {
            ck_assert_uint_eq(overtaken(fcfs, i), 0);
            most_fpfs = std::max(most_fpfs, overtaken(fpfs, i));
            most_bounded = std::max(most_bounded, overtaken(bounded, i));
        }
    });
    ck_assert_uint_eq(most_bounded, 4);
    ck_assert_uint_gt(most_fpfs, 8);
}
END_TEST

START_TEST(easy_never_delays_the_first_in_line_beyond_its_reservation) {
    for (const bool exact : {true, false}) {
        size_t bounds = 0, passed = 0;
        each_world(200, {.exact = exact}, [&](const World& w, const Placement& p) {
            const auto easy = make_policy("easy", p, {});
            Watch watch(*easy, p);
            const Result<Outcome> o = run(w, watch);
            ck_assert(o.has_value());
            judge(w, *o, false);
            for (const auto& [job, at] : watch.bound) ck_assert_int_le(o->jobs[job].start_ms, at);
            bounds += watch.bound.size();
            for (size_t i = 0; i < w.jobs.size(); ++i) passed += overtaken(*o, i);
        });
        ck_assert_uint_gt(bounds, 1000);
        ck_assert_uint_gt(passed, 1000);  // it does let jobs pass
    }
}
END_TEST

START_TEST(conservative_backfilling_delays_nobody) {
    size_t passed = 0;
    each_world(60, {}, [&](const World& w, const Placement& p) {
        const Outcome all = run_of(w, p, "conservative", {.depth = 1000});
        for (size_t i = 0; i < w.jobs.size(); ++i) passed += overtaken(all, i);
        // With exact estimates a job starts when it would start if nobody came after it.
        for (const size_t n : {5, 12, 23, 31}) {
            World fewer = w;
            fewer.jobs.resize(n);
            const Outcome o = run_of(fewer, p, "conservative", {.depth = 1000});
            for (size_t i = 0; i < n; ++i)
                ck_assert_int_eq(o.jobs[i].start_ms, all.jobs[i].start_ms);
        }
    });
    ck_assert_uint_gt(passed, 500);
}
END_TEST

START_TEST(backfilling_keeps_each_promise_when_jobs_end_early) {
    for (const char* policy : {"easy", "conservative"}) {
        size_t earlier = 0;
        each_world(150, {.exact = false}, [&](const World& w, const Placement& p) {
            const auto inner = make_policy(policy, p, {.depth = 8});
            Promises promises(*inner);
            const Result<Outcome> o = run(w, promises);
            ck_assert(o.has_value());
            for (const auto& [job, at] : promises.promised) {
                ck_assert_int_le(o->jobs[job].start_ms, at);
                earlier += o->jobs[job].start_ms < at;
            }
        });
        ck_assert_uint_gt(earlier, 100);
    }
}
END_TEST

START_TEST(others_jobs_come_first_and_a_departure_is_noticed_later) {
    World world;
    world.clusters = clusters_of({10});
    Job job = unordered({6});
    job.run_ms = job.estimate_ms = 100;
    world.jobs = {job, job};
    world.locals = {{50, 30, 0, 5}};
    world.notice_ms = 7;
    const auto placement = make_placement("worst_fit", world.clusters);
    const Outcome o = run_of(world, *placement, "fcfs");
    ck_assert_int_eq(o.jobs[0].end_ms, 100);
    // The background's job got the room at 100, before the second one; it ends at 130.
    ck_assert_int_eq(o.locals.front().from_ms, 100);
    ck_assert_int_eq(o.jobs[1].start_ms, 137);
    ck_assert_int_eq(o.jobs[1].end_ms, 237);
}
END_TEST

START_TEST(what_cannot_run_is_refused_with_its_number) {
    World world;
    world.clusters = clusters_of({4, 4});
    Job wide = unordered({3, 3});
    wide.run_ms = wide.estimate_ms = 5;
    Job wider = unordered({3, 3, 3});
    world.jobs = {wide, wider};
    const auto placement = make_placement("first_fit", world.clusters);
    const Status fit = all_fit(world, *placement);
    ck_assert_text(fit.error().message, "job 2 of 9 processors does not fit the empty clusters");
    world.jobs[1] = wide;
    world.jobs[1].cpus = 7;
    const auto policy = make_policy("fcfs", *placement, {});
    ck_assert_text(run(world, *policy).error().message,
                   "job 2: components of 6 processors in all, not 7");
}
END_TEST

UNIT_SUITE_LONG(coallocation, 120, placements_choose_as_the_reference_does,
                a_job_is_split_into_few_components_of_nearly_one_size,
                a_placement_gives_what_is_idle_and_refuses_only_for_lack_of_it,
                no_policy_starts_a_job_that_does_not_fit,
                fcfs_fpfs_and_bounded_overtaking_start_jobs_when_their_words_say,
                fcfs_never_overtakes_and_bounded_overtaking_keeps_its_bound,
                easy_never_delays_the_first_in_line_beyond_its_reservation,
                conservative_backfilling_delays_nobody,
                backfilling_keeps_each_promise_when_jobs_end_early,
                others_jobs_come_first_and_a_departure_is_noticed_later,
                what_cannot_run_is_refused_with_its_number);
