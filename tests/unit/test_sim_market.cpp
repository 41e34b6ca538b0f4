// SPDX-License-Identifier: GPL-2.0-or-later
// The market simulator: the published example figure by figure, and the loop of one step a second
// as its reference.
#include <algorithm>
#include <map>

#include "kernel/base/rng.hpp"
#include "market/core/age.hpp"
#include "market/sim/distribution.hpp"
#include "market/sim/report.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::sim;

namespace {

constexpr const char* example_providers = R"(# providers
1 0 -1 10 1000 1 100
2 0 -1 10 1000 1 100

3 0 -1 10 1000 1 100   # as the others
4 0 -1 10 1000 1 100
5 0 -1 10 1000 1 100
)";
constexpr const char* example_jobs =
    "# jobs\r\n1 0 50 24 100 1\r\n2 0 50 23 100 1\r\n3 0 50 22 100 1\r\n4 0 50 21 100 1\r\n5 0 50 "
    "20 100 1\r\n"
    "6 5 45 25 100 1\r\n7 10 40 26 100 1";

// The definition of market_run.hpp, one step a second. Nothing is kept but what each job is doing.
class SecondBySecond {
  public:
    SecondBySecond(const std::vector<SimJob>& jobs, const std::vector<SimProvider>& providers,
                   const MarketRunOptions& o)
        : jobs_(jobs), providers_(providers), options_(o), states_(jobs.size()) {
        out_.jobs.resize(jobs.size());
        market::SolverOptions solver = o.solver;
        solver.link_bytes_per_s = o.network_mb_per_s * 1'000'000;
        ck_assert(solver_.set_options(solver).has_value());
    }

    // `end_s`: until when CPUs are counted as held and offered; from then on nothing may happen.
    RunOutcome run(int64_t end_s) {
        for (now_ = 0; now_ <= end_s + 200; ++now_) {
            if (now_ > 0 && now_ <= end_s) count_cpus();
            step();
            uint32_t moves = 0, freezes = 0;
            for (const State& s : states_)
                (s.doing == Doing::moving ? moves : freezes) += operating(s);
            out_.totals.concurrent_moves_max = std::max(out_.totals.concurrent_moves_max, moves);
            out_.totals.concurrent_freezes_max =
                std::max(out_.totals.concurrent_freezes_max, freezes);
        }
        for (size_t i = 0; i < jobs_.size(); ++i)
            if (states_[i].doing != Doing::absent)
                out_.jobs[i].done = jobs_[i].run_s * 100 - std::max<int64_t>(0, states_[i].work);
        return out_;
    }

  private:
    enum class Doing { absent, waiting, running, moving, freezing, frozen, thawing, done };
    struct State {
        Doing doing = Doing::absent;
        int64_t work = 0, operation_left = 0;
        // the end of its operation is being told: it advances from the next step
        bool skip = false;
        uint32_t at = 0;
        int64_t waited_s = 0;
    };
    static market::JobKey key(size_t i) { return {i + 1}; }
    // Counts the CPUs of the second that is over. A job that is being frozen holds none any more.
    void count_cpus() {
        for (size_t i = 0; i < jobs_.size(); ++i) {
            const Doing d = states_[i].doing;
            if (d == Doing::running || d == Doing::moving || d == Doing::thawing)
                out_.totals.busy_cpu_s += jobs_[i].cpus;
        }
        for (size_t p = 0; p < providers_.size(); ++p)
            if (solver_.provider({p + 1})) out_.totals.offered_cpu_s += providers_[p].cpus;
    }
    bool operating(const State& s) const {
        return s.doing == Doing::moving || s.doing == Doing::freezing || s.doing == Doing::thawing;
    }
    void pin(size_t i, market::Pin pin) {
        auto spec = *solver_.job(key(i));
        spec.pin = pin;
        ck_assert(solver_.change_job(key(i), spec));
        told_ = true;
    }

