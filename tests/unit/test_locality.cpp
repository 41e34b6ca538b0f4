// SPDX-License-Identifier: GPL-2.0-or-later
// Files have a place: with a horizon a job that reads them over the network pays for that wherever
// it is but at home (market/core/move_costs.hpp). Without traffic, or without a horizon,
// nothing is decided otherwise than without files.
#include <algorithm>
#include <cmath>

#include "agentd/core/files_meter.hpp"
#include "tests/unit/allocator_world.hpp"
#include "tests/unit/market_world.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

Shape with_files(Shape shape) {
    shape.files = true;
    return shape;
}

bool same_places(const Change& x, const Change& y) {
    return x.job == y.job && x.kind == y.kind && x.from == y.from && x.to == y.to &&
           x.cause == y.cause && x.other == y.other && x.other_value == y.other_value;
}

// Two solvers that see the same market, but the second one knows of no files.
struct Two {
    Solver a, b;
    std::function<JobDemand(JobDemand)> second = [](JobDemand s) {
        s.files = {};
        return s;
    };
    void add_job(JobKey k, const JobDemand& s) { a.add_job(k, s), b.add_job(k, second(s)); }
    void change_job(JobKey k, const JobDemand& s) {
        a.change_job(k, s), b.change_job(k, second(s));
    }
    void change_value(JobKey k, Money v) { a.change_value(k, v), b.change_value(k, v); }
    void remove_job(JobKey k) { a.remove_job(k), b.remove_job(k); }
    void add_provider(ProviderKey k, const ProviderSpec& s) {
        a.add_provider(k, s), b.add_provider(k, s);
    }
    void change_provider(ProviderKey k, const ProviderSpec& s) {
        a.change_provider(k, s), b.change_provider(k, s);
    }
    void remove_provider(ProviderKey k) { a.remove_provider(k), b.remove_provider(k); }
    std::optional<JobDemand> job(JobKey k) const { return a.job(k); }
};

void expect_same(const SolverOptions& options, uint64_t seed, const Shape& shape, bool traffic) {
    AllocatorWorld w(seed, with_files(shape));
    Two t;
    ck_assert(t.a.set_options(options).has_value() && t.b.set_options(options).has_value());
    for (int step = 0; step < 120; ++step) {
        random_event(w, t);
        if (!traffic)
            for (const auto& [k, spec] : w.jobs) {
                JobDemand s = *t.job(JobKey{k});
                s.files.bytes_per_s = s.files.requests_per_s = 0;
                t.a.change_job(JobKey{k}, s);
                t.b.change_job(JobKey{k}, t.second(s));
            }
        const Nanos now = Nanos::from_s(w.clock_s);
        const auto x = t.a.solve(now), y = t.b.solve(now);
        ck_assert_msg(std::equal(x.begin(), x.end(), y.begin(), y.end(), same_places),
                      "%s seed %d step %d", options.algorithm.c_str(), static_cast<int>(seed),
                      step);
        const auto p = t.a.payments(), q = t.b.payments();
        ck_assert(std::equal(p.begin(), p.end(), q.begin(), q.end(), [](auto& m, auto& n) {
            return m.job == n.job && m.provider == n.provider && m.price == n.price;
        }));
    }
}

START_TEST(without_traffic_or_without_a_horizon_every_decision_and_price_is_the_same) {
    for (const char* algorithm : {"greedy_migration", "welfare", "proportional_share", "balance"})
        for (const Shape& shape : shapes)
            for (uint64_t seed = 1; seed <= 4; ++seed) {
                SolverOptions o;
                o.algorithm = algorithm;
                if (seed % 2 == 0) o.min_stay = Nanos::from_s(4);
                expect_same(o, seed * 71, shape, true);  // no horizon: what files take is nothing
                o.horizon = Nanos::from_s(20);
                o.byte_cost_per_gb = Money::units(2);
                expect_same(o, seed * 73, shape, false);
            }
}
END_TEST

