// SPDX-License-Identifier: GPL-2.0-or-later
// Users have limits: jobs and CPUs at once, money a day. (market_chaos.hpp has the limits on random
// markets with faults.)
#include "kernel/base/rng.hpp"
#include "market/store/records.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
constexpr uint32_t alice = 1000, bob = 1001;

struct Limited : World {
    Limited() {
        add_node("n1", 100, 36, 8);
        run_for(s(4));
    }
    JobId job(uint32_t uid, int64_t price, int32_t cpus = 1) {
        return submit("n1", price, Nanos::never(), cpus, 10, {}, uid);
    }
    void limit(uint32_t uid, const UserLimits& l) {
        ck_assert(market->set_limits(uid, uid == alice ? "alice" : "bob", l, 0, now).has_value());
    }
    void spend_at_most(int64_t units) { limit(alice, {Money::units(units), {}, {}}); }
};

UserLimits jobs_at_once(int32_t n) { return {{}, n, {}}; }
UserLimits cpus_at_once(int32_t n) { return {{}, {}, n}; }

}  // namespace

START_TEST(a_user_runs_no_more_jobs_at_once_than_its_limit_the_most_valuable_first) {
    Limited w;
    w.limit(alice, jobs_at_once(2));
    const JobId a = w.job(alice, 50), b = w.job(alice, 70), c = w.job(alice, 60),
                d = w.job(bob, 40);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "waiting");
    ck_assert_text(w.comment(a), "user alice may run 2 jobs at once");
    ck_assert_text(w.where(b), "n1");
    ck_assert_text(w.where(c), "n1");
    ck_assert_text(w.where(d), "n1");
    const JobId e = w.job(alice, 80);
    w.run_for(s(1));
    ck_assert_text(w.where(e), "n1");
    ck_assert_text(w.where(c), "frozen");
    w.end(w.jobs[e]);
    w.run_for(s(1));
    ck_assert_text(w.where(c), "n1");
    w.limit(alice, jobs_at_once(1));
    w.run_for(s(1));
    ck_assert_text(w.where(b), "n1");
    ck_assert_text(w.where(c), "frozen");
    w.limit(alice, {});
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.where(c), "n1");
    ck_assert(w.stored_users.empty());
}
END_TEST

START_TEST(a_user_uses_no_more_cpus_at_once_than_its_limit) {
    Limited w;
    w.limit(alice, cpus_at_once(4));
    const JobId a = w.job(alice, 90, 3), b = w.job(alice, 80, 2), c = w.job(alice, 70, 1),
                d = w.job(alice, 60, 5);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.where(b), "waiting");
    ck_assert_text(w.comment(b), "user alice may use 4 CPUs at once; it needs 2");
    ck_assert_text(w.where(c), "n1");
    ck_assert_text(w.where(d), "waiting");
    w.jobs[a].report.terms.max_price = Money::units(65);
    w.tell(w.jobs[a]);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "frozen");
    ck_assert_text(w.where(b), "n1");
    ck_assert_text(w.where(c), "n1");
}
END_TEST

START_TEST(a_job_that_nobody_can_run_keeps_no_lesser_one_of_its_user_waiting) {
    Limited w;
    w.limit(alice, jobs_at_once(1));
    const JobId big = w.job(alice, 90, 9), cheap = w.job(alice, 20), good = w.job(alice, 50);
    w.run_for(s(1));
    ck_assert_text(w.where(good), "n1");
    ck_assert_text(w.comment(big), "needs 9 CPUs; no provider has more than 8");
    ck_assert_text(w.comment(cheap), "user alice may run 1 job at once");
    for (int i = 0; i < 8; ++i) w.job(bob, 60);
    w.run_for(s(1));
    // the job was outbid, and its place in the limit goes to a job that can have a place
    ck_assert_text(w.where(good), "frozen");
    ck_assert_text(w.comment(good).substr(0, 17), "displaced by job ");
}
END_TEST