    void step() {
        // The second is over: jobs that advance have paid and gained for it, and every running job
        // is a second further.
        for (const auto& p : payments_) {
            const size_t i = p.job.n - 1;
            if (states_[i].doing != Doing::running || states_[i].skip) continue;
            out_.jobs[i].paid.add(p.price, jobs_[i].cpus, 1);
            out_.totals.consumers.add(*worth_[i] - p.price, jobs_[i].cpus, 1);
            out_.totals.providers.add(p.price - providers_[p.provider.n - 1].reserve, jobs_[i].cpus,
                                      1);
        }
        for (size_t i = 0; i < jobs_.size(); ++i) {
            State& s = states_[i];
            s.waited_s += s.doing == Doing::waiting || s.doing == Doing::frozen;
            if (operating(s)) {
                ++out_.jobs[i].operation_s;
                --s.operation_left;
            } else if (s.doing == Doing::running) {
                if (s.skip)
                    ++out_.jobs[i].lost_s;
                else
                    s.work -= providers_[s.at].speed;
                s.skip = false;
            }
        }
        told_ = false;
        tell();
        weigh();
        const auto busy = [&](const State& s) { return s.doing == Doing::running || operating(s); };
        const bool wanted = solver_.next_wake() <= Nanos::from_s(now_) &&
                            std::any_of(states_.begin(), states_.end(), busy);
        if (!told_ && !wanted) return;
        std::vector<market::Change> changes;
        for (const auto& change : solver_.solve(Nanos::from_s(now_))) changes.push_back(change);
        for (const auto& change : changes) make(change);
        payments_ = solver_.payments();
        worth_.assign(jobs_.size(), std::nullopt);
        int64_t top = 0;
        for (size_t p = 0; p < providers_.size(); ++p)
            if (solver_.provider({p + 1})) top = std::max<int64_t>(top, providers_[p].speed);
        for (const auto& p : payments_)
            worth_[p.job.n - 1] =
                Money{static_cast<int64_t>(static_cast<__int128>(jobs_[p.job.n - 1].value.micro) *
                                           providers_[p.provider.n - 1].speed / top)};
    }

    void tell() {
        for (size_t i = 0; i < jobs_.size(); ++i) {
            State& s = states_[i];
            if (s.doing == Doing::running && s.work <= 0) {
                ck_assert(solver_.remove_job(key(i)));
                s.doing = Doing::done;
                told_ = true;
                out_.jobs[i].end_s = now_;
            } else if (operating(s) && s.operation_left == 0) {
                pin(i, market::Pin::free);
                s.skip = s.doing != Doing::freezing;
                s.doing = s.doing == Doing::freezing ? Doing::frozen : Doing::running;
            }
        }
        for (size_t p = 0; p < providers_.size(); ++p) {
            const SimProvider& provider = providers_[p];
            if (provider.start_s == now_)
                ck_assert(solver_.add_provider({p + 1}, {.reserve = provider.reserve,
                                                         .speed = provider.speed,
                                                         .cpus = provider.cpus,
                                                         .memory_mb = provider.memory_mb}));
            told_ |= provider.start_s == now_ || provider.end_s == now_;
            if (provider.end_s != now_) continue;
            for (size_t i = 0; i < jobs_.size(); ++i) {
                State& s = states_[i];
                if (s.at != p || (s.doing != Doing::moving && s.doing != Doing::thawing)) continue;
                pin(i, market::Pin::free);
                s.doing = Doing::running;
            }
            ck_assert(solver_.remove_provider({p + 1}));
        }
        for (size_t i = 0; i < jobs_.size(); ++i) {
            if (jobs_[i].start_s != now_) continue;
            market::JobDemand spec;
            spec.value = jobs_[i].value;
            spec.memory_mb = jobs_[i].memory_mb;
            spec.cpus = jobs_[i].cpus;
            spec.user = jobs_[i].user;
            spec.arrival = Nanos::from_s(now_);
            ck_assert(solver_.add_job(key(i), spec));
            states_[i].doing = Doing::waiting;
            told_ = true;
            states_[i].work = jobs_[i].run_s * 100;
        }
    }

    void weigh() {
        for (size_t i = 0; i < jobs_.size(); ++i) {
            if (states_[i].doing == Doing::absent || states_[i].doing == Doing::done) continue;
            const int32_t weight =
                market::weight_after(Nanos::from_s(states_[i].waited_s), solver_.ageing());
            if (solver_.job(key(i))->weight == weight) continue;
            ck_assert(solver_.change_weight(key(i), weight));
            told_ = true;
        }
    }

