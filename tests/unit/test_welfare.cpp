// SPDX-License-Identifier: GPL-2.0-or-later
// The welfare algorithm on random markets over time. tests/tools/test_welfare.py judges single
// decisions by their promises; here: that repairing after each event gives what a decision about
// everything gives, the migration-aware rules, and what is told of bids.
#include <algorithm>
#include <string>

#include "market/core/assignment.hpp"
#include "market/core/change_reason.hpp"
#include "market/core/solver.hpp"
#include "tests/unit/allocator_world.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

SolverOptions welfare_options() {
    SolverOptions o;
    o.algorithm = "welfare";
    return o;
}

// Two solvers that are told the same: one repairs, the other decides about everything each time.
struct Both {
    Solver repairs, anew;
    explicit Both(const SolverOptions& o) {
        ck_assert(repairs.set_options(o).has_value());
        ck_assert(anew.set_options(o).has_value());
    }
    bool add_job(JobKey k, const JobDemand& s) {
        return repairs.add_job(k, s) && anew.add_job(k, s);
    }
    bool change_job(JobKey k, const JobDemand& s) {
        return repairs.change_job(k, s) && anew.change_job(k, s);
    }
    bool change_value(JobKey k, Money v) {
        return repairs.change_value(k, v) && anew.change_value(k, v);
    }
    bool remove_job(JobKey k) { return repairs.remove_job(k) && anew.remove_job(k); }
    bool add_provider(ProviderKey k, const ProviderSpec& s) {
        return repairs.add_provider(k, s) && anew.add_provider(k, s);
    }
    bool change_provider(ProviderKey k, const ProviderSpec& s) {
        return repairs.change_provider(k, s) && anew.change_provider(k, s);
    }
    bool remove_provider(ProviderKey k) {
        return repairs.remove_provider(k) && anew.remove_provider(k);
    }
    std::optional<JobDemand> job(JobKey k) const { return repairs.job(k); }
    void solve(Nanos now) {
        repairs.solve(now);
        // everything is looked at again
        ck_assert(anew.set_options(SolverOptions(anew.options())).has_value());
        anew.solve(now);
    }
};

std::string shown(const unit::AllocatorWorld& w, const Solver& s) {
    std::string text;
    for (const auto& [k, p] : w.providers)
        text += "  p" + std::to_string(k) + " reserve " + format_money(p.reserve) + " speed " +
                std::to_string(p.speed) + " cpus " + std::to_string(p.cpus) + " mb " +
                std::to_string(p.memory_mb) + (p.accepting ? "" : " off") + "\n";
    for (const auto& [k, j] : w.jobs) {
        const auto now = s.job(JobKey{k});
        text += "  j" + std::to_string(k) + " value " + format_money(now->value) + " cpus " +
                std::to_string(now->cpus) + " mb " + std::to_string(now->memory_mb) + " at " +
                std::to_string(unit::place_of(s, k)) + "\n";
    }
    return text;
}

constexpr unit::Shape more_shapes[] = {
    {14, 8, 1, 3, 0, 0, 4, 6, false, false},
    {30, 12, 1, 1, 0, 0, 6, 6, false, false},
    {14, 5, 1, 3, 0, 0, 3, 5, true, true},
    {12, 5, 2, 4, 0, 0, 3, 5, false, false},
};

}  // namespace

START_TEST(repairing_after_each_event_gives_what_deciding_about_everything_gives) {
    for (const auto& shape : more_shapes)
        for (uint64_t seed = 1; seed <= 120; ++seed) {
            unit::AllocatorWorld w(seed, shape);
            Both both(welfare_options());
            for (int step = 0; step < 120; ++step) {
                random_event(w, both);
                if (w.rng.chance(0.3)) continue;
                both.solve(Nanos::from_s(w.clock_s));
                const auto paid = both.repairs.payments(), due = both.anew.payments();
                bool same = paid.size() == due.size();
                for (size_t i = 0; same && i < paid.size(); ++i)
                    same = paid[i].job == due[i].job && paid[i].provider == due[i].provider &&
                           paid[i].price == due[i].price;
                ck_assert_msg(same, "shape %d seed %d step %d\nrepaired\n%sanew\n%s",
                              static_cast<int>(&shape - more_shapes), static_cast<int>(seed), step,
                              shown(w, both.repairs).c_str(), shown(w, both.anew).c_str());
            }
        }
}
END_TEST