START_TEST(who_is_held_bids_against_nobody) {
    Limited w;
    w.limit(alice, jobs_at_once(1));
    w.job(alice, 90);
    JobId last;
    for (int i = 0; i < 7; ++i) last = w.job(bob, 80);
    w.job(alice, 70);
    w.run_for(s(1));
    ck_assert_text(format_money(w.market->find(last)->record.price), "36");  // the reserve, not 70
    w.limit(alice, {});
    w.run_for(s(2));
    ck_assert_text(format_money(w.market->find(last)->record.price), "70");
}
END_TEST

START_TEST(who_runs_out_of_reach_counts_and_holds_no_place_for_another) {
    Limited w;
    w.add_node("n2", 100, 36, 1);
    w.limit(alice, jobs_at_once(1));
    const JobId a = w.submit("n2", 40, Nanos::never(), 8, 10, {}, alice);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n1");
    w.disconnect("n2");
    const JobId b = w.job(alice, 90), c = w.job(bob, 50, 1);
    ProviderReport p = w.providers["n2"];
    p.node = "n3";
    w.providers["n3"] = p;
    w.connect("n3");
    w.run_for(s(1));
    ck_assert_text(w.comment(b), "user alice may run 1 job at once");
    ck_assert_text(w.where(c), "n3");
}
END_TEST

START_TEST(a_job_stays_its_users_whatever_a_home_that_forgot_it_says) {
    Limited w;
    w.limit(alice, jobs_at_once(1));
    const JobId a = w.job(alice, 50);
    w.run_for(s(100));
    World::HomeJob& job = w.jobs[a];
    job.report.uid = 0;
    job.report.user.clear();
    job.report.terms = {};
    job.report.terms.max_price = Money{1};
    job.report.why = "its home node does not know it";
    w.end(job);
    w.run_for(s(1));
    ck_assert(w.market->users().at(alice).claiming.empty());
    ck_assert_int_eq(w.receipts.back().uid, alice);
    ck_assert_text(w.receipts.back().user, "u1000");
    ck_assert(w.market->ledger().accounts().count(Holder::user(0)) == 0);
}
END_TEST

START_TEST(only_root_sets_limits_and_they_outlive_the_market) {
    Limited w;
    ck_assert(!w.market->set_limits(alice, "alice", jobs_at_once(1), alice, w.now).has_value());
    ck_assert(w.market->users().empty() || !w.market->users().at(alice).record.limits.any());
    w.limit(alice, {Money::units(5), 1, 3});
    w.job(alice, 50);
    w.job(alice, 50);
    w.run_for(s(10));
    const auto read = wire::unpack<UserRecord>(wire::pack(w.stored_users.at(alice)));
    ck_assert(read.has_value());
    ck_assert(read->limits == (UserLimits{Money::units(5), 1, 3}));
    ck_assert_text(read->name, "alice");
    w.restart();
    w.connect("n1");
    w.run_for(s(10));
    ck_assert(w.market->users().at(alice).record.limits == read->limits);
    ck_assert_uint_eq(w.market->users().at(alice).claiming.size(), 1);
    ck_assert_uint_eq(w.market->users().at(alice).held, 1);
}
END_TEST

