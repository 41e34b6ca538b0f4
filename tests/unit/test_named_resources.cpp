// SPDX-License-Identifier: GPL-2.0-or-later
// Named resources in the solver: random markets in which jobs and nodes come, change and go, judged
// from the words of allocator.hpp by tables that share nothing with it. Never is more given than
// there is, nobody is kept from a place by somebody who bids less, and a price is the bid at which
// the place is lost (where speeds, and the reserves of a name, are equal).
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "kernel/base/rng.hpp"
#include "market/core/solver.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr uint32_t names_on_nodes = 3, names_of_market = 2;  // the latter are 10 and 11

struct NamedWorld {
    explicit NamedWorld(uint64_t seed, bool one_speed = false)
        : rng(seed), equal_speeds(one_speed) {
        for (int64_t n = rng.between(1, 4); n > 0; --n) add_node();
        set_licences();
    }

    NamedAmounts some(uint32_t from, uint32_t count, int32_t most, double chance) {
        NamedAmounts all;
        for (uint32_t name = from; name < from + count; ++name)
            if (rng.chance(chance))
                all.push_back({name, static_cast<int32_t>(rng.between(1, most))});
        return all;
    }
    NamedOffers offers(uint32_t from, uint32_t count) {
        NamedOffers all;
        for (const NamedAmount& one : some(from, count, 4, 0.7))
            all.push_back({one.name, one.count,
                           Money::units(equal_speeds ? one.name % 4 : rng.between(0, 6))});
        return all;
    }
    ProviderSpec any_node() {
        ProviderSpec spec;
        spec.reserve = Money::units(rng.between(0, 10));
        spec.speed = equal_speeds ? 100 : static_cast<int32_t>(rng.between(1, 3)) * 50;
        spec.cpus = static_cast<int32_t>(rng.between(1, 5));
        spec.memory_mb = rng.between(1, 8) * 100;
        spec.accepting = rng.chance(0.9);
        spec.named = offers(0, names_on_nodes);
        return spec;
    }
    void add_node() {
        const uint64_t key = ++last;
        nodes[key] = any_node();
        ck_assert(solver.add_provider({key}, nodes[key]));
    }
    void set_licences() {
        licences = offers(10, names_of_market);
        ck_assert(solver.set_licences(licences));
    }
    void ask(JobDemand& d) {
        d.value = Money::units(rng.between(1, 40));
        d.cpus = static_cast<int32_t>(rng.between(1, 2));
        d.memory_mb = rng.between(0, 3) * 100;
        d.named = some(0, names_on_nodes, 2, 0.3);
        d.licences = some(10, names_of_market, 2, 0.3);
    }
    void add_job() {
        const uint64_t key = ++last;
        JobDemand d;
        ask(d);
        d.user = static_cast<uint32_t>(key);
        d.arrival = Nanos::from_s(static_cast<int64_t>(key));
        ck_assert(solver.add_job({key}, d));
        jobs.insert(key);
    }
    uint64_t one_of(const std::set<uint64_t>& all) {
        auto at = all.begin();
        std::advance(at, static_cast<long>(rng.below(all.size())));
        return *at;
    }
    uint64_t one_node() {
        auto at = nodes.begin();
        std::advance(at, static_cast<long>(rng.below(nodes.size())));
        return at->first;
    }
    void change_job() {
        const uint64_t key = one_of(jobs);
        JobDemand d = *solver.job({key});
        switch (rng.below(4)) {
            case 0: d.value = Money::units(rng.between(1, 40)); break;
            case 1:
                if (!stays) ask(d);
                break;
            case 2:  // by hand, or on its way
                if (stays) break;
                d.pin = d.pin != Pin::free             ? Pin::free
                        : d.state == JobState::running ? Pin::stay
                                                       : Pin::frozen;
                break;
            default:
                if (!stays) d.named_kept = !d.named_kept && d.state == JobState::running;
        }
        ck_assert(solver.change_job({key}, d));
    }
    void stay_a_while() {
        stays = true;
        SolverOptions options;
        options.min_stay = Nanos::from_s(3);
        ck_assert(solver.set_options(options).has_value());
    }
    void event() {
        switch (rng.below(10)) {
            case 0: {
                const uint64_t key = one_node();
                nodes[key] = any_node();
                ck_assert(solver.change_provider({key}, nodes[key]));
                return;
            }
            case 1:
                if (nodes.size() < 5) return add_node();
                if (const uint64_t key = one_node(); solver.remove_provider({key}))
                    nodes.erase(key);
                return;
            case 2: return set_licences();
            case 3:
                if (jobs.empty()) return;
                if (const uint64_t key = one_of(jobs); solver.remove_job({key})) jobs.erase(key);
                return;
            case 4:
            case 5:
                if (!jobs.empty()) change_job();
                return;
            default:
                if (jobs.size() < 25) add_job();
        }
    }

