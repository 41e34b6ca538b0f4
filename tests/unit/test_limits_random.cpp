// SPDX-License-Identifier: GPL-2.0-or-later
// Limits of users in markets at random: against one pass over all, and without envy.
#include <array>

#include "kernel/base/rng.hpp"
#include "market/core/rank.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

// A market without faults whose users have limits, at rest after every event.
struct Quiet {
    World w;
    Rng rng;
    bool mixed;
    std::map<uint32_t, UserLimits> limits;
    size_t held = 0, lost = 0;

    Quiet(uint64_t seed, bool needs) : rng(seed), mixed(needs) {
        for (int64_t i = 1, n = rng.between(1, 5); i <= n; ++i)
            w.add_node("n" + std::to_string(i), rng.between(1, 3) * 50, rng.between(0, 20),
                       static_cast<int32_t>(rng.between(1, 4)),
                       mixed ? rng.between(2, 6) * 100 : 1'000'000);
        w.run_for(s(10));
    }
    JobId any_job() {
        auto it = w.jobs.begin();
        std::advance(it, static_cast<long>(rng.below(w.jobs.size())));
        return it->first;
    }
    void event() {
        const uint32_t uid = 1000 + static_cast<uint32_t>(rng.below(3));
        const uint64_t kind = rng.below(8);
        if (kind == 0) {
            UserLimits l;
            if (rng.chance(0.6)) l.jobs = static_cast<int32_t>(rng.between(0, 4));
            if (rng.chance(0.4)) l.cpus = static_cast<int32_t>(rng.between(0, 6));
            ck_assert(w.market->set_limits(uid, "u", l, 0, w.now).has_value());
            limits[uid] = l;
        } else if (kind < 5 || w.jobs.empty()) {
            w.submit("n1", rng.between(1, 60), Nanos::never(),
                     static_cast<int32_t>(mixed ? rng.between(1, 3) : 1),
                     mixed ? rng.between(0, 4) * 100 : 0, {}, uid);
        } else if (kind == 5) {
            auto& job = w.jobs.at(any_job());
            if (job.report.phase != JobPhase::finished) w.end(job);
        } else if (kind == 6) {
            auto& job = w.jobs.at(any_job());
            job.report.terms.max_price = Money::units(rng.between(1, 60));
            if (job.report.phase != JobPhase::finished) w.tell(job);
        } else {
            auto p = w.providers.at("n1");
            p.on_market = !p.on_market;
            w.set_provider(p);
        }
        w.run_for(s(30));
    }
    std::vector<const Job*> by_rank() const {
        std::vector<const Job*> order;
        for (const auto& [id, job] : w.market->jobs())
            if (job.phase() != JobPhase::finished) order.push_back(&job);
        const auto rank = [](const Job* j) { return Rank::of(j->bid, j->record.arrived, j->key); };
        std::sort(order.begin(), order.end(),
                  [&](const Job* a, const Job* b) { return rank(a) < rank(b); });
        exchange_turns(order);
        return order;
    }
    // Equal jobs of one user have the turns of all of them, the one in the best place the first.
    void exchange_turns(std::vector<const Job*>& order) const {
        std::map<std::array<int64_t, 4>, std::vector<size_t>> equal;
        for (size_t i = 0; i < order.size(); ++i) {
            const JobTerms& t = order[i]->record.report.terms;
            equal[{order[i]->record.report.uid, order[i]->bid.micro, t.cpus, t.memory_mb}]
                .push_back(i);
        }
        const auto place = [&](const Job* j) {
            return runs(j) ? class_at(j->record.report.where) : class_none;
        };
        for (const auto& [key, turns] : equal) {
            std::vector<const Job*> all;
            for (const size_t i : turns) all.push_back(order[i]);
            std::stable_sort(all.begin(), all.end(),
                             [&](const Job* a, const Job* b) { return place(a) < place(b); });
            for (size_t i = 0; i < turns.size(); ++i) order[turns[i]] = all[i];
        }
    }
    static bool runs(const Job* job) { return job->phase() == JobPhase::running; }
    bool lets(uint32_t uid, size_t jobs, int64_t cpus, int32_t more) {
        const UserLimits& l = limits[uid];
        return (!l.jobs || static_cast<int64_t>(jobs) < *l.jobs) &&
               (!l.cpus || cpus + more <= *l.cpus);
    }
    ClassKey class_at(const NodeName& n) const {
        return class_of(static_cast<int32_t>(w.providers.at(n).speed), w.providers.at(n).reserve);
    }