    void make(const market::Change& change) {
        const size_t i = change.job.n - 1;
        State& s = states_[i];
        JobOutcome& o = out_.jobs[i];
        s.skip = false;
        if (change.kind != market::ChangeKind::freeze)
            s.at = static_cast<uint32_t>(change.to.n - 1);
        if (change.kind == market::ChangeKind::start) {
            o.first_run_s = now_;
            s.doing = Doing::running;
            return;
        }
        const bool move = change.kind == market::ChangeKind::move,
                   freeze = change.kind == market::ChangeKind::freeze;
        ++(move ? o.moves : freeze ? o.freezes : o.thaws);
        o.moved_mb += jobs_[i].memory_mb;
        const int64_t rate = move ? options_.network_mb_per_s : options_.disk_mb_per_s;
        s.operation_left = (jobs_[i].memory_mb + rate - 1) / rate;
        if (s.operation_left == 0) {
            s.doing = freeze ? Doing::frozen : Doing::running;
            return;
        }
        s.doing = move ? Doing::moving : freeze ? Doing::freezing : Doing::thawing;
        pin(i, freeze ? market::Pin::frozen : market::Pin::stay);
    }

    const std::vector<SimJob>& jobs_;
    const std::vector<SimProvider>& providers_;
    const MarketRunOptions& options_;
    std::vector<State> states_;
    market::Solver solver_;
    std::vector<market::Payment> payments_;
    std::vector<std::optional<Money>> worth_;
    int64_t now_ = 0;
    bool told_ = false;
    RunOutcome out_;
};

void check_against_loop(const std::vector<SimJob>& jobs, const std::vector<SimProvider>& providers,
                        const MarketRunOptions& options, const std::string& where) {
    const auto got = run_market(jobs, providers, options);
    ck_assert_msg(got.has_value(), "%s: %s", where.c_str(), got ? "" : got.error().message.c_str());
    const RunOutcome expected = SecondBySecond(jobs, providers, options).run(got->totals.end_s);
    for (size_t i = 0; i < jobs.size(); ++i) {
        const JobOutcome &a = got->jobs[i], &b = expected.jobs[i];
        ck_assert_msg(a.end_s == b.end_s && a.moves == b.moves && a.freezes == b.freezes &&
                          a.thaws == b.thaws,
                      "%s: job %ld ends at %ld after %u moves, %u freezes, %u thaws; second by "
                      "second at %ld, %u, %u, %u",
                      where.c_str(), static_cast<long>(jobs[i].id), static_cast<long>(a.end_s),
                      a.moves, a.freezes, a.thaws, static_cast<long>(b.end_s), b.moves, b.freezes,
                      b.thaws);
        ck_assert_msg(
            a.first_run_s == b.first_run_s && a.moved_mb == b.moved_mb,
            "%s: job %ld first runs at %ld and %ld MB are carried; second by second at %ld and %ld",
            where.c_str(), static_cast<long>(jobs[i].id), static_cast<long>(a.first_run_s),
            static_cast<long>(a.moved_mb), static_cast<long>(b.first_run_s),
            static_cast<long>(b.moved_mb));
        ck_assert_msg(
            a.operation_s == b.operation_s && a.lost_s == b.lost_s && a.paid == b.paid,
            "%s: job %ld: operations %ld s, lost %ld s, paid %ld; second by second %ld, %ld, %ld",
            where.c_str(), static_cast<long>(jobs[i].id), static_cast<long>(a.operation_s),
            static_cast<long>(a.lost_s), static_cast<long>(a.paid.micro_s),
            static_cast<long>(b.operation_s), static_cast<long>(b.lost_s),
            static_cast<long>(b.paid.micro_s));
    }
    ck_assert_msg(got->totals.consumers == expected.totals.consumers &&
                      got->totals.providers == expected.totals.providers,
                  "%s: other surpluses", where.c_str());
    const RunTotals &a = got->totals, &b = expected.totals;
    ck_assert_msg(a.busy_cpu_s == b.busy_cpu_s && a.offered_cpu_s == b.offered_cpu_s,
                  "%s: %ld of %ld CPU-seconds; second by second %ld of %ld", where.c_str(),
                  static_cast<long>(a.busy_cpu_s), static_cast<long>(a.offered_cpu_s),
                  static_cast<long>(b.busy_cpu_s), static_cast<long>(b.offered_cpu_s));
    ck_assert_msg(a.concurrent_moves_max == b.concurrent_moves_max &&
                      a.concurrent_freezes_max == b.concurrent_freezes_max,
                  "%s: at most %u moves and %u freezes at a time; second by second %u and %u",
                  where.c_str(), a.concurrent_moves_max, a.concurrent_freezes_max,
                  b.concurrent_moves_max, b.concurrent_freezes_max);
}

