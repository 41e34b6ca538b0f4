// SPDX-License-Identifier: GPL-2.0-or-later
// Orders by hand, and what is said of them: what became of one, why it failed, and what outlives
// the market's process or a node.
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
constexpr uint32_t root = 0;

struct Two : World {
    JobId job;
    Two() {
        add_node("n1", 100, 1);
        add_node("n2", 90, 1);
        run_for(s(4));
        job = submit("n1", 40);
        run_for(s(2));
    }
    uint64_t failures() const { return market->find(job)->failed->times; }
    std::string outcome(const NodeName& node, bool freezes, uint64_t before) const {
        const auto o = market->outcome(job, node, freezes, before);
        return (o.done ? "done: " : o.over ? "over: " : "waits: ") + o.text;
    }
};

}  // namespace

START_TEST(what_became_of_an_order_is_told_when_it_is_done_and_when_it_cannot_be) {
    Two w;
    w.transit = s(1);
    ck_assert(w.market->move(w.job, "n2", true, root).has_value());
    w.decide();
    ck_assert(w.outcome("n2", false, 0).starts_with("waits: "));
    w.run_for(s(2));
    ck_assert_text(w.outcome("n2", false, 0), "done: job n1.1 runs on n2");
    ck_assert(w.market->freeze(w.job, true, root).has_value());
    w.decide();
    ck_assert(w.outcome("", true, 0).starts_with("waits: "));
    w.run_for(s(2));
    ck_assert_text(w.outcome("", true, 0), "done: job n1.1 is frozen on n2");
    JobReport& stands = w.jobs.at(w.job).report;
    const JobReport before_it = stands;
    stands.in_place = true;
    stands.cannot_move = souk::Cause(CauseCode::dump_failed, "no room for its image");
    w.tell(w.jobs.at(w.job));
    ck_assert_text(w.outcome("", true, 0),
                   "over: job n1.1 is stopped in memory on n2, and not on disk: no room for its "
                   "image");
    stands = before_it;
    w.tell(w.jobs.at(w.job));

    w.refuse = [](const Order& o) {
        return std::optional(OrderFailed{o.id, o.seq, o.node, "the image is damaged"});
    };
    const uint64_t before = w.failures();
    ck_assert(w.market->thaw(w.job, "n1", true, root).has_value());
    w.run_for(Nanos::from_ms(1'500));  // and not tried again yet
    ck_assert_text(w.outcome("n1", false, before),
                   "over: the thaw on n1 failed: the image is damaged");
    ck_assert_text(w.comment(w.job),
                   "held for n1 by the operator, which could not take it: the image is damaged; "
                   "tried again later");
    w.refuse = nullptr;
    w.run_for(s(10));
    ck_assert_text(w.outcome("n1", false, w.failures()), "done: job n1.1 runs on n1");
    ck_assert_text(w.market->find(w.job)->failed->last, "");

    // A wish of which nothing can come, and one that another has replaced.
    ck_assert(w.market->freeze(w.job, true, root).has_value());
    w.run_for(s(2));
    w.submit("n1", 90), w.submit("n1", 90);
    w.run_for(s(4));
    ck_assert(w.market->thaw(w.job, "", false, root).has_value());
    w.decide();
    ck_assert(
        w.outcome("", false, w.failures()).starts_with("over: job n1.1 is not thawed: outbid"));
    ck_assert(w.market->move(w.job, "n2", true, root).has_value());
    ck_assert(w.market->freeze(w.job, true, root).has_value());
    w.decide();
    ck_assert(
        w.outcome("n2", false, w.failures()).starts_with("over: another order came in between: "));
    ck_assert(w.market->cancel(w.job, root).has_value());
    w.run_for(s(2));
    ck_assert_text(w.outcome("", true, 0), "over: job n1.1 has ended: cancelled");
}
END_TEST

START_TEST(a_freeze_that_failed_says_why_and_not_that_another_order_came) {
    Two w;
    w.refuse = [](const Order& o) {
        return std::optional(OrderFailed{o.id, o.seq, "n1", "no space left on device"});
    };
    ck_assert(w.market->freeze(w.job, false, root).has_value());
    w.run_for(Nanos::from_ms(1'500));
    // It had failed before anybody was told how often.
    const std::string said = w.outcome("", true, w.failures());
    ck_assert_msg(
        said.starts_with("over: the freeze ") && said.find("no space left on device") != said.npos,
        "%s", said.c_str());
}
END_TEST

START_TEST(a_move_that_failed_says_why_where_the_job_stays) {
    Two w;
    w.refuse = [](const Order& o) {
        return std::optional(OrderFailed{o.id, o.seq, "n1", "io_uring cannot be dumped"});
    };
    ck_assert(w.market->move(w.job, "n2", false, root).has_value());
    w.run_for(s(1));
    ck_assert_text(w.where(w.job), "n1");
    ck_assert_text(w.market->find(w.job)->failed->last,
                   "the move to n2 failed: io_uring cannot be dumped");
    w.refuse = nullptr;
    w.run_for(s(30));
    ck_assert_text(w.comment(w.job), "the move to n2 failed: io_uring cannot be dumped");
}
END_TEST

START_TEST(what_is_said_of_a_running_job_outlives_the_market_s_process) {
    Two w;
    const std::string said = w.comment(w.job);
    ck_assert(!said.empty());
    w.restart();
    w.connect("n1");
    w.connect("n2");
    w.run_for(s(10));
    ck_assert_text(w.comment(w.job), said);
}
END_TEST

START_TEST(a_job_held_on_a_node_that_is_lost_is_the_markets_again) {
    Two w;
    ck_assert(w.market->move(w.job, "n2", true, root).has_value());
    w.run_for(s(2));
    ck_assert_text(w.where(w.job), "n2");
    w.disconnect("n2");
    w.run_for(s(100));
    ck_assert(w.market->write_off("n2", root).has_value());
    World::HomeJob& job = w.jobs[w.job];  // its home goes back to the checkpoint that lies there
    World::stop_clock(job, w.now);
    job.report.phase = JobPhase::frozen;
    job.report.where = "n1";
    job.report.epoch = job.report.epoch.next();
    w.tell(job);
    w.run_for(s(5));
    ck_assert_text(w.where(w.job), "n1");
    ck_assert(w.market->find(w.job)->record.hold == Hold::none);
}
END_TEST

START_TEST(a_size_that_no_machine_has_never_had_a_place) {
    Two w;
    w.run_for(s(600));
    QuoteRequest q;
    q.home = "n1";
    q.uid = 1000;
    q.terms.max_price = Money::units(50);
    q.terms.runtime = s(60);
    ck_assert(w.market->quote(q, w.now)->day.place_share > 0.5);
    q.terms.cpus = 64;
    const auto quote = w.market->quote(q, w.now);
    ck_assert(!quote->runs && quote->day.minutes > 0 && quote->day.place_share == 0 &&
              !quote->day.cost);
    q.terms.cpus = 1;
    q.terms.memory_mb = 1'000'000;
    ck_assert(w.market->quote(q, w.now)->day.place_share == 0);
}
END_TEST

UNIT_SUITE(market_orders, what_became_of_an_order_is_told_when_it_is_done_and_when_it_cannot_be,
           a_freeze_that_failed_says_why_and_not_that_another_order_came,
           a_move_that_failed_says_why_where_the_job_stays,
           what_is_said_of_a_running_job_outlives_the_market_s_process,
           a_job_held_on_a_node_that_is_lost_is_the_markets_again,
           a_size_that_no_machine_has_never_had_a_place);