START_TEST(with_one_cpu_each_history_changes_neither_who_has_which_class_nor_any_price) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        unit::AllocatorWorld w(seed, more_shapes[seed % 2]);
        Solver s;
        ck_assert(s.set_options(welfare_options()).has_value());
        for (int step = 0; step < 80; ++step) {
            random_event(w, s);
            s.solve(Nanos::from_s(w.clock_s));
            Solver fresh;
            ck_assert(fresh.set_options(welfare_options()).has_value());
            for (const auto& [k, p] : w.providers) fresh.add_provider(ProviderKey{k}, p);
            for (const auto& [k, j] : w.jobs) {
                JobDemand spec = *s.job(JobKey{k});
                spec.state = JobState::waiting, spec.place = {};
                fresh.add_job(JobKey{k}, spec);
            }
            fresh.solve(Nanos::from_s(w.clock_s));
            ck_assert_int_eq(s.surplus().welfare.micro, fresh.surplus().welfare.micro);
            for (const auto& [k, j] : w.jobs) {
                const JobKey key{k};
                ck_assert(s.price(key) == fresh.price(key) && s.worth(key) == fresh.worth(key));
            }
        }
    }
}
END_TEST

START_TEST(a_job_to_which_no_place_is_worth_its_price_any_more_says_so_and_which_bid_would_win) {
    const Names names{[](JobKey k) { return std::to_string(k.n); },
                      [](ProviderKey k) { return std::to_string(k.n); }};
    size_t said = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        unit::AllocatorWorld w(seed, more_shapes[seed % 4]);
        Solver s;
        ck_assert(s.set_options(welfare_options()).has_value());
        for (int step = 0; step < 60; ++step) {
            random_event(w, s);
            for (const Change& c : s.solve(Nanos::from_s(w.clock_s))) {
                const Reason why = change_reason(s, c, names);
                if (why.code != ReasonCode::no_place_worth_it) continue;
                ++said;
                ck_assert(c.kind == ChangeKind::freeze && s.place(c.job).n == 0);
                ck_assert(why.amount(Figure::bid) == s.winning_bid(c.job));
            }
        }
    }
    ck_assert_uint_gt(said, 20);
}
END_TEST

START_TEST(what_is_said_to_win_a_place_wins_one_and_a_unit_less_does_not) {
    size_t said = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        unit::AllocatorWorld w(seed, more_shapes[seed % 2]);
        Solver s;
        ck_assert(s.set_options(welfare_options()).has_value());
        for (int step = 0; step < 60; ++step) random_event(w, s);
        s.solve(Nanos::from_s(w.clock_s));
        JobDemand one;
        one.arrival = Nanos::from_s(w.clock_s + 1);
        const auto runs = [&](Money bid) {
            Solver trial = s.copy();
            one.value = bid;
            trial.add_job(JobKey{9999}, one);
            trial.solve(Nanos::from_s(w.clock_s + 1));
            return trial.place(JobKey{9999});
        };
        const auto bid = s.winning_bid(one);
        if (!bid) continue;
        ++said;
        ck_assert_msg(runs(*bid).n != 0, "seed %d: %s wins nothing\n%s", static_cast<int>(seed),
                      format_money(*bid).c_str(), shown(w, s).c_str());
        const Money less = *bid - std::min(*bid, Money::units(1));
        ck_assert_msg(bid->micro == 0 || runs(less).n == 0, "seed %d: %s would do\n%s",
                      static_cast<int>(seed), format_money(less).c_str(), shown(w, s).c_str());
        for (const auto& [k, p] : w.providers)
            if (const auto price = s.next_price(ProviderKey{k}); price && p.accepting) {
                ck_assert(*price >= p.reserve && *price >= *bid);
                // at the price itself others may like it as well
                const ProviderKey at = runs(*price + Money::units(1));
                ck_assert_msg(at.n != 0 && s.provider(at)->speed >= p.speed,
                              "seed %d: %s gets no place as fast as %d\n%s", static_cast<int>(seed),
                              format_money(*price).c_str(), static_cast<int>(k),
                              shown(w, s).c_str());
            }
    }
    ck_assert_uint_gt(said, 200);
}
END_TEST

