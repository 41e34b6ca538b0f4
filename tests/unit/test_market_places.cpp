// SPDX-License-Identifier: GPL-2.0-or-later
// Places and Quoter by themselves (market_hall.hpp): where a job may run and why not, and what jobs
// that are submitted now would get.
#include <algorithm>

#include "market/core/quoter.hpp"
#include "market/core/wide_changes.hpp"
#include "tests/unit/market_hall.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

std::string barred(const Hall& hall, const Job& job) {
    std::string all;
    for (const ProviderKey key : hall.places.barred(job))
        all += (all.empty() ? "" : " ") + hall.book.node_of(key)->id();
    return all;
}

}  // namespace

START_TEST(a_node_takes_a_job_when_it_is_there_offers_itself_and_can) {
    Hall hall(2);
    Node& node = hall.book.node("n1");
    const Job& job = hall.job(1, 7, 10);
    const auto why = [&] { return hall.places.why_not_at(job, "n1"); };
    ck_assert(hall.places.may_run_at(job, node) && hall.places.may_run_at(job, "n1"));
    ck_assert_text(why(), "");
    ck_assert(!hall.places.may_run_at(job, "n9"));
    ck_assert_text(hall.places.why_not_at(job, "n9"), "is not connected");
    node.record.report.cannot = "disk full";
    ck_assert_text(why(), "takes nobody new (disk full)");
    ck_assert(!hall.places.may_run_at(job, node) && Places::keeps_guests(node));
    node.record.report.on_market = false;  // who is there is wanted gone
    ck_assert_text(why(), "is not on the market");
    ck_assert(!Places::usable(node) && !Places::keeps_guests(node));
    node.connected = false;
    ck_assert_text(why(), "is not connected");
    ck_assert(Places::keeps_guests(node));
}
END_TEST

START_TEST(what_nodes_the_solver_may_not_take_follows_from_failures_programs_and_machines) {
    Hall hall(3);
    Job& job = hall.job(1, 7, 10);
    ck_assert_text(barred(hall, job), "");
    job.failed.edit().bars["n2"].again("no", s(1), s(1), s(8));
    ck_assert_text(barred(hall, job), "n2");
    ck_assert_text(hall.places.why_not_at(job, "n2"), "could not take it: no; tried again later");
    job.record.report.lacking = {"n2", "n3", "n9"};
    ck_assert_text(barred(hall, job), "n2 n3");
    ck_assert(!hall.places.may_run_at(job, "n3"));
    // It needs its program no more where it stands in memory, and goes on there alone.
    job.record.report.where = "n3";
    job.record.report.phase = JobPhase::frozen;
    ck_assert(!hall.places.may_run_at(job, "n3"));  // its image has it not
    job.record.report.in_place = true;
    ck_assert(hall.places.may_run_at(job, "n3") && !hall.places.may_run_at(job, "n2"));
    job.record.report.in_place = false;
    job.record.report.phase = JobPhase::waiting;
    job.record.report.where.clear();
    job.failed.edit().bars["n2"].active = false;
    job.record.report.lacking.clear();
    // A job that has run on one kind of machine may use all that this machine has. So it goes on
    // only where all of that is there.
    for (const auto& [name, cpu] : {std::pair{"n1", "avx fpu"}, {"n2", "fpu"}, {"n3", "avx fpu"}}) {
        Node& node = hall.book.node(name);
        node.record.report.machine = {"x86_64", "6.1", "4.2", 4096, cpu};
        hall.places.take_machine(node);
    }
    job.record.report.where = "n1";
    job.record.report.terms.max_price = Money::units(10);
    ck_assert_text(barred(hall, job), "n2");
    ck_assert(hall.places.why_not_at(job, "n2").starts_with("cannot take it ("));
    ck_assert(!hall.places.destination(job, "n2") && hall.places.destination(job, "n3"));
    job.record.report.where = "n2";
    ck_assert_text(barred(hall, job), "");
    // A job that cannot be dumped goes nowhere.
    job.record.report.phase = JobPhase::running;
    job.record.report.cannot_move = "it uses a device";
    ck_assert(Places::is_rooted(job));
    ck_assert_text(barred(hall, job), "n1 n3");
    hall.places.note_rooted(job);
    ck_assert(hall.places.rooted().contains(job.id()));
    job.record.report.phase = JobPhase::frozen;
    hall.places.note_rooted(job);
    ck_assert(hall.places.rooted().empty());
    job.record.report.in_place = true;
    ck_assert(Places::is_rooted(job));
}
END_TEST

