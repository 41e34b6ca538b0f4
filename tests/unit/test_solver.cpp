// SPDX-License-Identifier: GPL-2.0-or-later
// The Solver as its callers see it: shares over a window, the migration-aware bounds over random
// histories, switching at run time, reasons, an allocation from outside.
#include <cmath>
#include <map>
#include <tuple>

#include "kernel/base/rng.hpp"
#include "market/core/change_reason.hpp"
#include "market/core/solver.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

Solver with(const SolverOptions& o) {
    Solver s;
    ck_assert(s.set_options(o).has_value());
    return s;
}

JobDemand job(int64_t value, uint32_t user = 0, int64_t memory_mb = 100) {
    JobDemand j;
    j.value = Money::units(value);
    j.user = user;
    j.memory_mb = memory_mb;
    return j;
}

ProviderSpec provider(int32_t speed = 100, int64_t reserve = 1, int32_t cpus = 1) {
    ProviderSpec p;
    p.speed = speed;
    p.reserve = Money::units(reserve);
    p.cpus = cpus;
    p.memory_mb = 100'000;
    return p;
}

const Names names{[](JobKey k) { return "n1." + std::to_string(k.n); },
                  [](ProviderKey k) { return "p" + std::to_string(k.n); }};

START_TEST(the_price_of_one_job_is_by_the_rule_in_force_also_before_all_are_reckoned) {
    const std::map<std::string, Money> expected{
        {"critical", Money::units(9)}, {"first", Money::units(40)}, {"uniform", Money{20'500'000}}};
    for (const auto& [rule, price] : expected) {
        SolverOptions o;
        o.pricing = rule;
        Solver s = with(o);
        s.add_provider(ProviderKey{1}, provider());
        s.add_job(JobKey{1}, job(40, 1));
        s.add_job(JobKey{2}, job(9, 2));
        s.solve(Nanos{0});
        ck_assert_msg(s.price(JobKey{1}) == price, "%s", rule.c_str());
    }
}
END_TEST

START_TEST(what_is_out_of_bounds_is_refused_and_the_bounds_themselves_are_taken) {
    Solver s;
    const auto takes_job = [&](auto change) {
        JobDemand spec = job(1);
        change(spec);
        const bool added = s.add_job(JobKey{1}, spec);
        s.remove_job(JobKey{1});
        s.add_job(JobKey{1}, job(1));
        ck_assert(s.change_job(JobKey{1}, spec) == added);
        s.remove_job(JobKey{1});
        return added;
    };
    const auto takes_provider = [&](auto change) {
        ProviderSpec spec = provider();
        change(spec);
        const bool added = s.add_provider(ProviderKey{1}, spec);
        s.remove_provider(ProviderKey{1});
        s.add_provider(ProviderKey{1}, provider());
        ck_assert(s.change_provider(ProviderKey{1}, spec) == added);
        s.remove_provider(ProviderKey{1});
        return added;
    };
    const std::tuple<int64_t, int64_t, int64_t> jobs[] = {{0, money_max.micro, 0},
                                                          {1, market::cpus_max, 1},
                                                          {0, memory_mb_max, 2},
                                                          {-1, memory_mb_max * 1'000'000, 3},
                                                          {-1, INT64_MAX, 4}};
    for (const auto& [least, most, field] : jobs) {
        const auto with_value = [&, field = field](int64_t value) {
            return takes_job([&](JobDemand& spec) {
                if (field == 0) spec.value = Money{value};
                if (field == 1) spec.cpus = static_cast<int32_t>(value);
                if (field == 2) spec.memory_mb = value;
                if (field == 3) spec.move_bytes = value;
                if (field == 4) spec.dirty_bytes_per_s = value;
            });
        };
        ck_assert(with_value(least) && with_value(most) && !with_value(least - 1));
        ck_assert(most == INT64_MAX || !with_value(most + 1));
    }
    const std::tuple<int64_t, int64_t, int64_t> providers[] = {{0, money_max.micro, 0},
                                                               {1, market::cpus_max, 1},
                                                               {0, memory_mb_max, 2},
                                                               {1, speed_max, 3}};
    for (const auto& [least, most, field] : providers) {
        const auto with_value = [&, field = field](int64_t value) {
            return takes_provider([&](ProviderSpec& spec) {
                if (field == 0) spec.reserve = Money{value};
                if (field == 1) spec.cpus = static_cast<int32_t>(value);
                if (field == 2) spec.memory_mb = value;
                if (field == 3) spec.speed = static_cast<int32_t>(value);
            });
        };
        ck_assert(with_value(least) && with_value(most));
        ck_assert(!with_value(least - 1) && !with_value(most + 1));
    }
    ck_assert(!s.add_job(JobKey{0}, job(1)) && !s.add_provider(ProviderKey{0}, provider()));
}
END_TEST