// Jobs differ in size here, so the answer is computed from the least values as they are. A bid at
// the margin may move these.
START_TEST(with_mixed_sizes_what_is_said_to_win_a_place_nearly_always_does) {
    size_t said = 0, true_ = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        unit::AllocatorWorld w(seed, seed % 2 ? more_shapes[3] : unit::shapes[5]);
        Solver s;
        ck_assert(s.set_options(welfare_options()).has_value());
        for (int step = 0; step < 60; ++step) random_event(w, s);
        s.solve(Nanos::from_s(w.clock_s));
        JobDemand one = w.random_job();
        const auto bid = s.winning_bid(one);
        if (!bid) continue;
        ++said;
        one.value = *bid;
        one.arrival = Nanos::from_s(w.clock_s + 1);
        s.add_job(JobKey{9999}, one);
        s.solve(Nanos::from_s(w.clock_s + 1));
        true_ += s.place(JobKey{9999}).n != 0;
    }
    ck_assert_msg(said > 200 && true_ * 100 >= said * 95, "%zu said, %zu true", said, true_);
}
END_TEST

START_TEST(a_job_pays_at_least_the_reserve_and_at_most_what_its_place_is_worth) {
    for (const auto& shape : {unit::shapes[3], unit::shapes[4], unit::shapes[5], more_shapes[3]})
        for (uint64_t seed = 1; seed <= 60; ++seed) {
            unit::AllocatorWorld w(seed, shape);
            SolverOptions o = welfare_options();
            if (seed % 3 == 1) o.horizon = Nanos::from_s(100);
            if (seed % 3 == 2) o.min_stay = Nanos::from_s(5), o.moves_max = 2;
            Solver s;
            ck_assert(s.set_options(o).has_value());
            for (int step = 0; step < 80; ++step) {
                random_event(w, s);
                s.solve(Nanos::from_s(w.clock_s));
                for (const Payment& p : s.payments()) {
                    const auto job = s.job(p.job);
                    if (job->pin == Pin::stay) continue;
                    ck_assert(p.price >= s.provider(p.provider)->reserve && p.price <= job->value);
                }
            }
        }
}
END_TEST

namespace {
ProviderSpec machine(int64_t reserve, int32_t speed, int32_t cpus = 1) {
    ProviderSpec p;
    p.reserve = Money::units(reserve);
    p.speed = speed;
    p.cpus = cpus;
    p.memory_mb = 10'000;
    return p;
}
JobDemand bidding(int64_t units, int64_t arrival_s, int64_t memory_mb = 0) {
    JobDemand j;
    j.value = Money::units(units);
    j.arrival = Nanos::from_s(arrival_s);
    j.memory_mb = memory_mb;
    j.user = static_cast<uint32_t>(arrival_s) + 1;
    return j;
}
}  // namespace

START_TEST(a_job_leaves_a_fast_place_for_a_cheaper_one_when_that_becomes_free_and_says_why) {
    Solver s;
    ck_assert(s.set_options(welfare_options()).has_value());
    s.add_provider(ProviderKey{1}, machine(20, 100));
    s.add_job(JobKey{1}, bidding(40, 0, 100));
    s.solve(Nanos{0});
    ck_assert_uint_eq(s.place(JobKey{1}).n, 1);
    s.add_provider(ProviderKey{2}, machine(1, 80));
    const auto changes = s.solve(Nanos::from_s(1));
    ck_assert_uint_eq(changes.size(), 1);
    ck_assert(changes[0].kind == ChangeKind::move && changes[0].to.n == 2 &&
              changes[0].cause == market::Cause::cheaper);
    const Names names{[](JobKey k) { return "j" + std::to_string(k.n); },
                      [](ProviderKey k) { return "n" + std::to_string(k.n); }};
    ck_assert_text(change_reason(s, changes[0], names).text(),
                   "n2 is worth more to it than n1 at the prices now");
}
END_TEST