    // One pass over all jobs by rank, from nothing: each takes the best class with room, unless its
    // user's limits forbid.
    void check_against_one_pass() {
        std::map<NodeName, int32_t> room;
        for (const auto& [name, p] : w.providers) room[name] = p.on_market ? p.cpus : 0;
        std::map<uint32_t, int32_t> running;
        for (const Job* job : by_rank()) {
            const JobReport& r = job->record.report;
            NodeName best;
            for (const auto& [name, free] : room) {
                if (free < 1 || w.providers.at(name).reserve > r.terms.max_price) continue;
                if (best.empty() || class_at(name) < class_at(best)) best = name;
            }
            const bool allowed =
                lets(r.uid, static_cast<size_t>(running[r.uid]), running[r.uid], 1);
            const bool expected = allowed && !best.empty();
            ck_assert_msg(runs(job) == expected, "%s %s", r.id.text().c_str(),
                          w.comment(r.id).c_str());
            held += !allowed;
            lost += best.empty();
            if (!expected) continue;
            ck_assert(class_at(r.where) == class_at(best));
            --room[best];
            ++running[r.uid];
        }
    }
    // Nobody whom its limits allow to run envies a lesser one; who is not allowed would pass a
    // limit.
    void check_envy() {
        std::map<uint32_t, std::pair<size_t, int64_t>> running;
        std::map<NodeName, std::pair<int64_t, int64_t>> room;  // beside those that rank above
        for (const auto& [name, p] : w.providers) room[name] = {p.cpus, p.memory_mb};
        for (const Job* job : by_rank()) {
            const JobReport& r = job->record.report;
            auto& [jobs, cpus] = running[r.uid];
            if (!lets(r.uid, jobs, cpus, r.terms.cpus)) {
                ck_assert_msg(!runs(job), "%s is above its user's limits", r.id.text().c_str());
                ++held;
                continue;
            }
            for (const auto& [name, p] : w.providers) {
                if (!p.on_market || p.reserve > r.terms.max_price) continue;
                const bool better = !runs(job) || class_at(name) < class_at(r.where);
                const bool fits =
                    room[name].first >= r.terms.cpus && room[name].second >= r.terms.memory_mb;
                ck_assert_msg(!better || !fits, "%s (%s) would fit on %s", r.id.text().c_str(),
                              w.where(r.id).c_str(), name.c_str());
            }
            lost += !runs(job);
            if (!runs(job)) continue;
            room[r.where].first -= r.terms.cpus;
            room[r.where].second -= r.terms.memory_mb;
            ++jobs;
            cpus += r.terms.cpus;
        }
    }
};

}  // namespace

// Method: after every event of a random history the allocation is compared with the definition.
START_TEST(with_limits_the_allocation_is_that_of_one_pass_whatever_happened_before) {
    size_t held = 0, lost = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        Quiet q(seed, false);
        for (int i = 0; i < 60; ++i) {
            q.event();
            q.check_against_one_pass();
        }
        held += q.held;
        lost += q.lost;
    }
    ck_assert(held > 1'000 && lost > 1'000);
}
END_TEST

START_TEST(nobody_whom_its_limits_allow_to_run_envies_a_lesser_job) {
    size_t held = 0, lost = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        Quiet q(seed, true);
        for (int i = 0; i < 60; ++i) {
            q.event();
            q.check_envy();
        }
        held += q.held;
        lost += q.lost;
    }
    ck_assert(held > 1'000 && lost > 1'000);
}
END_TEST

UNIT_SUITE_LONG(market_limits_random, 120,
                with_limits_the_allocation_is_that_of_one_pass_whatever_happened_before,
                nobody_whom_its_limits_allow_to_run_envies_a_lesser_job);