START_TEST(a_displaced_job_learns_by_whom_and_what_would_win_it_back) {
    Solver s;
    s.add_provider(ProviderKey{1}, provider());
    s.add_job(JobKey{1}, job(100));
    ck_assert(s.solve(Nanos{0})[0].kind == ChangeKind::start);
    s.add_job(JobKey{12}, job(200));
    const Change frozen = s.solve(Nanos{1})[0];
    ck_assert_text(change_reason(s, frozen, names).text(),
                   "displaced by job n1.12 at 200; 200 would win it back");
    ck_assert(s.winning_bid(JobKey{1}) == Money::units(200));  // it came first
    ck_assert(s.next_price(ProviderKey{1}) == Money::units(201));
    s.change_value(JobKey{1}, Money::units(201));
    const auto back = s.solve(Nanos{2});
    ck_assert(back.size() == 2 && back[0].kind == ChangeKind::freeze &&
              back[1].kind == ChangeKind::thaw);
    ck_assert_text(change_reason(s, back[0], names).text(),
                   "displaced by job n1.1 at 201; 202 would win it back");
    ck_assert_text(change_reason(s, back[1], names).text(), "its bid 201 takes p1 (reserve 1)");
}
END_TEST

START_TEST(a_job_that_is_kept_for_a_place_from_outside_says_so) {
    Solver s;
    s.add_provider(ProviderKey{1}, provider());
    JobDemand kept = job(20);
    kept.pin = Pin::stay;
    kept.place = ProviderKey{1};
    s.add_job(JobKey{1}, kept);
    const auto changes = s.solve(Nanos{0});
    ck_assert_uint_eq(changes.size(), 1);
    const Reason why = change_reason(s, changes[0], names);
    ck_assert(why.code == ReasonCode::pinned_on);
    ck_assert_text(why.text(), "held on p1");
}
END_TEST

START_TEST(every_change_says_why) {
    Solver s;
    s.add_provider(ProviderKey{1}, provider(100, 5));
    s.add_job(JobKey{1}, job(20));
    s.solve(Nanos{0});
    const auto only = [&](int64_t t) {
        const auto changes = s.solve(Nanos::from_s(t));
        ck_assert_uint_eq(changes.size(), 1);
        return change_reason(s, changes[0], names).text();
    };
    s.add_provider(ProviderKey{2}, provider(300, 5));
    ck_assert_text(only(1), "p2 runs at speed 300, p1 at 100");
    s.add_provider(ProviderKey{3}, provider(300, 4));
    ck_assert_text(only(2), "p3 has a lower reserve than p2");
    s.remove_provider(ProviderKey{1});
    s.remove_provider(ProviderKey{2});
    ck_assert(s.solve(Nanos::from_s(3)).empty());
    s.change_provider(ProviderKey{3}, provider(300, 30));
    ck_assert_text(only(4), "its bid 20 is below the reserve of p3, 30; 30 would win it back");
    s.change_provider(ProviderKey{3}, provider(300, 4));
    ck_assert_text(only(5), "its bid 20 takes p3 (reserve 4)");
    JobDemand j = *s.job(JobKey{1});
    j.barred = {ProviderKey{3}};
    s.change_job(JobKey{1}, j);
    ck_assert_text(only(6), "it may not run on p3 for now");
    j = *s.job(JobKey{1});
    j.barred.clear();
    s.change_job(JobKey{1}, j);
    ck_assert_text(only(7), "its bid 20 takes p3 (reserve 4)");
    ProviderSpec small = provider(300, 4);
    small.memory_mb = 50;
    s.change_provider(ProviderKey{3}, small);
    ck_assert_text(only(8), "p3 offers less than its guests need");
    s.change_provider(ProviderKey{3}, provider(300, 4));
    only(9);
    s.remove_provider(ProviderKey{3});
    ck_assert_text(only(10), "p3 has left the market");
}
END_TEST