START_TEST(with_a_horizon_a_job_leaves_for_a_cheaper_place_only_if_that_pays_for_the_move) {
    for (const auto& [horizon_s, to] : {std::pair<int64_t, uint64_t>{10, 1}, {100, 2}}) {
        Solver s;
        SolverOptions o = welfare_options();
        o.horizon = Nanos::from_s(horizon_s);
        ck_assert(s.set_options(o).has_value());
        s.add_provider(ProviderKey{1}, machine(20, 100));
        s.add_job(JobKey{1}, bidding(40, 0, 1000));  // a pause of 10 s, that costs 40 x 10 s
        s.solve(Nanos{0});
        s.add_provider(ProviderKey{2}, machine(1, 80));  // gains (32 - 1) - (40 - 20) = 11
        s.solve(Nanos::from_s(1));
        ck_assert_uint_eq(s.place(JobKey{1}).n, to);
    }
}
END_TEST

START_TEST(the_cap_on_moves_holds_for_moves_to_cheaper_places_and_they_are_made_up_for) {
    Solver s;
    SolverOptions o = welfare_options();
    o.moves_max = 1;
    o.moves_window = Nanos::from_s(60);
    ck_assert(s.set_options(o).has_value());
    s.add_provider(ProviderKey{1}, machine(20, 100, 3));
    for (uint64_t j = 1; j <= 3; ++j) s.add_job(JobKey{j}, bidding(40, static_cast<int64_t>(j)));
    s.solve(Nanos{0});
    s.add_provider(ProviderKey{2}, machine(1, 80, 3));
    for (int64_t minute = 0; minute < 3; ++minute) {
        ck_assert_uint_eq(s.solve(Nanos::from_s(1 + 61 * minute)).size(), 1);
        ck_assert_uint_eq(s.solve(Nanos::from_s(2 + 61 * minute)).size(), 0);
    }
    ck_assert_uint_eq(s.guests(ProviderKey{2}).size(), 3);
}
END_TEST

START_TEST(who_was_just_placed_stays_though_another_place_is_cheaper) {
    Solver s;
    SolverOptions o = welfare_options();
    o.min_stay = Nanos::from_s(10);
    ck_assert(s.set_options(o).has_value());
    s.add_provider(ProviderKey{1}, machine(20, 100));
    s.add_job(JobKey{1}, bidding(40, 0));
    s.solve(Nanos{0});
    s.add_provider(ProviderKey{2}, machine(1, 80));
    s.solve(Nanos::from_s(9));
    ck_assert_uint_eq(s.place(JobKey{1}).n, 1);
    s.solve(Nanos::from_s(10));
    ck_assert_uint_eq(s.place(JobKey{1}).n, 2);
}
END_TEST

START_TEST(six_jobs_of_one_user_alone_pay_the_reserve) {
    Solver s;
    ck_assert(s.set_options(welfare_options()).has_value());
    for (uint64_t p = 1; p <= 6; ++p)
        s.add_provider(ProviderKey{p}, machine(1, 60 + 8 * static_cast<int32_t>(p)));
    for (uint64_t j = 1; j <= 6; ++j) {
        JobDemand spec = bidding(40, static_cast<int64_t>(j));
        spec.user = 1000;
        s.add_job(JobKey{j}, spec);
    }
    s.solve(Nanos{0});
    ck_assert_uint_eq(s.payments().size(), 6);
    for (const Payment& p : s.payments()) ck_assert_int_eq(p.price.micro, 1'000'000);
}
END_TEST