// The commit before files had a place has decided 56 random markets, with and without a horizon.
// Markets without files must still be decided like that.
START_TEST(markets_without_files_decide_as_they_did_before) {
    std::string decided;
    for (const Shape& shape : shapes)
        for (uint64_t seed = 1; seed <= 8 && !shape.waits; ++seed) {
            AllocatorWorld w(seed * 997, shape);
            Solver s;
            SolverOptions o;
            if (seed % 2 == 0) o.horizon = Nanos::from_s(10), o.link_bytes_per_s = 5'000'000;
            if (seed % 3 == 0) o.byte_cost_per_gb = Money{9'000};
            if (seed % 4 == 0) o.algorithm = "welfare";
            ck_assert(s.set_options(o).has_value());
            for (int step = 0; step < 100; ++step) {
                random_event(w, s);
                for (const Change& c : s.solve(Nanos::from_s(w.clock_s)))
                    decided += std::to_string(c.job.n) + ">" + std::to_string(c.to.n) + " ";
                for (const Payment& p : s.payments())
                    decided += std::to_string(p.price.micro) + " ";
            }
        }
    uint64_t hash = 14695981039346656037ULL;  // FNV-1a
    for (const char c : decided) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
    ck_assert_msg(hash == 16820618395809893341ULL, "%zu characters, hash %llu", decided.size(),
                  static_cast<unsigned long long>(hash));
}
END_TEST

START_TEST(with_files_repairing_after_an_event_is_deciding_about_everything) {
    const Rules rules[] = {
        {Nanos::from_s(60), 100'000'000, {}, {}, 0, Nanos::from_s(60)},
        {Nanos::from_s(20), 10'000'000, Money::units(1), {}, 0, Nanos::from_s(60)},
        {Nanos::from_s(5), 100'000'000, Money::units(30), Nanos::from_s(4), 2, Nanos::from_s(20)},
    };
    int homewards = 0;
    for (const Rules& r : rules)
        for (const Shape& base : shapes)
            for (uint64_t seed = 1; seed <= 8; ++seed) {
                Shape shape = with_files(base);
                shape.jobs_max *= 3;
                shape.providers_max *= 2;
                AllocatorWorld w(seed * 6007, shape);
                Pair t;
                t.both([&](Allocator& x) { x.set_rules(r); });
                for (int step = 0; step < 200; ++step) {
                    for (uint64_t i = 1 + w.rng.below(3); i > 0; --i) random_event(w, t);
                    decide_alike(t, w,
                                 {&r - rules, &base - shapes, static_cast<ptrdiff_t>(seed), step});
                    for (const Change& c : t.a.changes())
                        homewards += c.cause == market::Cause::near_files;
                    // and then nothing more, however often it is asked
                    if (step % 10 != 0 || r.moves_max > 0) continue;
                    t.a.solve_all(Nanos::from_s(w.clock_s));
                    ck_assert(t.a.changes().empty());
                }
            }
    ck_assert_int_ge(homewards, 100);
}
END_TEST

// One job and two machines. Each place is worth to the job what the words of move_costs.hpp say.
struct Alone {
    SolverOptions o;
    ProviderSpec home, other;
    JobDemand job;
    explicit Alone(Rng& rng) {
        o.horizon = Nanos::from_s(rng.between(1, 4'000));
        o.byte_cost_per_gb = Money{rng.between(0, 3) * 400'000};
        for (ProviderSpec* p : {&home, &other}) {
            p->speed = static_cast<int32_t>(rng.between(50, 250));
            p->memory_mb = 4'000;
            p->cpus = 4;
        }
        job.value = Money::units(rng.between(1, 60));
        job.cpus = static_cast<int32_t>(rng.between(1, 4));
        job.memory_mb = rng.between(0, 3'000);
        job.state = JobState::running;
        job.files = {ProviderKey{1}, rng.between(0, 30) * 1'000'000, rng.between(0, 200),
                     Nanos::from_ms(rng.between(0, 3))};
    }
    double waits() const {
        const FileTraffic& f = job.files;
        const double s = static_cast<double>(f.requests_per_s) * f.round_trip.seconds() +
                         static_cast<double>(f.bytes_per_s) / 1e8;
        return std::min(0.95, s / job.cpus);
    }
    // Money that a second at a place is worth.
    double worth(bool at_home) const {
        const double top = std::max(home.speed, other.speed);
        const double value = static_cast<double>(job.value.micro) / 3600 * job.cpus / top;
        if (at_home) return value * home.speed;
        return value * other.speed * (1 - waits()) -
               static_cast<double>(job.files.bytes_per_s) / 1e9 *
                   static_cast<double>(o.byte_cost_per_gb.micro);
    }
    double move(bool from_home) const {
        const double bytes = static_cast<double>(job.memory_mb) * 1e6;
        const double top = std::max(home.speed, other.speed);
        const double value = static_cast<double>(job.value.micro) / 3600 * job.cpus / top;
        return value * (from_home ? home.speed : other.speed) * bytes / 1e8 +
               bytes / 1e9 * static_cast<double>(o.byte_cost_per_gb.micro);
    }
    // The place of the job after a thousand decisions, and its moves until then.
    std::pair<bool, int> from(bool at_home) const {
        Solver s;
        ck_assert(s.set_options(o).has_value());
        JobDemand spec = job;
        spec.place = ProviderKey{at_home ? 1u : 2u};
        ck_assert(s.add_provider(ProviderKey{1}, home) && s.add_provider(ProviderKey{2}, other));
        ck_assert(s.add_job(JobKey{1}, spec));
        int moves = 0;
        for (int t = 1; t <= 1'000; ++t) {
            ck_assert(s.change_job(JobKey{1}, *s.job(JobKey{1})));  // as its home reports it
            moves += static_cast<int>(s.solve(Nanos::from_s(t)).size());
        }
        return {s.place(JobKey{1}).n == 1, moves};
    }
};

START_TEST(a_job_goes_to_its_files_when_that_pays_for_the_move_and_never_back_and_forth) {
    Rng rng(16);
    int gone_home = 0, gone_away = 0, stayed = 0;
    for (int i = 0; i < 600; ++i) {
        const Alone one(rng);
        const double horizon = static_cast<double>(one.o.horizon.ns) / 1e9;
        for (const bool at_home : {true, false}) {
            const double gain =
                (one.worth(!at_home) - one.worth(at_home)) * horizon - one.move(at_home);
            const auto [home_now, moves] = one.from(at_home);
            ck_assert_int_le(moves, 1);
            const double slack = 0.002 * one.worth(true) * horizon + 1;  // of whole permille and ms
            if (std::fabs(gain) > slack)
                ck_assert_msg((home_now != at_home) == (gain > 0),
                              "market %d from %s: a move would gain %f", i,
                              at_home ? "home" : "elsewhere", gain);
            if (home_now == at_home)
                ++stayed;
            else
                ++(home_now ? gone_home : gone_away);
        }
    }
    ck_assert_msg(gone_home > 100 && gone_away > 50 && stayed > 100, "%d %d %d", gone_home,
                  gone_away, stayed);
}
END_TEST

START_TEST(who_waits_begins_at_its_files_where_no_other_place_is_worth_more) {
    SolverOptions o;
    o.horizon = Nanos::from_s(600);
    for (const int64_t waits : {0, 10, 200}) {  // of 1000 ms
        Solver s;
        ck_assert(s.set_options(o).has_value());
        ProviderSpec p;
        p.cpus = 2;
        p.memory_mb = 100;
        p.speed = 100;
        ck_assert(s.add_provider(ProviderKey{1}, p));
        p.speed = 110;
        ck_assert(s.add_provider(ProviderKey{2}, p));
        JobDemand j;
        j.value = Money::units(10);
        j.files = {ProviderKey{1}, 0, waits, Nanos::from_ms(1)};
        ck_assert(s.add_job(JobKey{1}, j));
        const auto changes = s.solve(Nanos::from_s(1));
        ck_assert_int_eq(changes[0].to.n, waits == 200 ? 1 : 2);
    }
}
END_TEST

START_TEST(the_meter_follows_what_files_take_and_tells_only_what_has_changed) {
    FilesMeter meter;
    FilesUse use;
    Nanos now = Nanos::from_s(100);
    const Nanos trip = Nanos::from_ms(20);
    int told = 0;
    const auto run = [&](int windows, uint64_t bytes_per_s, uint64_t requests_per_s) {
        for (; windows > 0; --windows) {
            now = now + FilesMeter::window;
            use.out_bytes += bytes_per_s * 10;
            use.requests += requests_per_s * 10;
            told += meter.measure(now, trip, use);
        }
    };
    run(1, 0, 0);
    ck_assert_int_eq(told, 0);  // it has not begun
    meter.begin(now, use);
    run(1, 40'000'000, 80);  // a start reads its program: not what it goes on to take
    ck_assert(use.bytes_per_s == 10'000'000 && use.requests_per_s == 20 && use.round_trip == trip);
    run(30, 40'000'000, 80);
    ck_assert(use.bytes_per_s > 32'000'000 && use.bytes_per_s <= 40'000'000);
    ck_assert(use.requests_per_s >= 64 && use.requests_per_s <= 80);
    const int until = told;
    run(100, 41'000'000, 79);
    ck_assert_int_eq(told, until);
    meter.end();  // at home nothing is counted, and what it would take stays
    run(50, 0, 0);
    ck_assert(told == until && use.bytes_per_s > 32'000'000);
    meter.begin(now, use);
    run(200, 0, 0);
    ck_assert(use.bytes_per_s == 0 && use.requests_per_s == 0);
    ck_assert_int_le(told - until, 60);
    run(1, 4'000'000, 0);
    ck_assert(use.bytes_per_s == 1'000'000);
    ck_assert(meter.clear(use) && use.bytes_per_s == 0 && !meter.clear(use));
}
END_TEST

// This test goes from the report of a home to the order of the market.
START_TEST(the_market_moves_a_job_to_its_files_and_says_why) {
    for (const int64_t horizon_s : {0, 600}) {
        market::MarketOptions options;
        options.solver.horizon = Nanos::from_s(horizon_s);
        market::World w(options);
        w.add_node("n1", 90, 1, 1, 1'000);
        w.add_node("n2", 100, 1, 1, 1'000);
        const JobId id = w.submit("n1", 10, Nanos::from_s(120));
        w.run_for(Nanos::from_s(5));
        ck_assert_text(w.jobs.at(id).report.where, "n2");
        auto& job = w.jobs.at(id);
        job.report.files = {true, 50'000'000, 1'000, 700, {}, 10'000'000, 100, Nanos::from_ms(1)};
        w.tell(job);
        w.run_for(Nanos::from_s(5));
        ck_assert_text(w.jobs.at(id).report.where, horizon_s > 0 ? "n1" : "n2");
        if (horizon_s > 0) {
            ck_assert_text(w.orders.back().reason,
                           "n1 has its files, which n2 reads over the network");
            // at home nothing is counted: the figures stay, and it does too
            w.run_for(Nanos::from_s(60));
            ck_assert_text(w.jobs.at(id).report.where, "n1");
        }
        // The job's receipts say how much the files took.
        w.run_for(Nanos::from_s(120));
        ck_assert(w.jobs.at(id).report.phase == JobPhase::finished);
        uint64_t out = 0, requests = 0;
        for (const auto& r : w.receipts) out += r.files_out, requests += r.files_requests;
        ck_assert(out == 50'000'000 && requests == 700);
    }
}
END_TEST

}  // namespace

UNIT_SUITE(locality, without_traffic_or_without_a_horizon_every_decision_and_price_is_the_same,
           markets_without_files_decide_as_they_did_before,
           with_files_repairing_after_an_event_is_deciding_about_everything,
           a_job_goes_to_its_files_when_that_pays_for_the_move_and_never_back_and_forth,
           who_waits_begins_at_its_files_where_no_other_place_is_worth_more,
           the_meter_follows_what_files_take_and_tells_only_what_has_changed,
           the_market_moves_a_job_to_its_files_and_says_why);

}  // namespace souk::unit