START_TEST(all_of_a_day_is_spent_to_the_micro_unit_and_no_more_and_the_next_day_begins_anew) {
    Limited w;
    w.run_until({day_ns - s(1'000).ns});
    w.spend_at_most(10);
    // 4 CPUs at 36: 0.04 a second
    const JobId a = w.job(alice, 50, 3), b = w.job(alice, 40), c = w.job(bob, 40);
    w.run_for(s(200));
    ck_assert_text(w.where(a), "n1");
    w.tell(w.jobs[a]);
    w.run_for(s(49));
    ck_assert_text(w.where(a), "n1");
    w.run_for(s(2));
    for (const JobId& id : {a, b}) {
        ck_assert_text(w.where(id), "frozen");
        ck_assert_text(w.comment(id),
                       "user alice has spent the 10 of this day (UTC); it goes on tomorrow, or "
                       "with a higher limit");
    }
    ck_assert_text(w.where(c), "n1");
    const Money spent = w.cost(a) + w.cost(b);
    ck_assert(spent <= Money::units(10) && spent > Money::units(10) - Money{3});
    const JobId late = w.job(alice, 60);
    w.run_for(s(10));
    ck_assert_text(w.where(late), "waiting");
    w.restart();
    w.connect("n1");
    w.run_for(s(100));
    ck_assert_text(w.where(a), "frozen");
    w.end(w.jobs[late]);
    w.run_until({day_ns + s(100).ns});
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.where(b), "n1");
    const double today = static_cast<double>((w.cost(a) + w.cost(b) - spent).micro) / 1e6;
    ck_assert_msg(today > 3.99 && today < 4.01, "%f since midnight", today);
    w.run_until({day_ns + s(1'000).ns});
    ck_assert_text(w.where(a), "frozen");
    ck_assert((w.cost(a) + w.cost(b) - spent) <= Money::units(10));
}
END_TEST

START_TEST(a_day_that_ends_while_jobs_run_is_charged_to_its_last_moment) {
    Limited w;
    w.run_until({day_ns - s(100).ns});
    w.spend_at_most(4);
    const JobId a = w.job(alice, 50);  // 0.01 a second
    w.run_until({day_ns + s(150).ns});
    ck_assert_text(w.where(a), "n1");  // 1 before midnight, 1.5 after it
    const User& user = w.market->users().at(alice);
    const double spent =
        static_cast<double>(
            (user.spent + w.cost(a) - w.market->find(a)->record.account.amount).micro) /
        1e6;
    ck_assert_msg(spent > 1.49 && spent < 1.51, "%f since midnight", spent);
    w.run_until({day_ns + s(500).ns});
    ck_assert_text(w.where(a), "frozen");
    ck_assert(w.cost(a) <= Money{5'000'000});
    ck_assert(w.cost(a) > Money{4'990'000});
}
END_TEST

START_TEST(a_higher_limit_wakes_who_has_spent_the_day_and_what_was_spent_before_counts) {
    Limited w;
    const JobId a = w.job(alice, 50);
    w.run_for(s(300));  // 3, and no limit yet
    w.spend_at_most(2);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "frozen");
    ck_assert(w.market->find(a)->record.account.amount <= Money{3'010'000});
    w.spend_at_most(5);
    w.run_for(s(100));
    ck_assert_text(w.where(a), "n1");
    w.run_for(s(200));
    ck_assert_text(w.where(a), "frozen");
    ck_assert(w.cost(a) <= Money::units(5) && w.cost(a) > Money::units(5) - Money{3});
    w.limit(alice, {});
    w.run_for(s(100));
    ck_assert_text(w.where(a), "n1");
    w.spend_at_most(0);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "frozen");
}
END_TEST

// The method: random prices, and jobs that come and go. After each step all homes together may let
// their jobs spend no more by themselves than is left of the day.
START_TEST(the_shares_of_a_day_that_homes_keep_to_are_never_more_than_is_left_of_it) {
    size_t shared = 0;
    for (uint64_t seed = 1; seed <= 30; ++seed) {
        Rng rng(seed);
        Limited w;
        w.add_node("n2", 90, 36, 8);
        w.add_node("n3", 80, 18, 2);
        w.run_for(s(4));
        w.spend_at_most(3);
        w.after_step = [&] {
            Money spent, may;
            for (const auto& [id, job] : w.jobs) {
                if (job.report.uid != alice || !w.market->find(id)) continue;
                spent += w.cost(id);
                if (job.report.phase != JobPhase::running || job.note.day_limit.micro == 0)
                    continue;
                may += std::max(Money{}, job.note.day_cost - w.cost(id));
                ++shared;
            }
            ck_assert_msg(spent + may <= Money::units(3) + Money{8},
                          "seed %lu: %ld spent, %ld more may be", seed, spent.micro, may.micro);
        };
        std::vector<JobId> mine;
        for (int i = 0; i < 60; ++i) {
            const std::string home = "n" + std::to_string(rng.between(1, 3));
            if (rng.chance(0.5))
                mine.push_back(w.submit(home, rng.between(40, 90), Nanos::never(), 1, 10, {},
                                        rng.chance(0.7) ? alice : bob));
            if (!mine.empty() && rng.chance(0.2)) {
                auto& job = w.jobs[mine[rng.below(mine.size())]];
                if (job.report.phase == JobPhase::running && !job.doing) w.end(job);
            }
            w.run_for(Nanos::from_ms(rng.between(1, 4'000)));
        }
    }
    ck_assert(shared > 10'000);
}
END_TEST

START_TEST(what_a_home_that_is_cut_off_may_spend_is_kept_for_it) {
    Limited w;
    w.add_node("n2", 90, 36, 8);
    w.run_for(s(4));
    w.spend_at_most(10);
    const JobId a = w.submit("n1", 50, Nanos::never(), 1, 10, {}, alice);
    const JobId b = w.submit("n2", 50, Nanos::never(), 1, 10, {}, alice);
    w.run_for(s(10));
    const auto rest = [&](const JobId& id) { return w.jobs[id].note.day_cost - w.cost(id); };
    ck_assert(rest(a) > Money{4'800'000} && rest(b) > Money{4'800'000} &&
              rest(a) + rest(b) < Money::units(10));
    w.disconnect("n2");
    const JobId c = w.submit("n1", 50, Nanos::never(), 1, 10, {}, alice);
    w.run_for(s(10));
    ck_assert(rest(a) > Money{2'200'000} && rest(a) < Money{2'500'000} &&
              rest(c) < Money{2'500'000});
    ck_assert(rest(b) > Money{4'600'000} && rest(a) + rest(b) + rest(c) < Money{9'800'000});
    w.limit(alice, {});
    w.run_for(s(1));
    ck_assert(w.jobs[a].note.day_limit.micro == 0 && w.jobs[b].note.day_limit.micro > 0);
    w.connect("n2");
    w.run_for(s(1));
    ck_assert(w.jobs[b].note.day_limit.micro == 0);
}
END_TEST

START_TEST(a_job_that_its_home_froze_at_its_share_is_not_thawed_for_a_moments_worth) {
    Limited w;
    w.spend_at_most(1);
    const JobId a = w.job(alice, 50);
    w.run_for(s(50));
    const Nanos left = span_for(w.jobs[a].note.day_cost - w.cost(a), w.jobs[a].note.price, 1);
    w.restart();  // it is silent from here on
    w.now += left;
    World::stop_clock(w.jobs[a], w.now);
    w.jobs[a].report.phase = JobPhase::frozen;
    w.connect("n1");
    w.run_for(s(10));
    ck_assert_text(w.where(a), "frozen");
    ck_assert(w.comment(a).find("has spent the 1 of this day") != std::string::npos);
    ck_assert(w.cost(a) <= Money::units(1) && w.cost(a) > Money{950'000});
}
END_TEST

START_TEST(a_clock_that_is_set_back_gives_no_second_day) {
    Limited w;
    w.calendar = {5 * day_ns};
    w.market->set_calendar(w.calendar);
    w.run_for(s(1));
    w.spend_at_most(1);
    const JobId a = w.job(alice, 50);
    w.run_for(s(300));
    ck_assert_text(w.where(a), "frozen");
    for (const int64_t day : {4, 2}) {
        w.calendar = {day * day_ns};
        w.market->set_calendar(w.calendar);
        w.run_for(s(300));
        ck_assert_text(w.where(a), "frozen");
        w.restart();
        w.connect("n1");
        w.run_for(s(300));
        ck_assert_text(w.where(a), "frozen");
        ck_assert(w.cost(a) <= Money::units(1));
    }
    w.calendar = {3 * day_ns};
    w.market->set_calendar(w.calendar);
    w.run_for(s(10));
    ck_assert_text(w.where(a), "n1");
}
END_TEST

START_TEST(a_user_with_hours_runs_in_them_alone_by_the_local_clock) {
    // 1970-01-01 was a Thursday; the market is an hour ahead of UTC.
    constexpr Nanos thursday{}, hour = s(3'600);
    Limited w;
    w.calendar = thursday;
    w.zone = hour;
    w.market->set_calendar(w.calendar, w.zone);
    UserLimits limits;
    limits.hours = "thu 8:00-9:30; fri 20:00-2:00";
    w.limit(alice, limits);
    const JobId a = w.job(alice, 50), b = w.job(bob, 40);
    const auto runs_at = [&](Nanos unix) {
        w.run_until(unix - w.calendar);
        ck_assert_text(w.where(b), "n1");
        if (w.where(a) == "n1") return true;
        ck_assert(!w.market->find(a)->record.order);
        ck_assert_text(w.comment(a),
                       "user alice may run jobs thu 8:00-9:30; fri 20:00-2:00 "
                       "alone, by the market's clock");
        return false;
    };
    ck_assert(!runs_at(hour));
    ck_assert(!runs_at(Nanos{7 * hour.ns} - s(1)));
    ck_assert(runs_at(Nanos{7 * hour.ns} + s(1)));
    const Nanos half{hour.ns / 2};
    ck_assert(runs_at(Nanos{8 * hour.ns} + half - s(1)));
    ck_assert(!runs_at(Nanos{8 * hour.ns} + half + s(1)));
    // The clock is set back, and then the zone is another one for a moment.
    w.calendar = w.calendar - s(60);
    w.market->set_calendar(w.calendar, w.zone);
    ck_assert(runs_at(Nanos{8 * hour.ns} + half - s(50)));
    w.market->set_calendar(w.calendar, Nanos{3 * hour.ns});
    ck_assert(!runs_at(Nanos{8 * hour.ns} + half - s(45)));
    w.market->set_calendar(w.calendar, w.zone);
    ck_assert(runs_at(Nanos{8 * hour.ns} + half - s(40)));
    // Summer begins: the clock goes forward.
    w.zone = Nanos{2 * hour.ns};
    w.market->set_calendar(w.calendar, w.zone);
    ck_assert(!runs_at(Nanos{42 * hour.ns} - s(1)));
    ck_assert(runs_at(Nanos{42 * hour.ns} + s(1)));
    w.restart();
    w.market->set_calendar(w.calendar, w.zone);
    w.connect("n1");
    ck_assert(runs_at(Nanos{48 * hour.ns} - s(1)));
    ck_assert(!runs_at(Nanos{48 * hour.ns} + s(1)));
    limits.hours.clear();
    w.limit(alice, limits);
    ck_assert(runs_at(Nanos{48 * hour.ns} + s(10)));
}
END_TEST

UNIT_SUITE_LONG(market_limits, 120, a_user_with_hours_runs_in_them_alone_by_the_local_clock,
                a_user_runs_no_more_jobs_at_once_than_its_limit_the_most_valuable_first,
                a_user_uses_no_more_cpus_at_once_than_its_limit,
                a_job_that_nobody_can_run_keeps_no_lesser_one_of_its_user_waiting,
                who_is_held_bids_against_nobody,
                a_job_stays_its_users_whatever_a_home_that_forgot_it_says,
                who_runs_out_of_reach_counts_and_holds_no_place_for_another,
                only_root_sets_limits_and_they_outlive_the_market,
                all_of_a_day_is_spent_to_the_micro_unit_and_no_more_and_the_next_day_begins_anew,
                a_day_that_ends_while_jobs_run_is_charged_to_its_last_moment,
                a_higher_limit_wakes_who_has_spent_the_day_and_what_was_spent_before_counts,
                the_shares_of_a_day_that_homes_keep_to_are_never_more_than_is_left_of_it,
                what_a_home_that_is_cut_off_may_spend_is_kept_for_it,
                a_job_that_its_home_froze_at_its_share_is_not_thawed_for_a_moments_worth,
                a_clock_that_is_set_back_gives_no_second_day);