struct Market {
    std::vector<SimJob> jobs;
    std::vector<SimProvider> providers;
};

Market random_market(Rng& rng) {
    Market m;
    const int64_t span = rng.between(1, 200), cpus = rng.between(1, 4), values = rng.between(1, 40);
    for (int64_t id = 1, n = rng.between(1, 25); id <= n; ++id)
        m.jobs.push_back(
            {id, rng.between(0, span), rng.between(1, 60), Money::units(rng.between(0, values)),
             rng.chance(0.2) ? 0 : rng.between(1, 500), static_cast<int32_t>(rng.between(1, cpus)),
             static_cast<uint32_t>(rng.between(1, 4))});
    for (int64_t id = 1, n = rng.between(1, 6); id <= n; ++id) {
        const int64_t start = rng.chance(0.6) ? 0 : rng.between(0, span);
        m.providers.push_back({id, start, rng.chance(0.7) ? -1 : start + rng.between(1, span),
                               Money::units(rng.between(0, 10)), rng.between(100, 1500),
                               static_cast<int32_t>(rng.between(1, cpus + 1)),
                               static_cast<int32_t>(rng.chance(0.5) ? 100 : rng.between(20, 300))});
    }
    return m;
}

}  // namespace

START_TEST(the_published_example_comes_out_figure_by_figure) {
    const auto jobs = *parse_jobs(example_jobs);
    const auto providers = *parse_providers(example_providers);
    const RunOutcome outcome = *run_market(jobs, providers, {});
    const RunReport r = report_of(jobs, providers.size(), outcome, 10);
    ck_assert(r.jobs == 7 && r.providers == 5 && r.unfinished == 0);
    ck_assert_double_eq_tol(r.run_s, 47.8571, 5e-5);
    ck_assert_double_eq_tol(r.slowdown, 1.2543, 5e-5);
    ck_assert_double_eq(r.moves, 0);
    ck_assert_double_eq_tol(r.freezes, 0.5714, 5e-5);
    ck_assert_double_eq(r.operation_s, 2.0);
    ck_assert_uint_eq(r.concurrent_freezes_max, 2);
    ck_assert_double_eq(r.weighted_completion_s, 9446);
    ck_assert_double_eq(r.weighted_stay_s, 9487);
    ck_assert_double_eq_tol(r.weighted_bounded_slowdown, 197.44, 5e-3);
    const double slowdowns[] = {1.94, 1.84, 1, 1, 1, 1, 1};
    ck_assert_uint_eq(r.by_value.size(), 7);
    for (size_t i = 0; i < 7; ++i) {
        ck_assert(r.by_value[i].value == Money::units(20 + static_cast<int64_t>(i)) &&
                  r.by_value[i].jobs == 1);
        ck_assert_double_eq_tol(r.by_value[i].slowdown, slowdowns[i], 5e-3);
    }
    ck_assert(outcome.jobs[3].end_s == 92 && outcome.jobs[4].end_s == 97);
    const std::string summary = summary_text(r, {});
    for (const char* line : {"migration speed                       100 MB/s\n",
                             "avg slowdown                          1.2543\n",
                             "weighted completion time (WCT)        9446\n",
                             "weighted bounded slowdown             197.44\n"})
        ck_assert_msg(summary.find(line) != std::string::npos, "no '%s' in:\n%s", line,
                      summary.c_str());
}
END_TEST