    Rng rng;
    bool equal_speeds, stays = false;
    Solver solver;
    uint64_t last = 0;
    std::map<uint64_t, ProviderSpec> nodes;
    NamedOffers licences;
    std::set<uint64_t> jobs;
};

// The market as the solver says it is, in tables of its own.
struct Judge {
    using Order = std::tuple<bool, int64_t, int64_t, uint64_t>;  // false before true
    struct One {
        JobDemand d;
        uint64_t at = 0;
        Order order;
    };
    explicit Judge(const NamedWorld& world) : w(world) {
        for (const uint64_t key : w.jobs) {
            One one{*w.solver.job({key}), w.solver.standing({key}).slot.n, {}};
            const bool fixed = one.d.pin == Pin::stay;
            one.order = {!fixed, -one.d.value.micro, one.d.arrival.ns, key};
            all[key] = one;
        }
    }
    static int64_t count(const auto& named, uint32_t name) {
        int64_t n = 0;
        for (const auto& one : named)
            if (one.name == name) n += one.count;
        return n;
    }
    static int64_t need(const One& one, uint32_t name) {
        if (one.d.named_kept) return 0;
        return count(name >= 10 ? one.d.licences : one.d.named, name);
    }
    // In micro-units, so often times as it has CPUs, which leaves no rest.
    int64_t reserve_for_all(const One& one, const ProviderSpec& node) const {
        int64_t sum = node.reserve.micro * one.d.cpus;
        for (const auto& [wants, has] :
             {std::pair{&one.d.named, &node.named}, {&one.d.licences, &w.licences}})
            for (const NamedAmount& want : *wants)
                for (const NamedOffer& offer : *has)
                    if (offer.name == want.name) sum += offer.reserve.micro * want.count;
        return sum;
    }
    // So much is left on the node, or of the market (node 0), beside those before `order`.
    int64_t left(uint64_t node, uint32_t name, const Order& order) const {
        int64_t n = count(node == 0 ? w.licences : w.nodes.at(node).named, name);
        for (const auto& [key, one] : all)
            if (one.at != 0 && (node == 0 || one.at == node) && one.order < order)
                n -= need(one, name);
        return n;
    }
    bool would_fit(const One& one, uint64_t node) const {
        const ProviderSpec& spec = w.nodes.at(node);
        int64_t cpus = spec.cpus, mb = spec.memory_mb;
        for (const auto& [key, other] : all) {
            if (other.at != node || !(other.order < one.order)) continue;
            cpus -= other.d.cpus;
            mb -= other.d.memory_mb;
        }
        if (cpus < one.d.cpus || mb < one.d.memory_mb) return false;
        for (const uint32_t name : {0U, 1U, 2U})
            if (const int64_t n = need(one, name); n > 0 && left(node, name, one.order) < n)
                return false;
        for (const uint32_t name : {10U, 11U})
            if (const int64_t n = need(one, name); n > 0 && left(0, name, one.order) < n)
                return false;
        return true;
    }

    void never_more_than_there_is() const {
        const Order after_all{true, INT64_MAX, INT64_MAX, UINT64_MAX};
        for (const uint32_t name : {0U, 1U, 2U, 10U, 11U}) {
            std::map<uint64_t, bool> free_ones;  // by place: somebody there is not pinned
            for (const auto& [key, one] : all)
                if (one.at != 0 && need(one, name) > 0)
                    free_ones[name >= 10 ? 0 : one.at] |= one.d.pin == Pin::free;
            for (const auto& [place, any] : free_ones)
                ck_assert_msg(!any || left(place, name, after_all) >= 0,
                              "%ld of name %u too many on %lu", -left(place, name, after_all), name,
                              place);
        }
    }
    void nobody_is_kept_out_by_less() const {
        for (const auto& [key, one] : all) {
            if (one.d.pin != Pin::free) continue;
            for (const auto& [node, spec] : w.nodes) {
                if (!spec.accepting) continue;
                if (reserve_for_all(one, spec) > one.d.value.micro * one.d.cpus) {
                    ck_assert_msg(one.at != node, "%lu is below the reserve of %lu", key, node);
                    continue;
                }
                const auto better = [&] {
                    if (one.at == 0) return true;
                    const ProviderSpec& own = w.nodes.at(one.at);
                    return std::tuple(-spec.speed, spec.reserve) <
                           std::tuple(-own.speed, own.reserve);
                };
                ck_assert_msg(!better() || !would_fit(one, node), "%lu is kept from %lu", key,
                              node);
            }
        }
    }
    void prices_are_in_their_range() const {
        for (const Payment& p : w.solver.payments()) {
            const One& one = all.at(p.job.n);
            ck_assert_int_le(p.price.micro, one.d.value.micro);
            if (one.d.pin == Pin::free)
                ck_assert_int_ge(p.price.micro * one.d.cpus,
                                 reserve_for_all(one, w.nodes.at(p.provider.n)));
        }
    }

    const NamedWorld& w;
    std::map<uint64_t, One> all;
};