START_TEST(the_bid_that_would_win_a_place_back_does_and_one_unit_less_does_not) {
    int checked = 0;
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        Rng rng(seed);
        Solver s;
        for (uint64_t p = 1; p <= 4; ++p) {
            ProviderSpec m = provider(static_cast<int32_t>(50 * rng.between(1, 3)),
                                      rng.between(1, 15), static_cast<int32_t>(rng.between(1, 4)));
            m.memory_mb = rng.between(100, 900);
            s.add_provider(ProviderKey{p}, m);
        }
        for (uint64_t k = 1; k <= 14; ++k) {
            JobDemand j = job(rng.between(1, 30), 0, rng.between(0, 400));
            j.cpus = static_cast<int32_t>(rng.between(1, 3));
            j.arrival = Nanos::from_s(rng.between(0, 3));
            if (rng.chance(0.2)) j.barred = {ProviderKey{static_cast<uint64_t>(rng.between(1, 4))}};
            s.add_job(JobKey{k}, j);
        }
        s.solve(Nanos::from_s(4));
        for (int64_t t = 5; t < 25; ++t) {
            const JobKey k{static_cast<uint64_t>(rng.between(1, 14))};
            const auto runs = [&] { return s.job(k)->state == JobState::running; };
            const auto win = s.winning_bid(k);
            if (!win) continue;
            ck_assert(!runs() && *win >= s.job(k)->value);
            s.change_value(k, *win - Money::units(1));
            s.solve(Nanos::from_s(t));
            ck_assert(!runs());
            s.change_value(k, *win);
            s.solve(Nanos::from_s(t));
            ck_assert(runs());
            ++checked;
        }
    }
    ck_assert(checked > 200);
}
END_TEST

START_TEST(users_get_machine_time_in_proportion_to_their_values_within_the_bound) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        Rng rng(seed);
        SolverOptions o;
        o.algorithm = "proportional_share";
        o.quantum = Nanos::from_s(10);
        Solver s = with(o);
        const auto users = static_cast<uint32_t>(rng.between(2, 6));
        const int64_t machines = rng.between(1, 4);
        for (int64_t p = 1; p <= machines; ++p)
            s.add_provider(ProviderKey{static_cast<uint64_t>(p)}, provider());
        std::map<uint32_t, double> weight, got;
        double all = 0;
        uint64_t key = 1;
        for (uint32_t u = 0; u < users; ++u)
            // enough jobs to use every machine: nobody's part is limited
            for (int64_t n = machines; n > 0; --n) {
                const int64_t value = rng.between(1, 20);
                s.add_job(JobKey{key++}, job(value, u));
                weight[u] += static_cast<double>(value);
                all += static_cast<double>(value);
            }
        const int turns = 400;
        double worst = 0;
        // of what each user was ahead, over time
        std::map<uint32_t, std::pair<double, double>> range;
        for (int t = 0; t < turns; ++t) {
            s.solve(Nanos::from_s(10 * t));
            ck_assert(s.next_wake() == Nanos::from_s(10 * (t + 1)));
            int64_t busy = 0;
            for (int64_t p = 1; p <= machines; ++p)
                for (const JobKey g : s.guests(ProviderKey{static_cast<uint64_t>(p)}))
                    got[s.job(g)->user] += 10, ++busy;
            ck_assert_int_eq(busy, machines);
            for (uint32_t u = 0; u < users; ++u) {  // at every moment since the beginning
                const double precopy =
                    got[u] - weight[u] / all * 10.0 * static_cast<double>(machines) * (t + 1);
                worst = std::max(worst, std::fabs(precopy));
                range[u] = {std::min(range[u].first, precopy), std::max(range[u].second, precopy)};
            }
        }
        const double bound = (2 + std::log(users)) * 10;  // one CPU, speed 100 = 1
        // so over any window
        for (const auto& [u, r] : range) ck_assert(r.second - r.first <= 2 * bound);
        ck_assert_msg(worst <= bound, "seed %d: off by %f s, bound %f s", static_cast<int>(seed),
                      worst, bound);
    }
}
END_TEST

START_TEST(a_user_who_needs_less_leaves_the_rest_to_the_others) {
    SolverOptions o;
    o.algorithm = "proportional_share";
    Solver s = with(o);
    for (uint64_t p = 1; p <= 4; ++p) s.add_provider(ProviderKey{p}, provider());
    s.add_job(JobKey{1}, job(1000, 1));  // due nearly all, has one job
    for (uint64_t j = 2; j <= 9; ++j) s.add_job(JobKey{j}, job(10, j % 2 ? 2 : 3));
    std::map<uint32_t, int> got;
    for (int t = 0; t < 100; ++t) {
        s.solve(Nanos::from_s(10 * t));
        for (uint64_t p = 1; p <= 4; ++p)
            for (const JobKey g : s.guests(ProviderKey{p})) ++got[s.job(g)->user];
    }
    ck_assert_int_eq(got[1], 100);
    ck_assert(got[2] >= 147 && got[2] <= 153 && got[3] >= 147 && got[3] <= 153);
}
END_TEST

