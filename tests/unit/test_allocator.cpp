// SPDX-License-Identifier: GPL-2.0-or-later
// The incremental solve against two others: the full pass of the same code, and a naive greedy that
// is written here from the words of allocator.hpp.
#include <algorithm>
#include <vector>

#include "market/core/allocator.hpp"
#include "tests/unit/allocator_world.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

// The naive greedy, from the words of allocator.hpp: all jobs in rank order, a table of who is
// where.
struct Naive {
    struct J {
        JobDemand s;
        uint64_t place = 0;  // where it is physically
        bool soft = false;   // not yet had its turn, still on its machine
        uint64_t result = 0;
    };
    std::map<uint64_t, J> jobs;
    std::map<uint64_t, ProviderSpec> providers;

    Rank rank(uint64_t k) const {
        const JobDemand& s = jobs.at(k).s;
        return s.pin == Pin::stay ? Rank{INT64_MIN, 0, k} : rank_in_words(s, k);
    }
    bool eligible(const JobDemand& s, uint64_t p) const {
        const ProviderSpec& m = providers.at(p);
        return m.accepting && m.reserve <= s.value &&
               std::find(s.barred.begin(), s.barred.end(), ProviderKey{p}) == s.barred.end();
    }
    // Guests of p, strongest first: those with a final place and those still there.
    std::vector<uint64_t> guests(uint64_t p) const {
        std::vector<uint64_t> g;
        for (const auto& [k, j] : jobs)
            if (j.result == p || (j.soft && j.place == p)) g.push_back(k);
        std::sort(g.begin(), g.end(), [&](uint64_t a, uint64_t b) { return rank(a) < rank(b); });
        return g;
    }
    // The guests that must go from p for this need, weakest first; false if those after `k` do not
    // suffice.
    bool must_go(uint64_t p, const JobDemand& s, const Rank& r, std::vector<uint64_t>& go) const {
        int64_t cpus = providers.at(p).cpus, mb = providers.at(p).memory_mb;
        auto g = guests(p);
        for (const uint64_t k : g) cpus -= jobs.at(k).s.cpus, mb -= jobs.at(k).s.memory_mb;
        go.clear();
        while (cpus < s.cpus || mb < s.memory_mb) {
            if (g.empty() || rank(g.back()) <= r) return false;
            cpus += jobs.at(g.back()).s.cpus;
            mb += jobs.at(g.back()).s.memory_mb;
            go.push_back(g.back());
            g.pop_back();
        }
        return true;
    }
    ClassKey cls(uint64_t p) const {
        return class_of(providers.at(p).speed, providers.at(p).reserve);
    }