// Whether the job runs if it bids so and everybody is placed from nothing.
bool runs_with(const NamedWorld& w, uint64_t key, Money bid) {
    Solver fresh;
    ck_assert(fresh.set_licences(w.licences));
    for (const auto& [node, spec] : w.nodes) ck_assert(fresh.add_provider({node}, spec));
    for (const uint64_t k : w.jobs) {
        JobDemand d = *w.solver.job({k});
        d.state = JobState::waiting;
        d.place = {};
        d.pin = Pin::free;
        d.named_kept = false;
        if (k == key) d.value = bid;
        ck_assert(fresh.add_job({k}, d));
    }
    (void)fresh.solve({});
    return fresh.standing({key}).slot.n != 0;
}

}  // namespace

START_TEST(no_more_is_given_than_there_is_and_nobody_is_kept_out_by_less) {
    for (uint64_t seed = 1; seed <= 400; ++seed) {
        NamedWorld w(seed);
        if (seed % 8 == 0) w.stay_a_while();
        for (int step = 0; step < 60; ++step) {
            for (int64_t n = w.rng.between(1, 3); n > 0; --n) w.event();
            (void)w.solver.solve(Nanos::from_s(step));
            const Judge judge(w);
            judge.never_more_than_there_is();
            if (seed % 8 != 0) judge.nobody_is_kept_out_by_less();
            if (step % 8 == 0) judge.prices_are_in_their_range();
        }
    }
}
END_TEST

START_TEST(all_algorithms_and_answers_of_others_keep_to_what_there_is) {
    for (const char* name : {"proportional_share", "welfare", "balance"})
        for (uint64_t seed = 1; seed <= 60; ++seed) {
            NamedWorld w(seed);
            SolverOptions options;
            options.algorithm = name;
            ck_assert(w.solver.set_options(options).has_value());
            for (int step = 0; step < 40; ++step) {
                w.event();
                (void)w.solver.solve(Nanos::from_s(step * 30));
                Judge(w).never_more_than_there_is();
                (void)w.solver.payments();
            }
        }
    // An answer that gives one twice is refused.
    Solver solver;
    ProviderSpec node;
    node.cpus = 4;
    node.named = {{0, 1, {}}};
    JobDemand job;
    job.value = Money::units(5);
    job.named = {{0, 1}};
    ck_assert(solver.add_provider({1}, node));
    ck_assert(solver.add_job({2}, job));
    ck_assert(solver.add_job({3}, job));
    const Solver::Assignment both[] = {{{2}, {1}}, {{3}, {1}}}, one[] = {{{3}, {1}}};
    ck_assert(!solver.adopt(both, {}).has_value());
    ck_assert(solver.adopt(one, {}).has_value());
}
END_TEST

START_TEST(a_price_is_the_bid_at_which_the_place_is_lost) {
    int looked_at = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        NamedWorld w(seed, true);
        for (int n = 0; n < 14; ++n) w.add_job();
        (void)w.solver.solve({});
        for (const uint64_t key : w.jobs) {
            const auto price = w.solver.price({key});
            if (!price) continue;
            ++looked_at;
            const Money bid = w.solver.job({key})->value;
            // At its price the order of arrival decides.
            ck_assert_msg(runs_with(w, key, std::min(bid, Money{price->micro + 1})),
                          "seed %lu: %lu pays %s and would not run above it", seed, key,
                          format_money(*price).c_str());
            if (price->micro > 0)
                ck_assert_msg(!runs_with(w, key, Money{price->micro - 1}),
                              "seed %lu: %lu pays %s and would run below it", seed, key,
                              format_money(*price).c_str());
        }
    }
    ck_assert_int_gt(looked_at, 300);
}
END_TEST

START_TEST(the_bid_that_is_said_to_win_wins) {
    int won = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        NamedWorld w(seed);
        for (int n = 0; n < 14; ++n) w.add_job();
        (void)w.solver.solve({});
        for (const uint64_t key : w.jobs) {
            if (w.solver.standing({key}).slot.n != 0) continue;
            const auto bid = w.solver.winning_bid(JobKey{key});
            JobDemand d = *w.solver.job({key});
            d.value = bid.value_or(money_max);
            Solver trial = w.solver.copy();
            ck_assert(trial.change_job({key}, d));
            (void)trial.solve(Nanos::from_s(1));
            const bool runs = trial.standing({key}).slot.n != 0;
            ck_assert_msg(runs == bid.has_value(), "seed %lu: %lu", seed, key);
            won += runs;
        }
    }
    ck_assert_int_gt(won, 100);
}
END_TEST

UNIT_SUITE(named_resources, no_more_is_given_than_there_is_and_nobody_is_kept_out_by_less,
           all_algorithms_and_answers_of_others_keep_to_what_there_is,
           a_price_is_the_bid_at_which_the_place_is_lost, the_bid_that_is_said_to_win_wins);