// Random arrivals, departures and bids on machines of several speeds; visit sees every change with
// its time.
template <class Visit>
void history(Solver& s, uint64_t seed, int events, Visit&& visit) {
    Rng rng(seed);
    for (uint64_t p = 1; p <= 5; ++p)
        s.add_provider(ProviderKey{p}, provider(static_cast<int32_t>(50 * rng.between(1, 4))));
    std::vector<uint64_t> keys;
    uint64_t next = 1;
    for (int t = 1; t <= events; ++t) {
        if (keys.size() < 4 || (keys.size() < 12 && rng.chance(0.3))) {
            keys.push_back(next);
            s.add_job(JobKey{next++}, job(rng.between(1, 50), 0, rng.between(1, 4000)));
        } else if (rng.chance(0.2)) {
            const size_t i = rng.below(keys.size());
            s.remove_job(JobKey{keys[i]});
            keys.erase(keys.begin() + static_cast<ptrdiff_t>(i));
        } else {
            s.change_value(JobKey{keys[rng.below(keys.size())]}, Money::units(rng.between(1, 50)));
        }
        std::map<uint64_t, JobDemand> before;
        for (const uint64_t k : keys) before[k] = *s.job(JobKey{k});
        const auto span = s.solve(Nanos::from_s(t));
        for (const Change& c : std::vector<Change>(span.begin(), span.end()))
            visit(t, c, before.at(c.job.n));
    }
}

START_TEST(nobody_is_placed_twice_or_frozen_within_the_minimum_stay) {
    SolverOptions o;
    o.min_stay = Nanos::from_s(9);
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        Solver s = with(o);
        std::map<uint64_t, int> placed;
        int changes = 0;
        history(s, seed, 500, [&](int t, const Change& c, const JobDemand&) {
            ++changes;
            if (placed.contains(c.job.n)) ck_assert_int_ge(t - placed[c.job.n], 9);
            if (c.kind != ChangeKind::freeze) placed[c.job.n] = t;
        });
        ck_assert(changes > 50);
    }
}
END_TEST

START_TEST(voluntary_moves_never_exceed_the_cap_in_any_window) {
    SolverOptions o;
    o.moves_max = 2;
    o.moves_window = Nanos::from_s(30);
    size_t made = 0;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        Solver s = with(o);
        std::vector<int> times;
        history(s, seed, 500, [&](int t, const Change& c, const JobDemand&) {
            if (c.kind != ChangeKind::move || c.cause != market::Cause::faster) return;
            times.push_back(t);
            if (times.size() > 2) ck_assert_int_ge(t - times[times.size() - 3], 30);
        });
        made += times.size();
    }
    ck_assert(made > 50);
}
END_TEST