// In these markets no class has a least value above its reserve: there is one class, or there are
// no reserves. A user's bids for its lower jobs then change neither place nor price of its higher
// ones, so it gains nothing by bidding less for those.
START_TEST(with_bars_own_jobs_that_rank_lower_do_not_price_a_job) {
    Rng rng(14);
    size_t compared = 0, contested = 0;
    for (int round = 0; round < 2'000; ++round) {
        const bool speeds = round % 2 == 0;
        const int64_t users = rng.between(1, 3), reserve = speeds ? 0 : rng.between(0, 9);
        Solver s;
        ck_assert(s.set_options(welfare_options()).has_value());
        const auto machines = static_cast<uint64_t>(rng.between(1, 6)),
                   jobs = static_cast<uint64_t>(rng.between(2, 12));
        for (uint64_t p = 1; p <= machines; ++p) {
            ProviderSpec m =
                machine(reserve, speeds ? static_cast<int32_t>(rng.between(1, 4)) * 25 : 100);
            m.cpus = static_cast<int32_t>(rng.between(1, 2));
            s.add_provider(ProviderKey{p}, m);
        }
        std::vector<JobDemand> specs;
        for (uint64_t j = 1; j <= jobs; ++j) {
            JobDemand spec = bidding(rng.between(0, 40), static_cast<int64_t>(j));
            spec.user = static_cast<uint32_t>(rng.below(static_cast<uint64_t>(users)));
            while (rng.chance(0.25)) spec.barred.push_back(ProviderKey{1 + rng.below(machines)});
            if (j == 1) spec.barred.push_back(ProviderKey{machines});
            specs.push_back(spec);
            s.add_job(JobKey{j}, spec);
        }
        s.solve(Nanos{0});
        for (const Payment& paid : s.payments()) {
            const JobDemand& own = specs[paid.job.n - 1];
            Solver less = s.copy();
            for (uint64_t j = 1; j <= jobs; ++j) {
                const JobDemand& spec = specs[j - 1];
                const bool later =
                    spec.value < own.value || (spec.value == own.value && j > paid.job.n);
                if (spec.user == own.user && later) less.change_value(JobKey{j}, Money{});
            }
            less.solve(Nanos{0});
            const auto price = less.price(paid.job);
            ck_assert_msg(
                price && *price == paid.price && less.place(paid.job) == s.place(paid.job),
                "round %d: job %lu pays %s, and %s without lower ones of its user", round,
                static_cast<unsigned long>(paid.job.n), format_money(paid.price).c_str(),
                price ? format_money(*price).c_str() : "nothing");
            if (users == 1) ck_assert_int_eq(paid.price.micro, Money::units(reserve).micro);
            ++compared;
            contested += paid.price > Money::units(reserve);
        }
    }
    ck_assert_msg(compared > 5'000 && contested > 1'000, "%zu, %zu above the reserve", compared,
                  contested);
}
END_TEST

START_TEST(the_best_cuts_are_the_same_from_nothing_and_step_by_step) {
    Rng rng(5);
    for (int round = 0; round < 3'000; ++round) {
        std::vector<PlaceClass> classes;
        for (auto c = rng.between(1, 6); c > 0; --c) {
            const auto speed = static_cast<int32_t>(rng.between(1, 5)) * 10;
            const Money reserve{rng.between(0, 12)};
            classes.push_back({class_of(speed, reserve), speed, rng.between(0, 4),
                               static_cast<Wide>(reserve.micro) * 50});
        }
        std::sort(classes.begin(), classes.end(),
                  [](const PlaceClass& a, const PlaceClass& b) { return a.cls < b.cls; });
        std::vector<int64_t> values;
        for (auto n = rng.between(0, 12); n > 0; --n) values.push_back(rng.between(0, 20));
        std::sort(values.rbegin(), values.rend());
        const Cuts at_once = best_cuts(classes, values);
        Cuts cuts(classes.size(), 0);
        Wide gain = 0;
        const auto value = [&](int64_t t) { return values[static_cast<size_t>(t)]; };
        ck_assert(
            improve_cuts(classes, cuts, static_cast<int64_t>(values.size()), 1'000, value, gain));
        ck_assert(cuts == at_once);
    }
}
END_TEST

UNIT_SUITE_LONG(welfare, 120, repairing_after_each_event_gives_what_deciding_about_everything_gives,
                a_job_to_which_no_place_is_worth_its_price_any_more_says_so_and_which_bid_would_win,
                with_one_cpu_each_history_changes_neither_who_has_which_class_nor_any_price,
                what_is_said_to_win_a_place_wins_one_and_a_unit_less_does_not,
                with_mixed_sizes_what_is_said_to_win_a_place_nearly_always_does,
                a_job_pays_at_least_the_reserve_and_at_most_what_its_place_is_worth,
                a_job_leaves_a_fast_place_for_a_cheaper_one_when_that_becomes_free_and_says_why,
                with_a_horizon_a_job_leaves_for_a_cheaper_place_only_if_that_pays_for_the_move,
                the_cap_on_moves_holds_for_moves_to_cheaper_places_and_they_are_made_up_for,
                who_was_just_placed_stays_though_another_place_is_cheaper,
                six_jobs_of_one_user_alone_pay_the_reserve,
                with_bars_own_jobs_that_rank_lower_do_not_price_a_job,
                the_best_cuts_are_the_same_from_nothing_and_step_by_step);
