// SPDX-License-Identifier: GPL-2.0-or-later
// The small machines of a Market by themselves: alarms, settling, the pace of comments and prices,
// questions to a solver program, the samples of prices, back-off.
#include <map>

#include "market/core/alarms.hpp"
#include "market/core/comment_rounds.hpp"
#include "market/core/market_state.hpp"
#include "market/core/outside_solver.hpp"
#include "market/core/price_rounds.hpp"
#include "market/core/price_sampler.hpp"
#include "market/core/settling.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }
JobId job(uint64_t n) { return {"n1", n}; }

// A market of `jobs` jobs that all run, one CPU each on providers of four.
Solver crowded(uint64_t jobs) {
    Solver solver;
    for (uint64_t p = 1; p <= (jobs + 3) / 4; ++p) {
        ProviderSpec provider;
        provider.cpus = 4;
        provider.memory_mb = 4'000;
        provider.reserve = Money::units(1);
        ck_assert(solver.add_provider({p}, provider));
    }
    for (uint64_t j = 1; j <= jobs; ++j) {
        JobDemand spec;
        spec.value = Money::units(static_cast<int64_t>(10 + j % 7));
        spec.cpus = 1;
        spec.memory_mb = 1'000;
        ck_assert(solver.add_job({1'000 + j}, spec));
    }
    (void)solver.solve(Nanos{});
    return solver;
}

struct Payers final : PriceRounds::Payers {
    std::map<JobKey, Money> paid;
    size_t taken = 0;
    bool may_change(JobKey) const override { return true; }
    bool take(const Payment& p, Nanos) override {
        ++taken;
        const bool is_new = !paid.contains(p.job) || paid[p.job] != p.price;
        paid[p.job] = p.price;
        return is_new;
    }
};

JobDemand spec(Pin pin, JobState state = JobState::waiting, uint64_t place = 0) {
    JobDemand j;
    j.cpus = 1;
    j.memory_mb = 100;
    j.pin = pin;
    j.state = state;
    j.place = {place};
    return j;
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// alarms, back-off, settling

START_TEST(each_job_has_one_alarm_and_the_first_comes_first) {
    Alarms alarms;
    Nanos one = Nanos::never(), two = Nanos::never();
    ck_assert(alarms.next() == Nanos::never() && !alarms.due(s(9)));
    alarms.set(one, job(1), s(5));
    alarms.set(two, job(2), s(3));
    alarms.set(one, job(1), s(4));
    ck_assert(alarms.size() == 2 && alarms.next() == s(3) && one == s(4));
    ck_assert(!alarms.due(s(2)));
    ck_assert(*alarms.due(s(9)) == job(2));
    alarms.set(two, job(2), Nanos::never());
    ck_assert(*alarms.due(s(9)) == job(1));
    alarms.set(one, job(1), Nanos::never());
    ck_assert(alarms.size() == 0 && alarms.next() == Nanos::never());
}
END_TEST

START_TEST(each_failure_doubles_the_pause_up_to_the_longest_until_it_is_long_ago) {
    Backoff b;
    Nanos now = s(100);
    for (const int64_t pause : {1, 2, 4, 8, 10, 10}) {
        b.again("no", now, s(1), s(10));
        ck_assert(b.active && b.until == now + s(pause));
        now = b.until;
    }
    ck_assert_text(b.why, "no");
    now += s(11);
    b.again("no", now, s(1), s(10));
    ck_assert(b.until == now + s(1) && b.failures == 1);
}
END_TEST

START_TEST(a_market_settles_until_all_are_back_or_a_while_is_over) {
    std::map<NodeName, bool> nodes{{"n1", true}, {"n2", true}};
    std::map<JobId, bool> jobs{{job(1), true}};
    const auto awaited = [](bool is) { return is; };
    Settling never_begun;
    ck_assert(!never_begun.is_on() && !never_begun.ends(s(99), nodes, awaited, jobs, awaited));
    for (const bool in_time : {true, false}) {
        Settling settling;
        settling.begin(s(3));
        const auto ends = [&](Nanos now) {
            return settling.ends(now, nodes, awaited, jobs, awaited);
        };
        nodes = {{"n1", true}, {"n2", true}};
        jobs = {{job(1), true}};
        ck_assert(!ends(s(0)));
        nodes["n1"] = false;
        ck_assert(!ends(s(1)));
        nodes["n2"] = false;
        ck_assert(!ends(s(2)) && settling.is_on());
        if (in_time) jobs[job(1)] = false;
        ck_assert(ends(in_time ? s(2) : s(3)) && !settling.is_on());
        ck_assert(!ends(s(4)));  // once
    }
}
END_TEST

// -------------------------------------------------------------------------------------------------
// comments

START_TEST(comments_come_in_turn_a_bounded_number_a_second) {
    std::map<JobId, int> jobs;
    for (uint64_t n = 1; n <= 100; ++n) jobs[job(n)] = 0;
    CommentRounds rounds;
    const auto refresh = [&](Nanos now) {
        rounds.refresh(
            now, jobs, 1 << 20, [](int) { return true; }, [](int& times) { ++times; });
        int sum = 0;
        for (const auto& [id, times] : jobs) sum += times;
        return sum;
    };
    ck_assert(rounds.next_call() == Nanos::never());
    ck_assert_int_eq(refresh(s(1)), 0);
    rounds.changed();
    ck_assert_int_eq(refresh(s(1)), 16);
    ck_assert(rounds.next_call() == s(2));
    ck_assert_int_eq(refresh(s(1) + Nanos::from_ms(999)), 16);
    for (int64_t at = 2; at <= 7; ++at) (void)refresh(s(at));
    ck_assert_int_eq(refresh(s(7)), 100);
    for (const auto& [id, times] : jobs) ck_assert_int_eq(times, 1);
    ck_assert(rounds.next_call() == Nanos::never());
}
END_TEST

// -------------------------------------------------------------------------------------------------
// prices

START_TEST(a_change_reprices_every_job_and_then_nothing_is_due) {
    const Solver solver = crowded(20);
    PriceRounds rounds;
    Payers payers;
    ck_assert(rounds.next_call() == Nanos::never());
    rounds.refresh(solver, payers, s(1));
    ck_assert_uint_eq(payers.taken, 0);
    rounds.changed();
    ck_assert(rounds.next_call() <= s(1));
    rounds.refresh(solver, payers, s(1));
    ck_assert_uint_eq(payers.paid.size(), 20);
    ck_assert(rounds.next_call() == Nanos::never());
    for (const auto& [key, price] : payers.paid) ck_assert(price == *solver.price(key));
}
END_TEST

START_TEST(many_changes_are_put_in_force_piece_by_piece_with_pauses_between) {
    const Solver solver = crowded(1'000);
    PriceRounds rounds;
    Payers payers;
    rounds.changed();
    Nanos now = s(1);
    int pieces = 0;
    for (; rounds.next_call() != Nanos::never(); ++pieces) {
        now = std::max(now, rounds.next_call());
        const size_t before = payers.taken;
        rounds.refresh(solver, payers, now);
        ck_assert(payers.taken - before <= 128);
        if (rounds.next_call() <= now) continue;
        rounds.refresh(solver, payers, now);  // too early
        ck_assert(payers.taken - before <= 128);
        ck_assert(pieces < 100);
    }
    ck_assert_int_ge(pieces, 7);
    ck_assert_uint_eq(payers.paid.size(), 1'000);
    ck_assert(now > s(1));
}
END_TEST

START_TEST(a_minute_is_sampled_once_and_a_clock_set_back_a_little_waits) {
    PriceSampler sampler;
    const Nanos calendar = s(600);
    ck_assert(sampler.wants(s(30), calendar));
    ck_assert(sampler.next() == s(60));
    sampler.add(s(30), calendar, {});
    ck_assert(!sampler.take_changed().empty());
    ck_assert(sampler.take_changed().empty());
    ck_assert(!sampler.wants(s(59), calendar));
    ck_assert(sampler.wants(s(60), calendar));
    ck_assert(sampler.next() == s(120));
    ck_assert(!sampler.wants(s(60), calendar - s(300)));
    ck_assert(sampler.wants(s(60), calendar - s(600)));
}
END_TEST

// -------------------------------------------------------------------------------------------------
// a solver program

START_TEST(a_question_has_what_is_free_and_what_pinned_jobs_leave) {
    ProviderSpec four;
    four.cpus = 4;
    four.memory_mb = 1'000;
    ProviderSpec one = four;
    one.cpus = 1;
    const auto p = OutsideSolver::problem({{{1}, four}, {{2}, one}},
                                          {{{10}, spec(Pin::free)},
                                           {{11}, spec(Pin::stay, JobState::running, 1)},
                                           {{12}, spec(Pin::stay, JobState::running, 2)},
                                           {{13}, spec(Pin::frozen)},
                                           {{14}, spec(Pin::stay, JobState::running, 9)}});
    ck_assert(p.jobs.size() == 1 && p.jobs[0].key == JobKey{10});
    ck_assert(p.providers.size() == 1 && p.providers[0].key == ProviderKey{1});
    ck_assert(p.providers[0].spec.cpus == 3 && p.providers[0].spec.memory_mb == 900);
}
END_TEST

START_TEST(one_question_at_a_time_and_what_changed_meanwhile_makes_its_answer_stale) {
    OutsideSolver outside;
    ck_assert(!outside.decides());
    outside.use(true);
    ck_assert(outside.decides());
    ck_assert(outside.wants_question() && outside.is_asked());
    ck_assert(!outside.wants_question());
    ck_assert(outside.answered() && !outside.is_asked());
    ck_assert(outside.wants_question());
    ck_assert(!outside.answered());
    outside.adopted();
    ck_assert(outside.is_adopted());
    outside.take_adopted();
    ck_assert(!outside.is_adopted());
}
END_TEST

START_TEST(without_an_answer_the_market_decides_itself_once) {
    OutsideSolver outside;
    outside.use(true);
    (void)outside.wants_question();
    outside.use_own();
    ck_assert(!outside.is_asked());
    ck_assert(!outside.decides());
    ck_assert(outside.decides());
}
END_TEST

START_TEST(an_answer_places_only_what_it_was_asked_about_and_is_free_still) {
    OutsideSolver outside;
    OutsideSolver::Problem question;
    for (const uint64_t key : {10, 11, 12}) question.jobs.push_back({{key}, {}});
    outside.asked(question);
    const std::vector<OutsideSolver::KnownJob> now = {
        {{10}, spec(Pin::free)},
        {{11}, spec(Pin::stay, JobState::running, 5)},  // it has gone there meanwhile
        {{13}, spec(Pin::free, JobState::running, 6)},  // it was not asked about
        {{14}, spec(Pin::frozen, JobState::running, 7)}};
    const auto all = outside.whole({{{10}, {1}}, {{11}, {2}}, {{12}, {3}}}, now);
    std::map<JobKey, ProviderKey> where;
    for (const auto& a : all) ck_assert(where.emplace(a.job, a.provider).second);
    ck_assert(where == (std::map<JobKey, ProviderKey>{{{10}, {1}}, {{11}, {5}}, {{13}, {6}}}));
    // Nonsense is passed on: the solver says what is wrong with it.
    ck_assert_uint_eq(outside.whole({{{99}, {1}}}, now).back().job.n, 99);
}
END_TEST

START_TEST(only_stale_answers_are_forgiven_and_only_three_in_a_row) {
    OutsideSolver outside;
    ck_assert(!outside.forgives(false));
    for (int i = 0; i < 3; ++i) ck_assert(outside.forgives(true));
    ck_assert(!outside.forgives(true));
    outside.adopted();
    ck_assert(outside.forgives(true));
}
END_TEST

UNIT_SUITE(market_alarms, each_job_has_one_alarm_and_the_first_comes_first,
           each_failure_doubles_the_pause_up_to_the_longest_until_it_is_long_ago,
           a_market_settles_until_all_are_back_or_a_while_is_over);
UNIT_SUITE(comment_rounds, comments_come_in_turn_a_bounded_number_a_second);
UNIT_SUITE(price_rounds, a_change_reprices_every_job_and_then_nothing_is_due,
           many_changes_are_put_in_force_piece_by_piece_with_pauses_between);
UNIT_SUITE(price_sampler, a_minute_is_sampled_once_and_a_clock_set_back_a_little_waits);
UNIT_SUITE(outside_solver, a_question_has_what_is_free_and_what_pinned_jobs_leave,
           one_question_at_a_time_and_what_changed_meanwhile_makes_its_answer_stale,
           without_an_answer_the_market_decides_itself_once,
           an_answer_places_only_what_it_was_asked_about_and_is_free_still,
           only_stale_answers_are_forgiven_and_only_three_in_a_row);
