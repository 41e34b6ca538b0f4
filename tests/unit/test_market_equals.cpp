// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of one user that bid the same and need the same, on random markets: starts and moves that
// fail, nodes that come, go, shrink and change speed, waits that count, limits of the user. Nobody
// of them loses a place to another one of them. The judge looks at the orders alone, and shares no
// code with the market: with one such user, a job that runs is stopped only where its node is no
// place for it any more, and goes to a slower one only then.
#include "kernel/base/rng.hpp"
#include "tests/unit/market_world.hpp"
#include "tests/unit/seeds.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr int64_t equal_bid = 40, equal_memory = 100;

struct EqualsWorld {
    uint64_t seed;
    Rng rng;
    World w;
    int32_t cpus;
    size_t judged = 0, same_speed = 0;
    static constexpr double refusal = 0.2;
    // The last moment at which a node was no place for all that ran there.
    std::map<NodeName, Nanos> bad_at;

    static MarketOptions options(Rng& rng) {
        MarketOptions o;
        if (rng.chance(0.5)) o.solver.ageing = Nanos::from_s(rng.between(80, 4'000));
        if (rng.chance(0.2)) o.solver.horizon = Nanos::from_s(600);
        return o;
    }
    explicit EqualsWorld(uint64_t number) : seed(number), rng(number), w(options(rng)) {
        w.transit = Nanos::from_ms(rng.between(0, 3'000));
        cpus = static_cast<int32_t>(rng.between(1, 2));
        w.refuse = [this](const Order& o) -> std::optional<OrderFailed> {
            if (!rng.chance(refusal)) return std::nullopt;
            return OrderFailed{o.id, o.seq, o.node, "no"};
        };
        w.after_step = [this] { judge(); };
        for (int64_t i = 1, n = rng.between(2, 5); i <= n; ++i)
            w.add_node("n" + std::to_string(i), rng.between(1, 4) * 50, rng.between(0, 3) * 10,
                       cpus * static_cast<int32_t>(rng.between(1, 3)), 10'000);
    }
    // Nodes that offer fewer CPUs than World::providers says.
    std::map<NodeName, int32_t> offers;
    // Everybody as he stood before the step; orders since.
    std::map<JobId, NodeName> ran;
    size_t seen = 0;

    static bool uses(const JobReport& r, const NodeName& node) {
        const bool is_there = r.where == node && r.phase != JobPhase::finished &&
                              r.phase != JobPhase::frozen && r.phase != JobPhase::waiting;
        return is_there || r.to == node;
    }
    // Counts jobs that are there, were ordered there, or that the market last heard to be there.
    int64_t used(const NodeName& node) const {
        int64_t sum = 0;
        for (const auto& [id, job] : w.jobs) {
            const Job* const known = w.market->find(id);
            const bool ordered = known && known->record.order && known->record.order->node == node;
            const bool is_told = known && uses(known->record.report, node);
            if (uses(job.report, node) || is_told || ordered) sum += cpus;
        }
        return sum;
    }
    bool is_place(const NodeName& node) const {
        const ProviderReport& p = w.providers.at(node);
        const auto less = offers.find(node);
        return p.on_market && p.reserve <= Money::units(equal_bid) &&
               used(node) <= (less == offers.end() ? p.cpus : less->second);
    }
    void judge() {
        for (; seen < w.orders.size(); ++seen) {
            const Order& o = w.orders[seen];
            const auto was = ran.find(o.id);
            if (was == ran.end() || o.kind == Order::Kind::abort) continue;
            const ProviderReport& from = w.providers.at(was->second);
            // A node that was no place in the last seconds may be left still, as orders were in the
            // way.
            const bool bad = bad_at.contains(was->second);
            if (bad) continue;
            ++judged;
            ck_assert_msg(o.kind == Order::Kind::run, "seed %lu: %s is stopped on %s: %s", seed,
                          o.id.text().c_str(), was->second.c_str(), o.reason.c_str());
            const ProviderReport& to = w.providers.at(o.node);
            same_speed += to.speed == from.speed && to.reserve >= from.reserve;
            ck_assert_msg(to.speed >= from.speed, "seed %lu: %s goes from %s (%ld) to %s (%ld): %s",
                          seed, o.id.text().c_str(), was->second.c_str(), from.speed,
                          o.node.c_str(), to.speed, o.reason.c_str());
        }
        ran.clear();
        for (const auto& [id, job] : w.jobs)
            if (job.report.phase == JobPhase::running) ran[id] = job.report.where;
        for (const auto& [name, p] : w.providers) {
            if (!is_place(name))
                bad_at[name] = w.now;
            else if (const auto at = bad_at.find(name);
                     at != bad_at.end() && w.now > at->second + w.transit + Nanos::from_s(1))
                bad_at.erase(at);
        }
    }
    NodeName any_node() {
        auto it = w.providers.begin();
        std::advance(it, static_cast<long>(rng.below(w.providers.size())));
        return it->first;
    }
    void event() {
        switch (rng.below(8)) {
            case 0:
            case 1:
                for (int64_t n = rng.between(1, 4); n > 0; --n)
                    w.submit(
                        any_node(), equal_bid,
                        rng.chance(0.7) ? Nanos::from_ms(rng.between(500, 60'000)) : Nanos::never(),
                        cpus, equal_memory);
                return;
            case 2:
                for (const auto& [id, job] : w.jobs)
                    if (job.report.phase != JobPhase::finished && rng.chance(0.1))
                        (void)w.market->cancel(id, 0);
                return;
            case 3: {
                ProviderReport p = w.providers[any_node()];
                p.on_market = !p.on_market;
                return set_provider(p);
            }
            case 4: {
                ProviderReport p = w.providers[any_node()];
                p.cpus = cpus * static_cast<int32_t>(rng.between(1, p.cpus / cpus));
                if (!w.connected.contains(p.node)) return;
                offers[p.node] = p.cpus;
                if (!is_place(p.node)) bad_at[p.node] = w.now;
                ck_assert(w.market->report(p.node, p, w.now).has_value());
                return;
            }
            case 5: {
                ProviderReport p = w.providers[any_node()];
                p.reserve = Money::units(rng.between(0, 5) * 10);
                return set_provider(p);
            }
            case 6: {
                ProviderReport p = w.providers[any_node()];
                p.speed = rng.between(1, 4) * 50;
                return set_provider(p);
            }
            default: {
                const NodeName node = any_node();
                if (w.connected.contains(node)) return w.disconnect(node);
                offers.erase(node);
                return w.connect(node);
            }
        }
    }
    void set_provider(const ProviderReport& p) {
        if (!w.connected.contains(p.node)) return;
        offers.erase(p.node);
        w.set_provider(p);
        if (!is_place(p.node)) bad_at[p.node] = w.now;
    }
};

}  // namespace

START_TEST(nobody_loses_a_place_to_an_equal_job_of_the_same_user) {
    size_t judged = 0, same_speed = 0;
    const uint64_t seeds = seeds_wanted("SOUK_EQUALS", 300);
    const auto play = [&](uint64_t seed) {
        EqualsWorld e(seed);
        for (int i = 0; i < 120; ++i) {
            e.event();
            e.w.run_for(Nanos::from_ms(e.rng.between(0, 8'000)));
        }
        judged += e.judged;
        same_speed += e.same_speed;
    };
    for (uint64_t seed = 1; seed <= seeds; ++seed) play(seed);
    // One that had a faster place in view, and lost it to an equal one, was taken for a loser.
    play(1'363);
    ck_assert(judged > 5 * seeds);
    // The solver may have had one on another node of that speed, to which it never came.
    ck_assert_msg(same_speed * 200 < judged, "%zu of %zu", same_speed, judged);
}
END_TEST

// Whoever moves a job by hand does not wait for an equal one that is there.
START_TEST(a_job_that_is_moved_by_hand_goes_before_its_equals) {
    for (const bool first : {true, false}) {
        World w;
        for (const char* const name : {"n1", "n2"}) w.add_node(name, 100, 1, 1);
        const JobId a = w.submit("n1", 10), b = w.submit("n1", 10);
        w.run_for(Nanos::from_s(5));
        const JobId moved = first ? a : b;
        const NodeName there = w.where(moved) == "n1" ? "n2" : "n1";
        ck_assert(w.market->move(moved, there, true, 0).has_value());
        w.run_for(Nanos::from_s(60));
        ck_assert_text(w.where(moved), there);
    }
}
END_TEST

UNIT_SUITE_LONG(market_equals, 300, a_job_that_is_moved_by_hand_goes_before_its_equals,
                nobody_loses_a_place_to_an_equal_job_of_the_same_user);
