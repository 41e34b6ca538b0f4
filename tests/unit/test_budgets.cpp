// SPDX-License-Identifier: GPL-2.0-or-later
// Budgets from end to end: the Market that charges and freezes, the Homes that warn and see to it
// while the market is silent (budget_world.hpp). Whatever happens, no job costs a micro-unit more
// than its budget allows, no user's job is frozen for it unwarned, none runs on at a market's
// silence, and a larger budget wakes it.
#include "tests/unit/budget_world.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
// what words take both ways, and the lead that a home gives the market
constexpr Nanos slack = s(6);

struct Town : Street {
    uint64_t seed;
    size_t silences = 0, woken = 0, warned = 0, ends = 0;

    explicit Town(uint64_t which) : Street(which), seed(which) {
        refusal = rng.chance(0.5) ? 0.1 : 0;
        for (int64_t i = 1, n = rng.between(2, 4); i <= n; ++i)
            add_node("n" + std::to_string(i), rng.between(1, 3) * 50, rng.between(10, 60),
                     static_cast<int32_t>(rng.between(1, 3)));
        after_step = [this] { check(); };
        run_for(s(10));
    }

    // These statements must hold at every step.
    void check() {
        ck_assert_text(market->audit(), "");
        for (auto& [id, f] : facts) {
            const HomeJob* job = find(id);
            if (f.most.micro > 0) {
                const Job* known = market->find(id);
                const Money cost = known ? market->cost(*known, now) : Money{};
                ck_assert_msg(cost <= f.most && paid[id] <= f.most, "%s has cost %ld of %ld",
                              id.text().c_str(), cost.micro, f.most.micro);
                if (job) ck_assert(job->cost <= f.most);
            }
            if (!job || job->phase != JobPhase::running || job->terms.budget.micro == 0) continue;
            // it may be that it cannot be dumped
            if (refusal > 0 || now < f.changed + slack) continue;
            // The time for which the job has run beyond what its home was told.
            const Nanos beyond = ran(id) - f.told_at_run - slack;
            if (beyond.ns <= 0 || f.told_price.micro == 0) continue;
            const Money most = std::max(job->terms.budget, f.told_cost);
            ck_assert_msg(f.told_cost + cost_of(f.told_price, 1, beyond) <= most,
                          "seed %lu: %s runs on: %ld told, %ld s since at %ld, of %ld",
                          static_cast<unsigned long>(seed), id.text().c_str(), f.told_cost.micro,
                          beyond.ns / 1'000'000'000, f.told_price.micro, most.micro);
        }
    }

    NodeName any_node() {
        auto it = agents.begin();
        std::advance(it, static_cast<long>(rng.below(agents.size())));
        return it->first;
    }
    std::optional<JobId> any_job() {
        if (facts.empty()) return {};
        auto it = facts.begin();
        std::advance(it, static_cast<long>(rng.below(facts.size())));
        const HomeJob* job = find(it->first);
        return job && job->phase != JobPhase::finished ? std::optional(it->first) : std::nullopt;
    }
    Money some_budget() { return {rng.between(1, 1'500'000)}; }  // seconds to minutes

    void event() {
        const NodeName node = any_node();
        const auto id = any_job();
        switch (rng.below(14)) {
            case 0:
            case 1:
            case 2:
                if (facts.size() < 25)
                    submit(node, rng.between(20, 90), rng.chance(0.8) ? some_budget() : Money{},
                           s(rng.between(20, 400)));
                return;
            case 3:
            case 4:
                if (id)
                    change_budget(*id, find(*id)->terms.budget.micro > 0 && rng.chance(0.8)
                                           ? find(*id)->terms.budget + some_budget()
                                       : rng.chance(0.7) ? some_budget()
                                                         : Money{});
                return;
            case 5: {
                agents.at(node).offer.reserve = Money::units(rng.between(10, 80));
                return say_offer(node);
            }
            case 6: {
                agents.at(node).offer.on_market = !agents.at(node).offer.on_market;
                return say_offer(node);
            }
            case 7:
                if (id) (void)market->move(*id, node, false, 0);
                return;
            case 8:
                if (id)
                    (void)(rng.chance(0.5) ? market->freeze(*id, false, 0)
                                           : market->thaw(*id, "", false, 0));
                return;
            case 9: return agents.at(node).up ? lose(node) : connect(node);
            case 10:
                if (rng.chance(0.5)) start_market();
                return;
            case 11: {
                silent_until = now + s(rng.between(1, 120));
                ++silences;
                return excuse_all();
            }
            case 12:
                if (rng.chance(0.3)) restart_home(node);
                return;
            default: return;
        }
    }

    // All nodes are there, and no job is in the way of another. A job that gets more money must
    // run, and end.
    void heal() {
        run_for(s(130));
        refusal = 0;
        for (auto& [name, a] : agents) {
            connect(name);
            a.offer.on_market = true;
            a.offer.reserve = Money::units(10);
            say_offer(name);
        }
        add_node("big", 100, 10, 40);
        run_for(s(600));
        for (auto& [id, f] : facts) {
            const HomeJob* job = find(id);
            warned += f.warned.size();
            ends += static_cast<size_t>(f.used_up);
            if (!job || job->phase == JobPhase::finished) continue;
            ck_assert_msg(job->phase == JobPhase::frozen, "%s is %s: %s", id.text().c_str(),
                          to_string(job->phase), job->comment.c_str());
            const std::string comment = market->comment(*market->find(id));
            ck_assert_msg(comment.find("is used up") != std::string::npos, "%s: %s",
                          id.text().c_str(), comment.c_str());
            // more than it has, if it had none before
            const Money spent = market->find(id)->record.account.amount;
            change_budget(id, std::max(spent, job->terms.budget) + Money{200'000});  // 72 s at 10
            run_for(s(15));
            // the job ran, and the end of another one made a better place free
            if (find(id)->phase == JobPhase::moving) run_for(s(15));
            const JobPhase phase = find(id)->phase;
            ck_assert_msg(phase == JobPhase::running || phase == JobPhase::finished,
                          "%s has more, and is %s: %s", id.text().c_str(), to_string(phase),
                          market->comment(*market->find(id)).c_str());
            ++woken;
            change_budget(id, {});
        }
        run_for(s(1'000));
        for (auto& [id, f] : facts)
            ck_assert_msg(!find(id) || find(id)->phase == JobPhase::finished, "%s does not end",
                          id.text().c_str());
    }
};

}  // namespace

START_TEST(no_budget_is_passed_by_a_micro_unit_its_end_is_told_and_more_of_it_wakes_the_job) {
    size_t silences = 0, woken = 0, warned = 0, ends = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        Town t(seed);
        for (int i = 0; i < 80; ++i) {
            t.event();
            t.run_for(Nanos::from_ms(t.rng.between(0, 15'000)));
        }
        t.heal();
        silences += t.silences;
        woken += t.woken;
        warned += t.warned;
        ends += t.ends;
    }
    ck_assert_msg(silences > 100 && woken > 100 && warned > 300 && ends > 300, "%zu %zu %zu %zu",
                  silences, woken, warned, ends);
}
END_TEST

// Nothing else happens here, so no job has an excuse.
START_TEST(whoever_is_frozen_for_its_budget_in_a_quiet_market_was_warned_before) {
    size_t ends = 0;
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        Town t(seed);
        for (int i = 0; i < 60; ++i) {
            const auto id = t.any_job();
            switch (t.rng.below(4)) {
                case 0:
                    t.submit(t.any_node(), t.rng.between(20, 90), t.some_budget(),
                             s(t.rng.between(20, 400)));
                    break;
                case 1:
                    if (id) t.change_budget(*id, t.find(*id)->terms.budget + t.some_budget());
                    break;
                case 2: {
                    const NodeName node = t.any_node();
                    t.agents.at(node).offer.reserve = Money::units(t.rng.between(10, 80));
                    t.say_offer(node);
                    break;
                }
                default:
                    if (id) (void)t.market->move(*id, t.any_node(), false, 0);
            }
            t.run_for(Nanos::from_ms(t.rng.between(0, 20'000)));
        }
        for (const auto& [id, f] : t.facts) {
            ck_assert(!f.excused);
            ends += static_cast<size_t>(f.used_up);
        }
    }
    ck_assert_msg(ends > 200, "%zu", ends);
}
END_TEST

UNIT_SUITE_LONG(budgets, 300,
                no_budget_is_passed_by_a_micro_unit_its_end_is_told_and_more_of_it_wakes_the_job,
                whoever_is_frozen_for_its_budget_in_a_quiet_market_was_warned_before);