START_TEST(events_give_what_one_step_a_second_gives) {
    // Random small markets: several CPUs, speeds, memory, reserves, providers that come and go;
    // both algorithms, each pricing, with and without the migration-aware rules.
    Rng rng(11);
    for (int round = 0; round < 3000; ++round) {
        const Market m = random_market(rng);
        MarketRunOptions o;
        const auto pricings = market::Solver::pricings();
        o.solver.pricing = pricings[rng.below(pricings.size())];
        o.network_mb_per_s = rng.between(20, 300);
        o.disk_mb_per_s = rng.between(20, 300);
        if (rng.chance(0.3)) {
            o.solver.algorithm = "proportional_share";
            o.solver.quantum = Nanos::from_s(rng.between(60, 120));
        } else {
            if (rng.chance(0.3)) o.solver.horizon = Nanos::from_s(rng.between(1, 100));
            if (rng.chance(0.3)) o.solver.min_stay = Nanos::from_s(rng.between(1, 30));
            if (rng.chance(0.3)) o.solver.moves_max = static_cast<int32_t>(rng.between(1, 3));
            if (rng.chance(0.4)) o.solver.ageing = Nanos::from_s(rng.between(2, 60));
        }
        check_against_loop(m.jobs, m.providers, o,
                           "round " + std::to_string(round) + " " + o.solver.algorithm);
    }
}
END_TEST

