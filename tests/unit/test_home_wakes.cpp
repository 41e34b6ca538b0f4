// SPDX-License-Identifier: GPL-2.0-or-later
// How many frozen jobs of a home wake at one time: HomeWakes alone, and what Home makes of it.
#include "agentd/core/home_wakes.hpp"
#include "tests/unit/home_bench.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

constexpr int64_t mb = 1 << 20;

// Job n1.SEQ, frozen on that node.
HomeJob frozen_job(uint64_t seq, const char* node = "n1", int64_t bytes = 100 * mb) {
    HomeJob job = HomeRig::waiting();
    job.id.seq = seq;
    job.phase = JobPhase::frozen;
    job.at = {node, std::string(node) + ":1"};
    job.epoch = {1};
    job.stats.image_bytes = bytes;
    return job;
}

Order to_run(const HomeJob& job, uint64_t number) {
    Order o = HomeRig::to("n3", number);
    o.id = job.id;
    return o;
}

// Its order has been taken: it wakes until that ends.
void wakes(HomeWakes& w, HomeJob& job) {
    job.phase = JobPhase::thawing;
    job.step = MoveStep::prepare;
    w.look_at(job);
}
void has_woken(HomeWakes& w, HomeJob& job) {
    job.step = MoveStep::release;
    w.look_at(job);
}

// The number of the job whose turn has come; 0: nobody's.
uint64_t turn_of(HomeWakes& w) {
    const auto order = w.next();
    return order ? order->id.seq : 0;
}

}  // namespace

START_TEST(without_a_rule_every_job_wakes_when_the_market_says_so) {
    HomeWakes w("n1", WakeRule::all);
    w.free_memory(0);
    for (uint64_t seq = 1; seq <= 9; ++seq) {
        HomeJob job = frozen_job(seq);
        ck_assert(!w.keeps(job, to_run(job, seq), Nanos{}));
        wakes(w, job);
    }
    ck_assert(w.due() == Nanos::never());
}
END_TEST

START_TEST(one_at_a_time_means_the_next_when_the_one_before_is_held_where_it_is_to_run) {
    HomeWakes w("n1", WakeRule::one);
    HomeJob a = frozen_job(1, "n2"), b = frozen_job(2, "n1"), c = frozen_job(3, "n4");
    ck_assert(!w.keeps(a, to_run(a, 1), Nanos{}));
    wakes(w, a);
    ck_assert(w.keeps(b, to_run(b, 2), Nanos{}) && w.keeps(c, to_run(c, 3), Nanos{}));
    ck_assert_uint_eq(turn_of(w), 0);
    a.step = MoveStep::transfer;
    w.look_at(a);
    ck_assert_uint_eq(turn_of(w), 0);
    has_woken(w, a);
    ck_assert_uint_eq(turn_of(w), 2);
    wakes(w, b);
    ck_assert_uint_eq(turn_of(w), 0);
    b.phase = JobPhase::frozen;  // given up
    b.step = MoveStep::none;
    w.look_at(b);
    ck_assert_uint_eq(turn_of(w), 3);
}
END_TEST

START_TEST(as_many_as_fit_the_free_memory_wake_together_and_the_first_comes_first) {
    HomeWakes w("n1", WakeRule::fit);
    w.free_memory(250 * mb);
    HomeJob a = frozen_job(1), b = frozen_job(2), c = frozen_job(3),
            small = frozen_job(4, "n1", mb);
    for (HomeJob* job : {&a, &b}) {
        ck_assert(!w.keeps(*job, to_run(*job, job->id.seq), Nanos{}));
        wakes(w, *job);
    }
    ck_assert(w.keeps(c, to_run(c, 3), Nanos{}));
    ck_assert_msg(w.keeps(small, to_run(small, 4), Nanos{}), "it does not go before its turn");
    ck_assert_uint_eq(turn_of(w), 0);
    w.free_memory(300 * mb);
    ck_assert_uint_eq(turn_of(w), 3);
    wakes(w, c);
    ck_assert_uint_eq(turn_of(w), 0);
    has_woken(w, a);
    ck_assert_uint_eq(turn_of(w), 4);
}
END_TEST

START_TEST(a_job_that_is_larger_than_the_free_memory_wakes_alone) {
    HomeWakes w("n1", WakeRule::fit);
    w.free_memory(10 * mb);
    HomeJob a = frozen_job(1), b = frozen_job(2);
    ck_assert(!w.keeps(a, to_run(a, 1), Nanos{}));
    wakes(w, a);
    ck_assert(w.keeps(b, to_run(b, 2), Nanos{}));
    ck_assert_uint_eq(turn_of(w), 0);
    has_woken(w, a);
    ck_assert_uint_eq(turn_of(w), 2);
}
END_TEST