START_TEST(a_node_of_another_kind_is_told_from_one_that_takes_the_same) {
    Hall hall(2);
    Node &one = hall.book.node("n1"), &two = hall.book.node("n2");
    one.record.report.machine = two.record.report.machine = {"x86_64", "6.1", "4.2", 4096, "fpu"};
    hall.places.take_machine(one);
    hall.places.take_machine(two);
    ck_assert(!hall.places.take_machine(two));
    two.record.report.machine.architecture = "aarch64";
    ck_assert(hall.places.take_machine(two));
    ck_assert(!hall.places.take_machine(two));
    hall.places.forget_machine(two);
    ck_assert_int_eq(two.machine, 0);
}
END_TEST

START_TEST(changes_that_concern_all_jobs_are_looked_for_once_a_second) {
    Hall hall(1);
    Notes notes;
    WorkList work(notes);
    WideChanges wide(hall.book, hall.places, work);
    Job &plain = hall.job(1, 1, 10), &named = hall.job(2, 1, 10);
    named.record.report.terms.resources = {{"gpu", 1}};
    const auto s = Nanos::from_s;
    ck_assert(wide.next() == Nanos::never());
    wide.look(s(1));
    ck_assert(!work.is_due());
    wide.resources();
    wide.look(s(2));
    ck_assert(work.is_due());
    ck_assert(work.take_jobs() == std::vector<Job*>{&named});
    work.taken_up();
    for (int i = 0; i < 100; ++i) {
        wide.resources();
        wide.look(s(2));
    }
    ck_assert(!work.is_due() && wide.next() == s(3));
    plain.record.report.where = "n1";
    Node& node = hall.book.node("n1");
    const auto is_now = [&](const char* architecture, Nanos now) {
        node.record.report.machine = {architecture, "6.1", "4.2", 4096, "fpu"};
        wide.machine(node, now);
    };
    is_now("x86_64", s(3));  // the first kind takes all, as an unknown one does
    wide.look(s(3));
    ck_assert_uint_eq(work.take_jobs().size(), 1);
    ck_assert(wide.next() == Nanos::never());
    // A node that is another machine each time is believed once in 10 s, and its last word counts.
    is_now("aarch64", s(4));
    wide.look(s(4));
    ck_assert_uint_eq(work.take_jobs().size(), 1);
    const int kind = node.machine;
    for (const char* each : {"riscv64", "s390x", "x86_64"}) is_now(each, s(5));
    ck_assert(wide.next() == s(14) && node.machine == kind);
    wide.look(s(14));
    ck_assert(node.machine != kind && hall.places.is_known_machine(node));
    ck_assert_uint_eq(work.take_jobs().size(), 1);
    ck_assert(wide.next() == Nanos::never());
    named.record.report.phase = JobPhase::finished;
    wide.resources();
    wide.look(s(30));
    ck_assert(work.take_jobs().empty());
}
END_TEST

START_TEST(room_is_what_is_left_of_cpus_and_of_memory_and_is_never_less_than_what_is_used) {
    Hall hall(1);
    Node& node = hall.book.node("n1");
    Job& job = hall.job(1, 7, 10, 2);
    job.record.report.terms.memory_mb = 400;
    ck_assert(hall.places.fits(job, node) && hall.places.fits(job, node, 1));
    ck_assert(!hall.places.fits(job, node, 2));
    node.used_cpus = 3;
    ck_assert(!hall.places.fits(job, node));
    node.used_cpus = 2;
    node.used_mb = 601;
    ck_assert(!hall.places.fits(job, node));
    node.used_mb = 600;
    ck_assert(hall.places.fits(job, node));
    node.room_mb = 999;  // the owner's own programs
    ck_assert(!hall.places.fits(job, node));
    job.record.report.phase = JobPhase::frozen;  // stopped there, with its memory
    job.record.report.in_place = true;
    job.record.report.where = "n1";
    ck_assert(hall.places.fits(job, node));
    node.room_mb = 100;
    ck_assert_int_eq(Places::memory_of(node), 600);
    node.record.report.memory_mb = 500;
    ck_assert_int_eq(Places::memory_of(node), 500);
}
END_TEST