START_TEST(a_voluntary_move_pays_for_its_pause_and_bytes_within_the_horizon) {
    SolverOptions o;
    o.horizon = Nanos::from_s(40);
    o.byte_cost_per_gb = Money{20'000};
    int made = 0, plain = 0;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        Solver s = with(o);
        history(s, seed, 500, [&](int, const Change& c, const JobDemand& before) {
            if (c.kind != ChangeKind::move || c.cause != market::Cause::faster) return;
            ++made;
            const double from = s.provider(c.from)->speed, to = s.provider(c.to)->speed;
            double top = 0;
            for (uint64_t p = 1; p <= 5; ++p)
                top = std::max<double>(top, s.provider(ProviderKey{p})->speed);
            const double bytes = static_cast<double>(before.memory_mb) * 1e6;
            const double value = static_cast<double>(before.value.micro) / 3600;
            ck_assert(value * (to - from) / top * 40 >=
                      value * from / top * bytes / 1e8 + bytes / 1e9 * 20'000 - 1e-6);
        });
        Solver free = with({});
        history(free, seed, 500, [&](int, const Change& c, const JobDemand&) {
            plain += c.cause == market::Cause::faster;
        });
    }
    ck_assert(made > 10 && made < plain);
}
END_TEST

START_TEST(algorithms_and_pricings_switch_at_run_time_and_keep_places) {
    Solver s;
    for (uint64_t p = 1; p <= 2; ++p) s.add_provider(ProviderKey{p}, provider());
    for (uint64_t j = 1; j <= 4; ++j)
        s.add_job(JobKey{j}, job(static_cast<int64_t>(10 * j), static_cast<uint32_t>(j)));
    s.solve(Nanos{0});
    SolverOptions o;
    o.algorithm = "proportional_share";
    o.pricing = "first";
    ck_assert(s.set_options(o).has_value());
    ck_assert(s.solve(Nanos{0}).empty());  // the two dearest are first by share too
    ck_assert(s.price(JobKey{4}) == Money::units(40));
    for (int t = 1; t <= 10; ++t) s.solve(Nanos::from_s(10 * t));
    ck_assert(s.set_options({}).has_value());
    s.solve(Nanos::from_s(200));
    ck_assert(s.job(JobKey{4})->state == JobState::running &&
              s.job(JobKey{3})->state == JobState::running);
    ck_assert(s.price(JobKey{4}) == Money::units(20));
    o.algorithm = "magic";
    ck_assert(!s.set_options(o).has_value());
    ck_assert_text(s.options().algorithm, "greedy_migration");
}
END_TEST

START_TEST(an_allocation_from_outside_is_checked_and_then_carried_out) {
    Solver s;
    s.add_provider(ProviderKey{1}, provider());
    s.add_provider(ProviderKey{2}, provider(200, 50));
    s.add_job(JobKey{1}, job(40));
    s.add_job(JobKey{2}, job(60));
    using A = Solver::Assignment;
    const A good[] = {{JobKey{1}, ProviderKey{1}}, {JobKey{2}, ProviderKey{0}}};
    const auto changes = s.adopt(good, Nanos{1});
    ck_assert(changes && changes->size() == 1 && (*changes)[0].to == ProviderKey{1});
    for (const std::vector<A>& bad : {std::vector<A>{{JobKey{9}, ProviderKey{1}}},
                                      {{JobKey{1}, ProviderKey{9}}},
                                      {{JobKey{1}, ProviderKey{1}}, {JobKey{1}, ProviderKey{1}}},
                                      {{JobKey{1}, ProviderKey{1}}, {JobKey{2}, ProviderKey{1}}},
                                      {{JobKey{1}, ProviderKey{2}}}})
        ck_assert(!s.adopt(bad, Nanos{2}));
    ck_assert(s.job(JobKey{1})->state == JobState::running);
    // its own view: job 2 on the fast one
    ck_assert_int_eq(static_cast<int>(s.solve(Nanos{3}).size()), 1);
    ck_assert(s.job(JobKey{2})->place == ProviderKey{2});
}
END_TEST

START_TEST(a_pinned_job_stays_whatever_is_bid_and_a_frozen_one_stays_frozen) {
    Solver s;
    s.add_provider(ProviderKey{1}, provider());
    s.add_job(JobKey{1}, job(10));
    s.solve(Nanos{0});
    JobDemand j = *s.job(JobKey{1});
    j.pin = Pin::stay;
    s.change_job(JobKey{1}, j);
    s.add_job(JobKey{2}, job(100));
    ck_assert(s.solve(Nanos{1}).empty());
    ck_assert(!s.winning_bid(JobKey{2}) && !s.next_price(ProviderKey{1}));
    j.pin = Pin::frozen;
    s.change_job(JobKey{1}, j);
    ck_assert_int_eq(static_cast<int>(s.solve(Nanos{2}).size()), 2);
    s.remove_job(JobKey{2});
    ck_assert(s.solve(Nanos{3}).empty());
    j = *s.job(JobKey{1});
    j.pin = Pin::free;
    j.barred = {ProviderKey{1}};
    s.change_job(JobKey{1}, j);
    ck_assert(s.solve(Nanos{4}).empty());
    j.barred.clear();
    s.change_job(JobKey{1}, j);
    ck_assert(s.solve(Nanos{5})[0].kind == ChangeKind::thaw);
}
END_TEST

}  // namespace

UNIT_SUITE(solver, a_displaced_job_learns_by_whom_and_what_would_win_it_back,
           what_is_out_of_bounds_is_refused_and_the_bounds_themselves_are_taken,
           the_price_of_one_job_is_by_the_rule_in_force_also_before_all_are_reckoned,
           every_change_says_why, a_job_that_is_kept_for_a_place_from_outside_says_so,
           the_bid_that_would_win_a_place_back_does_and_one_unit_less_does_not,
           users_get_machine_time_in_proportion_to_their_values_within_the_bound,
           a_user_who_needs_less_leaves_the_rest_to_the_others,
           nobody_is_placed_twice_or_frozen_within_the_minimum_stay,
           voluntary_moves_never_exceed_the_cap_in_any_window,
           a_voluntary_move_pays_for_its_pause_and_bytes_within_the_horizon,
           algorithms_and_pricings_switch_at_run_time_and_keep_places,
           an_allocation_from_outside_is_checked_and_then_carried_out,
           a_pinned_job_stays_whatever_is_bid_and_a_frozen_one_stays_frozen);