START_TEST(images_on_other_nodes_take_no_memory_here_and_unknown_memory_holds_nobody_back) {
    HomeWakes w("n1", WakeRule::fit);
    HomeJob a = frozen_job(1), b = frozen_job(2), far = frozen_job(3, "n2");
    for (HomeJob* job : {&a, &b}) {
        ck_assert(!w.keeps(*job, to_run(*job, 1), Nanos{}));
        wakes(w, *job);
    }
    w.free_memory(0);
    ck_assert(!w.keeps(far, to_run(far, 3), Nanos{}));
    wakes(w, far);
    HomeJob c = frozen_job(4);
    ck_assert(w.keeps(c, to_run(c, 4), Nanos{}));
}
END_TEST

START_TEST(the_image_of_a_job_that_went_back_is_its_checkpoint) {
    HomeWakes w("n1", WakeRule::fit);
    w.free_memory(50 * mb);
    HomeJob a = frozen_job(1, "n1", 0), b = frozen_job(2, "n1", mb);
    a.checkpoint.at = a.at;
    a.checkpoint.epoch = a.epoch;
    a.checkpoint.bytes = 80 * mb;
    ck_assert(!w.keeps(a, to_run(a, 1), Nanos{}));
    wakes(w, a);
    ck_assert(w.keeps(b, to_run(b, 2), Nanos{}));
}
END_TEST

START_TEST(a_newer_order_takes_the_place_of_the_one_that_waits) {
    HomeWakes w("n1", WakeRule::one);
    HomeJob a = frozen_job(1), b = frozen_job(2), c = frozen_job(3);
    wakes(w, a);
    ck_assert(w.keeps(b, to_run(b, 1), Nanos{}) && w.keeps(c, to_run(c, 2), Nanos{}));
    ck_assert(w.keeps(b, to_run(b, 3), Nanos{}));
    ck_assert_uint_eq(w.kept(2)->seq, 3);
    has_woken(w, a);
    ck_assert_uint_eq(turn_of(w), 2);
    ck_assert_uint_eq(turn_of(w), 3);
    ck_assert_uint_eq(turn_of(w), 0);
}
END_TEST

START_TEST(an_order_to_stay_or_the_end_of_a_job_ends_its_waiting) {
    HomeWakes w("n1", WakeRule::one);
    HomeJob a = frozen_job(1), b = frozen_job(2), c = frozen_job(3), d = frozen_job(4);
    wakes(w, a);
    for (HomeJob* job : {&b, &c, &d}) ck_assert(w.keeps(*job, to_run(*job, 1), Nanos{}));
    Order stay = to_run(b, 2);
    stay.kind = Order::Kind::suspend;
    ck_assert(!w.keeps(b, stay, Nanos{}) && !w.kept(2));
    c.phase = JobPhase::finished;
    w.look_at(c);
    w.forget(4);
    w.forget(1);
    ck_assert_uint_eq(turn_of(w), 0);
    ck_assert(w.due() == Nanos::never());
}
END_TEST

START_TEST(another_rule_counts_at_once) {
    HomeWakes w("n1", WakeRule::one);
    HomeJob a = frozen_job(1), b = frozen_job(2), c = frozen_job(3);
    wakes(w, a);
    ck_assert(w.keeps(b, to_run(b, 1), Nanos{}) && w.keeps(c, to_run(c, 1), Nanos{}));
    w.configured(WakeRule::all);
    ck_assert_uint_eq(turn_of(w), 2);
    ck_assert_uint_eq(turn_of(w), 3);
}
END_TEST

START_TEST(nobody_waits_for_his_turn_without_an_end) {
    HomeWakes w("n1", WakeRule::one);
    HomeJob a = frozen_job(1), b = frozen_job(2);
    wakes(w, a);
    ck_assert(w.keeps(b, to_run(b, 1), Nanos::from_s(10)));
    ck_assert(w.keeps(b, to_run(b, 2), Nanos::from_s(200)));
    ck_assert(w.due() == Nanos::from_s(310));
    ck_assert(!w.overdue(Nanos::from_s(309)));
    const auto late = w.overdue(Nanos::from_s(310));
    ck_assert(late && late->seq == 2 && w.due() == Nanos::never());
}
END_TEST

namespace {

// Home n1, which wakes one at a time. Its jobs n1.1 and n1.2 lie frozen on n2.
struct Waking {
    Home h{"n1", limits()};
    home::Outputs out;
    Nanos now;
    uint64_t number = 0;

    static Home::Limits limits() {
        Home::Limits l;
        l.wake = WakeRule::one;
        return l;
    }
    Waking() {
        for (uint64_t seq = 1; seq <= 2; ++seq) {
            Submission s;
            s.spec.launch.argv = {"/bin/job"};
            s.terms.max_price = Money::units(1);
            ck_assert(h.submit(s, now, out).has_value());
            order(seq, Order::Kind::run, "n2");
            event(seq, "n2", 1, GuestState::running);
            order(seq, Order::Kind::suspend);
            event(seq, "n2", 1, GuestState::frozen);
        }
    }
    void order(uint64_t seq, Order::Kind kind, const char* node = "") {
        Order o = HomeRig::to(node, ++number);
        o.id.seq = seq;
        o.kind = kind;
        out.clear();
        h.order(o, now, out);
        (void)h.tick(now, out);
    }
    void event(uint64_t seq, const char* node, uint64_t epoch, GuestState state) {
        GuestEvent e = HomeRig::event(state, epoch);
        e.id.seq = seq;
        out.clear();
        h.guest_event(node, e, now, out);
        (void)h.tick(now, out);
    }
    const HomeJob& job(uint64_t seq) const { return *h.find({"n1", seq}); }
    std::string text() const { return outputs_text(out); }
};

}  // namespace