START_TEST(why_no_node_can_hold_a_job_is_said_by_what_is_missing) {
    Hall hall(2);
    Job& job = hall.job(1, 7, 10);
    JobTerms& t = job.record.report.terms;
    t.max_price = Money::units(20);
    const auto why = [&] { return hall.places.why_no_provider(job).text(); };
    ck_assert_text(why(), "");
    t.cpus = 5;
    ck_assert_text(why(), "needs 5 CPUs; no provider has more than 4");
    t.cpus = 1;
    t.memory_mb = 2'000;
    ck_assert_text(why(), "needs 2000 MB; no provider offers more than 1000");
    hall.book.node("n2").record.report.cpus = 1;
    hall.book.node("n2").record.report.memory_mb = 4'000;
    ck_assert(!hall.places.supply_is_right());
    hall.places.changed();
    ck_assert_text(why(), "");
    t.cpus = 2;
    ck_assert_text(why(), "no provider has both 2 CPUs and 2000 MB");
    t = {};
    t.cpus = 1;
    t.max_price = Money::units(20);
    for (auto& [name, node] : hall.book.nodes()) node.record.report.reserve = Money::units(15);
    hall.places.changed();
    ck_assert_text(why(),
                   "its bid of now, 10 is below every reservation price; 15 is "
                   "the least");
    ck_assert(hall.places.supply_is_right());
    for (auto& [name, node] : hall.book.nodes()) node.connected = false;
    hall.places.changed();
    ck_assert_text(why(), "no provider is on the market");
}
END_TEST