// Speed 90 at home; 100 elsewhere, less the 40 % of each second in which it waits for its files.
START_TEST(a_job_away_from_its_files_waits_for_them_and_with_a_horizon_goes_there) {
    const auto jobs = *parse_jobs("1 0 900 20 0 1 7 1 20 200\n");
    const auto providers = *parse_providers("1 0 -1 10 1000 1 90\n2 0 -1 10 1000 1 100\n");
    ck_assert(*parse_jobs(format_jobs(jobs, false)) == jobs);
    MarketRunOptions o;
    RunOutcome out = *run_market(jobs, providers, o);
    ck_assert(out.jobs[0].end_s == 1'500 && out.jobs[0].files_mb == 20 * 1'500);
    o.solver.horizon = Nanos::from_s(600);
    out = *run_market(jobs, providers, o);
    ck_assert(out.jobs[0].end_s == 1'000 && out.jobs[0].files_mb == 0);
    o.round_trip = {};  // 20 % of each second
    ck_assert_int_eq(run_market(jobs, providers, o)->jobs[0].end_s, 1'000);
    // A home that takes no jobs: the faster one is still the better.
    const auto guest = *parse_jobs("1 0 900 20 0 1 7 3 20 200\n");
    ck_assert_int_eq(run_market(guest, providers, o)->jobs[0].end_s, 1'125);
    for (const char* bad : {"1 0 9 20 0 1 7 1 20\n", "1 0 9 20 0 1 7 -1 20 200\n",
                            "1 0 9 20 0 1 7 1 1000001 0\n", "1 0 9 20 0 1 7 1 1 1 1\n"})
        ck_assert(!parse_jobs(bad));
}
END_TEST

START_TEST(a_run_ends_early_where_it_is_told_to_and_says_what_is_done) {
    const auto jobs = *parse_jobs(example_jobs);
    const auto providers = *parse_providers(example_providers);
    MarketRunOptions o;
    o.stop_s = 20;
    RunOutcome out = *run_market(jobs, providers, o);
    ck_assert_int_eq(out.totals.end_s, 20);
    ck_assert(out.jobs[0].end_s == -1 && out.jobs[0].done == 2'000);
    ck_assert_int_eq(out.jobs[3].done, 1'000);  // frozen at 10
    // The job pays the reserve at first, and then the highest bid of a frozen job, once that one is
    // frozen.
    ck_assert_int_eq(out.jobs[0].paid.micro_s, (6 * 10 + 5 * 20 + 9 * 21) * 1'000'000);
    o.stop_s = 2;
    const auto slow = *parse_providers("1 0 -1 1 1000 1 60\n");
    ck_assert_int_eq(run_market(*parse_jobs("1 0 1 20 0 1\n"), slow, o)->jobs[0].done, 100);
    o.stop_s = INT64_MAX;
    o.until = {0};
    out = *run_market(jobs, providers, o);
    ck_assert(out.totals.end_s == 50 && out.jobs[0].end_s == 50 && out.jobs[4].end_s == -1);
}
END_TEST

START_TEST(a_bid_that_changes_once_its_job_runs_loses_the_place_to_who_waits) {
    const auto jobs = *parse_jobs("1 0 100 20 0 1\n2 0 100 10 0 1\n");
    const auto providers = *parse_providers("1 0 -1 1 1000 1 100\n");
    MarketRunOptions o;
    ck_assert_int_eq(run_market(jobs, providers, o)->jobs[0].end_s, 100);
    o.rebid = Rebid{0, Money::units(5)};
    const RunOutcome out = *run_market(jobs, providers, o);
    ck_assert(out.jobs[1].end_s == 101 && out.jobs[0].end_s == 200);
    // The job pays 10 for one second, and the reserve for the rest.
    ck_assert_int_eq(out.jobs[0].paid.micro_s, 10'000'000 + 99 * 1'000'000);
}
END_TEST

START_TEST(marks_say_how_far_jobs_are_in_between_and_change_nothing) {
    const auto jobs = *parse_jobs("1 0 100 20 0 1\n2 10 30 40 0 1\n");
    const auto providers = *parse_providers("1 0 -1 1 1000 1 50\n");
    MarketRunOptions o;
    o.until = {0, 1};
    const RunOutcome plain = *run_market(jobs, providers, o);
    o.marks = {5, 10, 100, 1'000};
    const RunOutcome out = *run_market(jobs, providers, o);
    ck_assert(out.jobs == plain.jobs && out.marks.size() == 8);
    // the second displaces the first at 10, and is done at 70
    const int64_t done[] = {250, 0, 500, 0, 2'000, 3'000, 10'000, 3'000};
    for (size_t m = 0; m < std::size(done); ++m) ck_assert_int_eq(out.marks[m].done, done[m]);
    ck_assert_int_eq(out.marks[0].paid.micro_s, 5 * 1'000'000);
    ck_assert(out.marks[4].paid.micro_s == (10 + 30) * 1'000'000);
    ck_assert(out.marks[7].paid == plain.jobs[1].paid);
}
END_TEST

START_TEST(envy_is_what_the_place_of_another_would_bring_more_at_its_price) {
    // The greedy puts the bid of 20 on the fast machine, though the slow one for nothing would
    // bring it 10 and not 20 - 15.
    const auto jobs = *parse_jobs("1 0 100 20 0 1\n2 0 50 10 0 1\n");
    const auto providers = *parse_providers("1 0 -1 15 1000 1 100\n2 0 -1 0 1000 1 50\n");
    MarketRunOptions o;
    o.envy = true;
    o.stop_s = 100;
    ck_assert_int_eq(run_market(jobs, providers, o)->totals.envy.micro_s, 100 * 5'000'000);
    o.solver.algorithm = "welfare";
    ck_assert_int_eq(run_market(jobs, providers, o)->totals.envy.micro_s, 0);
}
END_TEST

START_TEST(the_same_input_gives_the_same_text) {
    Rng rng(12);
    const Market m = random_market(rng);
    const RunOutcome a = *run_market(m.jobs, m.providers, {}),
                     b = *run_market(m.jobs, m.providers, {});
    ck_assert_text(per_job_csv(m.jobs, a, 10), per_job_csv(m.jobs, b, 10));
    ck_assert_text(summary_text(report_of(m.jobs, m.providers.size(), a, 10), {}),
                   summary_text(report_of(m.jobs, m.providers.size(), b, 10), {}));
}
END_TEST

START_TEST(a_job_that_nothing_can_run_is_reported_and_in_no_average) {
    const auto jobs = *parse_jobs("1 0 10 5 100 1\n2 0 10 5 100 8\n");
    const auto providers = *parse_providers("1 0 -1 1 1000 1 100\n");
    const RunOutcome outcome = *run_market(jobs, providers, {});
    const RunReport r = report_of(jobs, 1, outcome, 10);
    ck_assert(r.unfinished == 1 && outcome.jobs[1].end_s == -1);
    ck_assert_double_eq(r.slowdown, 1);
    ck_assert(per_job_csv(jobs, outcome, 10).find("\n2,5,8,100,2,0,10,,,,,,0,0,0,0,0,0\n") !=
              std::string::npos);
}
END_TEST

START_TEST(freezing_that_eats_all_progress_is_an_error_and_not_an_endless_run) {
    // Turns of 10 s, and a thaw takes 20 s.
    const auto jobs = *parse_jobs("1 0 1000 5 2000 1\n2 0 1000 5 2000 1\n");
    const auto providers = *parse_providers("1 0 -1 1 9000 1 100\n");
    MarketRunOptions o;
    o.solver.algorithm = "proportional_share";
    const auto outcome = run_market(jobs, providers, o);
    if (outcome)
        ck_assert(outcome->jobs[0].end_s > 0 && outcome->jobs[1].end_s > 0);
    else
        ck_assert(outcome.error().message.find("no job has advanced") != std::string::npos);
}
END_TEST

START_TEST(job_and_provider_files_round_trip_and_errors_name_line_field_and_why) {
    Rng rng(13);
    const Market m = random_market(rng);
    ck_assert(*parse_jobs(format_jobs(m.jobs, true)) == m.jobs);
    ck_assert(*parse_providers(format_providers(m.providers)) == m.providers);
    const auto jobs_error = [](std::string_view text) { return parse_jobs(text).error().message; };
    ck_assert_text(
        jobs_error("1 0 50 24 100 1\n2 0 50 24\n"),
        "line 2: has 4 fields, a job has 6 (id start run value memory cpus), 7 (user) or "
        "10 (home mb requests)");
    ck_assert_text(jobs_error("1 0 -50 24 100 1\n"),
                   "line 1: field 3 (run): '-50' is out of range (1 to 1000000000)");
    ck_assert_text(jobs_error("1 0 x 24 100 1\n"), "line 1: field 3 (run): 'x' is not an integer");
    ck_assert_text(jobs_error("1 0 5 24 100 1\n\n1 0 5 24 100 1\n"),
                   "line 3: field 1 (id): 1 is the job of line 1 again");
    ck_assert_text(
        jobs_error("99999999999999999999 0 5 24 100 1\n"),
        "line 1: field 1 (id): '99999999999999999999' is out of range (1 to 9223372036854775807)");
    ck_assert_msg(
        jobs_error("1 0 5 -2 100 1\n").starts_with("line 1: field 4 (value): '-2' is no amount: "),
        "%s", jobs_error("1 0 5 -2 100 1\n").c_str());
    ck_assert_text(jobs_error("# nothing\n"), "has no job in it");
    ck_assert_text(parse_providers("1 5 5 1 1 1 1").error().message,
                   "line 1: field 3 (end): '5' is not after the start");
    ck_assert_text(parse_providers("").error().message, "has no provider in it");
}
END_TEST

START_TEST(distributions_draw_what_they_say) {
    Rng rng(14);
    const auto uniform = *parse_distribution("uniform 10 60");
    const auto bimodal = *parse_distribution("bimodal 80 30 15 20 90 15");
    ck_assert_int_eq(parse_distribution("fix 100")->draw(rng, 1), 100);
    ck_assert_int_eq(parse_distribution("fix 0")->draw(rng, 1), 1);
    constexpr int n = 40'000;
    int64_t sum = 0, low = 0, high = 0;
    double both = 0;
    for (int i = 0; i < n; ++i) {
        const int64_t u = uniform.draw(rng, 1);
        ck_assert(u >= 10 && u <= 60);
        low += u == 10;
        high += u == 60;
        sum += u;
        both += static_cast<double>(bimodal.draw(rng, 1));
    }
    ck_assert_double_eq_tol(static_cast<double>(sum) / n, 35, 0.5);
    ck_assert(low > n / 51 / 2 && high > n / 51 / 2);
    ck_assert_double_eq_tol(both / n, 0.8 * 30 + 0.2 * 90, 0.7);
    for (const char* text : {"", "normal 1 2", "uniform 5", "uniform 6 5", "uniform 1 x", "fix -1",
                             "fix 1 2", "bimodal 80 30 15 30 90 15", "fix 1000001"})
        ck_assert_msg(!parse_distribution(text).has_value(), "took '%s'", text);
}
END_TEST

UNIT_SUITE(sim_market, a_run_ends_early_where_it_is_told_to_and_says_what_is_done,
           a_job_away_from_its_files_waits_for_them_and_with_a_horizon_goes_there,
           a_bid_that_changes_once_its_job_runs_loses_the_place_to_who_waits,
           marks_say_how_far_jobs_are_in_between_and_change_nothing,
           envy_is_what_the_place_of_another_would_bring_more_at_its_price,
           the_published_example_comes_out_figure_by_figure,
           events_give_what_one_step_a_second_gives, the_same_input_gives_the_same_text,
           a_job_that_nothing_can_run_is_reported_and_in_no_average,
           freezing_that_eats_all_progress_is_an_error_and_not_an_endless_run,
           job_and_provider_files_round_trip_and_errors_name_line_field_and_why,
           distributions_draw_what_they_say);