START_TEST(a_home_takes_an_order_to_wake_when_its_turn_comes) {
    Waking w;
    w.order(1, Order::Kind::run, "n3");
    ck_assert_text(w.text(), "P prepare n3.2");
    w.order(2, Order::Kind::run, "n3");
    ck_assert_text(w.text(), "");
    ck_assert_msg(w.job(2).order_seq < w.number, "the market does not take it for lost");
    w.event(1, "n3", 2, GuestState::prepared);
    ck_assert_text(w.text(), "ship n2.1");
    w.event(1, "n3", 2, GuestState::held);
    ck_assert_text(w.text(), "P release n3.2 P prepare n3.2");
    ck_assert(w.job(2).phase == JobPhase::thawing && w.job(2).order_seq == w.number);
}
END_TEST

START_TEST(an_order_that_waited_for_the_end_of_a_freeze_waits_for_its_turn_too) {
    Waking w;
    w.order(2, Order::Kind::run, "n2");
    w.event(2, "n2", 2, GuestState::prepared);
    w.event(2, "n2", 2, GuestState::held);
    w.event(2, "n2", 2, GuestState::running);
    w.order(2, Order::Kind::suspend);
    w.order(1, Order::Kind::run, "n3");
    w.order(2, Order::Kind::run, "n3");  // it freezes
    w.event(2, "n2", 2, GuestState::frozen);
    ck_assert(w.job(2).phase == JobPhase::frozen);
    const auto* report = std::get_if<home::ToMarketMsg>(&w.out.back());
    ck_assert(report && std::get<JobReport>(report->message).order_seq < w.number);
    w.event(1, "n3", 2, GuestState::failed);
    ck_assert(w.job(1).phase == JobPhase::frozen && w.job(2).phase == JobPhase::thawing);
}
END_TEST

START_TEST(a_job_whose_turn_does_not_come_goes_back_to_the_market) {
    Waking w;
    w.order(1, Order::Kind::run, "n3");
    w.event(1, "n3", 2, GuestState::prepared);
    w.order(2, Order::Kind::run, "n3");
    w.out.clear();
    w.now = Nanos::from_s(300);
    const Nanos next = w.h.tick(w.now, w.out);
    ck_assert_text(w.text(), "!n2");
    ck_assert(w.job(2).phase == JobPhase::frozen && w.job(2).order_seq == w.number);
    ck_assert(next > w.now);
}
END_TEST

START_TEST(a_market_that_is_back_orders_anew) {
    Waking w;
    w.order(1, Order::Kind::run, "n3");
    w.order(2, Order::Kind::run, "n3");
    w.h.market_up(w.now, w.out);
    w.event(1, "n3", 2, GuestState::failed);
    ck_assert(w.job(2).phase == JobPhase::frozen);
}
END_TEST

START_TEST(what_may_change_while_a_home_runs_counts_from_then_on) {
    Waking w;
    w.order(1, Order::Kind::run, "n3");
    w.order(2, Order::Kind::run, "n3");
    Home::Limits other;
    other.memory_default_mb = 77;
    w.h.configured(other);
    w.out.clear();
    (void)w.h.tick(w.now, w.out);
    ck_assert_text(w.text(), "P prepare n3.2");
    Submission s;
    s.spec.launch.argv = {"/bin/job"};
    s.terms.max_price = Money::units(1);
    const auto id = w.h.submit(s, w.now, w.out);
    ck_assert(id && w.h.find(*id)->terms.memory_mb == 77);
}
END_TEST

UNIT_SUITE(home_wakes, without_a_rule_every_job_wakes_when_the_market_says_so,
           one_at_a_time_means_the_next_when_the_one_before_is_held_where_it_is_to_run,
           as_many_as_fit_the_free_memory_wake_together_and_the_first_comes_first,
           a_job_that_is_larger_than_the_free_memory_wakes_alone,
           images_on_other_nodes_take_no_memory_here_and_unknown_memory_holds_nobody_back,
           the_image_of_a_job_that_went_back_is_its_checkpoint,
           a_newer_order_takes_the_place_of_the_one_that_waits,
           an_order_to_stay_or_the_end_of_a_job_ends_its_waiting, another_rule_counts_at_once,
           nobody_waits_for_his_turn_without_an_end,
           a_home_takes_an_order_to_wake_when_its_turn_comes,
           an_order_that_waited_for_the_end_of_a_freeze_waits_for_its_turn_too,
           a_job_whose_turn_does_not_come_goes_back_to_the_market,
           a_market_that_is_back_orders_anew,
           what_may_change_while_a_home_runs_counts_from_then_on);