START_TEST(a_job_whose_program_no_node_has_is_given_up_when_all_have_tried) {
    Hall hall(2);
    Job& job = hall.job(1, 7, 10);
    job.record.report.phase = JobPhase::waiting;
    const auto given_up = [&](Nanos now) { return hall.places.no_node_is_left(job, now); };
    ck_assert(!given_up(s(9'999)));
    job.record.report.lacking = {"n1"};
    ck_assert(!given_up(s(9'999)));
    Node& away = hall.book.node("n2");
    away.connected = false;
    away.lost_at = s(100);
    ck_assert(!given_up(s(399)) && given_up(s(400)));  // it may just be started again
    hall.places.write_off("n2");
    ck_assert(given_up(s(101)));
    hall.places.came_back("n2");
    ck_assert(!given_up(s(101)) && hall.places.written_off().empty());
    job.record.report.lacking = {"n1", "n2"};
    ck_assert(given_up(s(101)));
    job.record.report.phase = JobPhase::running;
    ck_assert(!given_up(s(101)));
}
END_TEST

START_TEST(an_operators_destination_must_hold_the_job_and_cost_no_more_than_it_pays) {
    Hall hall(1);
    Job& job = hall.job(1, 7, 10, 2);
    JobTerms& t = job.record.report.terms;
    t.max_price = Money::units(10);
    t.memory_mb = 500;
    ProviderReport& r = hall.book.node("n1").record.report;
    const auto why = [&](const char* name) {
        const auto at = hall.places.destination(job, name);
        return at ? "" : at.error().message;
    };
    ck_assert_text(why("n1"), "");
    ck_assert_text(why("n9"), "no such node: n9");
    r.reserve = Money::units(11);
    ck_assert_text(why("n1"), "node n1 asks 11; job n1.1 pays at most 10");
    r.memory_mb = 499;
    ck_assert_text(why("n1"), "node n1 offers 499 MB; job n1.1 needs 500");
    r.cpus = 1;
    ck_assert_text(why("n1"), "node n1 has 1 CPUs; job n1.1 needs 2");
    r.cannot = "disk full";
    ck_assert_text(why("n1"), "node n1 cannot take a job: disk full");
}
END_TEST

// -------------------------------------------------------------------------------------------------
// Quoter

namespace {

struct Desk {
    Hall hall;
    PriceHistory prices;
    bool settling = false;
    explicit Desk(int machines) : hall(machines) {}
    QuoteRequest request(int64_t bid, int32_t jobs = 1) const {
        QuoteRequest q;
        q.home = "n1";
        q.uid = 7;
        q.terms.max_price = Money::units(bid);
        q.terms.cpus = 1;
        q.jobs = jobs;
        return q;
    }
    Result<Quote> quote(const QuoteRequest& q) const {
        const auto why = [](const Job&, const Solver&) { return Reason::said("outbid"); };
        return Quoter({hall.book, hall.places, hall.solver, hall.admission, hall, prices, Nanos{},
                       settling, why})
            .of(q, hall_now);
    }
};

}  // namespace

START_TEST(a_quote_says_where_jobs_would_run_and_changes_nothing) {
    Desk desk(2);
    for (uint64_t n = 1; n <= 6; ++n) desk.hall.job(n, 8, 10);
    desk.hall.decide();
    const std::string before = desk.hall.running();
    const auto three = desk.quote(desk.request(20, 3));
    ck_assert(three && three->runs);
    ck_assert_int_eq(three->running, 3);
    ck_assert_text(three->places.at(0).node, "n2");  // the faster one
    ck_assert_text(desk.hall.running(), before);
    ck_assert_uint_eq(desk.hall.book.jobs().size(), 6);
    const auto low = desk.quote(desk.request(5, 3));
    ck_assert(low && !low->runs && low->running == 2);
    ck_assert_text(low->why, "outbid");
    // The least bid at which all would run, and one unit less.
    ck_assert(low->winning_bid &&
              desk.quote(desk.request(low->winning_bid->micro / 1'000'000, 3))->runs);
    ck_assert(!desk.quote(desk.request(low->winning_bid->micro / 1'000'000 - 1, 3))->runs);
}
END_TEST

START_TEST(a_quote_knows_the_limits_of_its_user) {
    Desk desk(1);
    desk.hall.job(1, 7, 30);
    desk.hall.limit(7, 1);
    desk.hall.decide();
    const auto held = desk.quote(desk.request(20));
    ck_assert(held && !held->runs);
    ck_assert_text(held->why, "user 7 may run 1 job at once");
    ck_assert(held->winning_bid == Money::units(31));
    const auto better = desk.quote(desk.request(31));
    ck_assert(better && better->runs);
    desk.hall.book.user(7).record.limits.spend_per_day = Money::units(2);
    desk.hall.book.user(7).record.ended_day = desk.hall.book.meta().day = 3;
    const auto spent = desk.quote(desk.request(10));
    ck_assert(spent && !spent->runs && !spent->winning_bid);
    ck_assert(spent->why.starts_with("user 7 has spent the 2 of this day"));
}
END_TEST

START_TEST(no_quote_is_given_for_too_many_jobs_by_an_absent_home_or_while_nodes_come_back) {
    Desk desk(1);
    const auto refused = [&](const QuoteRequest& q) {
        const auto quote = desk.quote(q);
        return quote ? std::string("accepted") : quote.error().message;
    };
    ck_assert_text(refused(desk.request(5)), "accepted");
    ck_assert_text(refused(desk.request(5, 0)), "a quote is for 1 to 1000 jobs");
    ck_assert_text(refused(desk.request(5, 1'001)), "a quote is for 1 to 1000 jobs");
    desk.hall.job(1, 8, 10);
    ck_assert_text(refused(desk.request(5, 1'000)), "a quote is for 1 to 999 jobs");
    QuoteRequest q = desk.request(5);
    q.home = "n9";
    ck_assert_text(refused(q), "node n9 is not connected to the market");
    desk.settling = true;
    ck_assert_text(refused(desk.request(5)),
                   "the market has just started and waits for its nodes: ask again in a few "
                   "seconds");
    for (uint32_t n = 2; n <= 1'000; ++n) {
        JobReport r;
        r.id = {"h" + std::to_string(n), 1};
        r.uid = 10'000 + n;
        ck_assert(desk.hall.book.admit(r).has_value());
    }
    ck_assert_text(refused(desk.request(5)), "the market has 1000 jobs already");
}
END_TEST

UNIT_SUITE(market_places, a_node_takes_a_job_when_it_is_there_offers_itself_and_can,
           what_nodes_the_solver_may_not_take_follows_from_failures_programs_and_machines,
           a_node_of_another_kind_is_told_from_one_that_takes_the_same,
           changes_that_concern_all_jobs_are_looked_for_once_a_second,
           room_is_what_is_left_of_cpus_and_of_memory_and_is_never_less_than_what_is_used,
           why_no_node_can_hold_a_job_is_said_by_what_is_missing,
           a_job_whose_program_no_node_has_is_given_up_when_all_have_tried,
           an_operators_destination_must_hold_the_job_and_cost_no_more_than_it_pays);

UNIT_SUITE(market_quotes, a_quote_says_where_jobs_would_run_and_changes_nothing,
           a_quote_knows_the_limits_of_its_user,
           no_quote_is_given_for_too_many_jobs_by_an_absent_home_or_while_nodes_come_back);