    void solve() {
        for (auto& [k, j] : jobs) {
            const bool there = j.place != 0 && providers.count(j.place);
            if (j.s.pin == Pin::stay && there) j.result = j.place;
            j.soft = j.s.pin == Pin::free && j.s.state == JobState::running && there &&
                     eligible(j.s, j.place);
        }
        for (const auto& [p, m] : providers) {  // whoever is too much where it is
            for (;;) {
                int64_t cpus = m.cpus, mb = m.memory_mb;
                auto g = guests(p);
                for (const uint64_t k : g) cpus -= jobs.at(k).s.cpus, mb -= jobs.at(k).s.memory_mb;
                if ((cpus >= 0 && mb >= 0) || g.empty() || !jobs.at(g.back()).soft) break;
                jobs.at(g.back()).soft = false;
            }
        }
        std::vector<uint64_t> order;
        for (const auto& [k, j] : jobs)
            if (j.s.pin == Pin::free) order.push_back(k);
        std::sort(order.begin(), order.end(),
                  [&](uint64_t a, uint64_t b) { return rank(a) < rank(b); });
        for (const uint64_t k : order) turn(k);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint64_t a, uint64_t b) { return bytes(a) > bytes(b); });
        for (const bool frozen : {false, true})
            for (const uint64_t k : order)
                if ((jobs.at(k).s.state == JobState::frozen) == frozen) roll_back(k);
    }

    int64_t bytes(uint64_t k) const {
        const JobDemand& s = jobs.at(k).s;
        return s.move_bytes >= 0 ? s.move_bytes : s.memory_mb * 1'000'000;
    }
    bool at(uint64_t k, uint64_t p) const {
        return jobs.at(k).s.state == JobState::running && jobs.at(k).place == p;
    }
    bool fits_all(uint64_t p) const {
        int64_t cpus = providers.at(p).cpus, mb = providers.at(p).memory_mb;
        for (const uint64_t k : guests(p)) cpus -= jobs.at(k).s.cpus, mb -= jobs.at(k).s.memory_mb;
        return cpus >= 0 && mb >= 0;
    }
    bool somebody_wants(uint64_t p) const {
        std::vector<uint64_t> go;
        for (const auto& [k, j] : jobs)
            if (j.s.pin == Pin::free && eligible(j.s, p) && (!j.result || cls(p) < cls(j.result)) &&
                must_go(p, j.s, rank(k), go))
                return true;
        return false;
    }
    void roll_back(uint64_t d) {
        J& j = jobs.at(d);
        const bool frozen = j.s.state == JobState::frozen;
        const uint64_t p = frozen ? j.s.place.n : j.place;
        if (j.s.state == JobState::waiting || !j.result || !p || p == j.result ||
            !providers.count(p))
            return;
        if (cls(p) != cls(j.result) || !eligible(j.s, p)) return;
        uint64_t best = 0;
        int64_t least = bytes(d);
        for (const uint64_t x : guests(p)) {
            J& o = jobs.at(x);
            const bool lies_here = frozen && o.s.state == JobState::frozen && o.s.place.n == p;
            const int64_t saves = at(x, p) || lies_here ? bytes(x) : 0;
            if ((frozen && at(x, p)) || o.s.pin != Pin::free || saves > least || saves >= bytes(d))
                continue;
            if (!eligible(o.s, j.result)) continue;
            std::swap(o.result, j.result);
            if (fits_all(o.result) && fits_all(j.result)) least = saves, best = x;
            std::swap(o.result, j.result);
        }
        if (!best) return;
        J& o = jobs.at(best);
        std::swap(o.result, j.result);
        if (somebody_wants(o.result) || somebody_wants(j.result)) std::swap(o.result, j.result);
    }

    void turn(uint64_t k) {
        J& j = jobs.at(k);
        std::vector<uint64_t> go;
        ClassKey best = class_none;
        const bool was_soft = j.soft;
        j.soft = false;
        for (const auto& [p, m] : providers)
            if (eligible(j.s, p) && must_go(p, j.s, rank(k), go)) best = std::min(best, cls(p));
        if (best == class_none) return;
        uint64_t to = 0;
        const bool running =
            j.s.state == JobState::running && j.place != 0 && providers.count(j.place);
        if (running && eligible(j.s, j.place) && cls(j.place) == best &&
            (was_soft || must_go(j.place, j.s, rank(k), go)))
            to = j.place;
        auto free_at = [&](uint64_t p) {
            return eligible(j.s, p) && cls(p) == best && must_go(p, j.s, rank(k), go) && go.empty();
        };
        if (!to && j.s.state == JobState::frozen && providers.count(j.s.place.n) &&
            free_at(j.s.place.n))
            to = j.s.place.n;
        for (const auto& [p, m] : providers)
            if (!to && free_at(p)) to = p;
        if (!to) {
            Rank weakest = rank(k);
            for (const auto& [p, m] : providers) {
                if (!eligible(j.s, p) || cls(p) != best || !must_go(p, j.s, rank(k), go)) continue;
                if (rank(go.back()) > weakest) weakest = rank(go.back()), to = p;
            }
        }
        must_go(to, j.s, rank(k), go);
        for (const uint64_t d : go) jobs.at(d).soft = false;
        j.result = to;
    }
};

Naive snapshot(const AllocatorWorld& w, const Solver& s) {
    Naive n;
    n.providers = w.providers;
    for (const auto& [k, spec] : w.jobs) {
        n.jobs[k].s = *s.job(JobKey{k});
        if (n.jobs[k].s.state == JobState::running || n.jobs[k].s.pin == Pin::stay)
            n.jobs[k].place = n.jobs[k].s.place.n;
    }
    return n;
}

START_TEST(solve_equals_the_naive_greedy_after_every_event) {
    for (const Shape& shape : shapes)
        for (uint64_t seed = 1; seed <= 12; ++seed) {
            AllocatorWorld w(seed * 977, shape);
            Solver s;
            for (int step = 0; step < 150; ++step) {
                random_event(w, s);
                Naive n = snapshot(w, s);
                n.solve();
                s.solve(Nanos::from_s(w.clock_s));
                for (const auto& [k, j] : n.jobs) {
                    if (j.s.pin == Pin::stay && j.s.state == JobState::running &&
                        !w.providers.count(j.place))
                        continue;
                    ck_assert_msg(place_of(s, k) == j.result,
                                  "shape %d seed %d step %d: job %d is on %d, not %d",
                                  static_cast<int>(&shape - shapes), static_cast<int>(seed), step,
                                  static_cast<int>(k), static_cast<int>(place_of(s, k)),
                                  static_cast<int>(j.result));
                }
            }
        }
}
END_TEST

START_TEST(incremental_equals_full_under_all_rules) {
    decide_alike_in_all(6, random_event<Pair>,
                        [](const Pair& t) { ck_assert(t.a.next_wake() == t.b.next_wake()); });
}
END_TEST

}  // namespace

UNIT_SUITE_LONG(allocator, 120, solve_equals_the_naive_greedy_after_every_event,
                incremental_equals_full_under_all_rules);

}  // namespace souk::unit
