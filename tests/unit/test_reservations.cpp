// SPDX-License-Identifier: GPL-2.0-or-later
// Market: places that are sold ahead of their time (srun --start, --for), and jobs inside the
// places of others (srun --in).
#include <random>

#include "tests/unit/reservation_world.hpp"

using namespace souk;
using namespace souk::market;
using namespace souk::market::reserving;

START_TEST(a_place_is_kept_from_the_second_for_which_it_was_sold) {
    World w = world();
    w.add_node("n1", 100, 1, 2);
    w.add_node("n2", 100, 2, 2);
    std::vector<JobId> others;
    others.reserve(4);
    for (int i = 0; i < 4; ++i) others.push_back(w.submit("n1", 50 + i));
    w.run_for(s(5));
    const JobId id = book(w, "n1", 10, {.start_s = 100, .span_s = 60, .cpus = 2}, 7);
    w.run_for(s(5));
    ck_assert(code(w, id) == ReasonCode::place_dear);
    w.jobs[id].report.terms.max_price = Money::units(60);
    w.tell(w.jobs[id]);
    w.run_for(s(5));
    ck_assert(code(w, id) == ReasonCode::reserved_from);
    const Money price = contract(w, id).price;
    ck_assert_msg(price >= Money::units(50) && price < Money::units(55), "%s",
                  format_money(price).c_str());
    // From now on it bids less than each of the others. Its place is sold.
    w.jobs[id].report.terms.max_price = Money::units(10);
    w.tell(w.jobs[id]);
    w.run_for(s(5));
    ck_assert(contract(w, id).is_sold());
    for (const JobId& other : others) ck_assert(w.phase(other) == JobPhase::running);
    w.run_until(s(99));
    ck_assert(w.phase(id) == JobPhase::waiting);
    w.run_until(s(101));
    ck_assert_text(where(w, id), contract(w, id).node);
    ck_assert(code(w, id) == ReasonCode::reserved_until);
    ck_assert(w.market->find(id)->record.price == contract(w, id).price);
    w.run_until(s(159));
    ck_assert_text(where(w, id), contract(w, id).node);
    // Then it goes on at the market's price for its bid, and others bid more.
    w.run_until(s(175));
    ck_assert(w.phase(id) == JobPhase::frozen);
    const Money paid = w.market->find(id)->record.account.amount;
    const Money due = cost_of(contract(w, id).price, 2, s(60));
    ck_assert_msg(paid >= Money{due.micro * 98 / 100} && paid <= Money{due.micro * 11 / 10},
                  "%s for %s", format_money(paid).c_str(), format_money(due).c_str());
    for (const JobId& other : others) ck_assert(w.phase(other) == JobPhase::running);
}
END_TEST

// A stop tells how long it has run, which is less than the market has counted until then.
START_TEST(a_lower_bid_changes_nothing_of_a_price_that_was_fixed) {
    World w = world();
    w.add_node("n1", 100, 30, 2);
    w.run_for(s(2));
    const JobId id = book(w, "n1", 60, {.start_s = 10, .span_s = 100});
    w.run_until(s(30));
    ck_assert_text(where(w, id), "n1");
    World::HomeJob& job = w.jobs[id];
    World::stop_clock(job, w.now - Nanos::from_ms(100));
    job.report.stands = true;
    job.report.terms.max_price = Money::units(5);
    w.tell(job);
    w.run_for(s(1));
    size_t seen = 0;
    for (const Receipt& r : w.receipts) {
        if (r.job != id) continue;
        ++seen;
        ck_assert_msg(r.price == contract(w, id).price, "%s", format_money(r.price).c_str());
    }
    ck_assert(seen > 0);
}
END_TEST

START_TEST(no_more_is_sold_than_there_is_and_the_next_time_is_told) {
    World w = world();
    w.add_node("n1", 100, 1, 4);
    w.run_for(s(2));
    const JobId a = book(w, "n1", 20, {.start_s = 1'000, .span_s = 100, .cpus = 3}),
                b = book(w, "n1", 20, {.start_s = 1'050, .span_s = 100, .cpus = 2}),
                c = book(w, "n1", 20, {.start_s = 1'050, .span_s = 100, .cpus = 1}),
                d = book(w, "n1", 20, {.start_s = 1'100, .span_s = 40, .cpus = 3});
    w.run_for(s(5));
    ck_assert(contract(w, a).is_sold() && contract(w, c).is_sold() && contract(w, d).is_sold());
    ck_assert(!contract(w, b).is_sold());
    ck_assert(code(w, b) == ReasonCode::place_not_sold);
    ck_assert_msg(w.comment(b).find("the earliest that has: ") != std::string::npos, "%s",
                  w.comment(b).c_str());
    // One that ends gives its room back.
    w.end(w.jobs[a]);
    w.end(w.jobs[d]);
    w.run_for(s(5));
    ck_assert(contract(w, b).is_sold());
}
END_TEST

// To look at all that was sold for each new request takes long, and the market stands meanwhile.
START_TEST(many_requests_beside_many_places_are_looked_at_some_at_a_time) {
    World w = world();
    w.add_node("n1", 100, 1, 4);
    w.run_for(s(1));
    for (int i = 0; i < 800; ++i)
        (void)book(w, "n1", 50, {.start_s = 86'400 + 120 * i, .span_s = 60});
    w.run_for(s(20));
    std::vector<JobId> asked;
    asked.reserve(40);
    for (int i = 0; i < 40; ++i)
        asked.push_back(book(w, "n1", 50, {.span_s = 31 * 86'400, .cpus = 4}));
    const auto heard = [&] {
        return std::ranges::count_if(
            asked, [&](const JobId& id) { return code(w, id) == ReasonCode::place_not_sold; });
    };
    w.run_for(Nanos{});
    ck_assert_int_gt(heard(), 0);
    ck_assert_int_lt(heard(), 40);
    w.run_for(s(5));
    ck_assert_int_eq(heard(), 40);
}
END_TEST

START_TEST(a_price_of_a_time_to_come_is_the_owners_or_what_the_history_says) {
    World w = world();
    w.add_node("n1", 100, 1, 1);
    ProviderReport p = w.providers["n1"];
    // 0:00 to 12:00 at 3, 12:00 to 24:00 at 7, on a Monday alone.
    p.hours = {{345'600, 388'800, Money::units(3)}, {388'800, 432'000, Money::units(7)}};
    w.set_provider(p);
    w.run_for(s(2));
    const JobId noon = book(w, "n1", 20, {.start_s = 11 * 3'600, .span_s = 7'200}),
                dear = book(w, "n1", 6, {.start_s = 13 * 3'600, .span_s = 3'600}),
                night = book(w, "n1", 20, {.start_s = 23 * 3'600, .span_s = 7'200});
    w.run_for(s(5));
    ck_assert(contract(w, noon).price == Money::units(5));
    ck_assert(code(w, dear) == ReasonCode::place_dear);
    ck_assert(code(w, night) == ReasonCode::place_not_sold);
    w.jobs[dear].report.terms.max_price = Money::units(8);
    w.tell(w.jobs[dear]);
    w.run_for(s(2));
    ck_assert(contract(w, dear).price == Money::units(7));
}
END_TEST

START_TEST(a_contract_outlives_the_market_and_a_node_that_leaves) {
    World w = world();
    w.add_node("n1", 100, 1, 2);
    w.add_node("n2", 90, 1, 2);
    w.run_for(s(2));
    const JobId id = book(w, "n2", 20, {.start_s = 50, .span_s = 1'000, .cpus = 2});
    w.run_for(s(5));
    ck_assert_text(contract(w, id).node, "n1");
    w.restart();
    w.connect("n1");
    w.connect("n2");
    w.run_for(s(5));
    ck_assert_text(contract(w, id).node, "n1");
    w.run_until(s(60));
    ck_assert_text(where(w, id), "n1");
    ProviderReport p = w.providers["n1"];
    p.on_market = false;
    w.set_provider(p);
    w.run_for(s(20));
    ck_assert_text(where(w, id), "n2");
    ck_assert(contract(w, id).places_lost == 1);
    ck_assert(w.market->find(id)->record.price == contract(w, id).price);
    p = w.providers["n2"];
    p.on_market = false;
    w.set_provider(p);
    w.run_for(s(20));
    ck_assert(code(w, id) == ReasonCode::place_lost);
    p.on_market = true;
    w.set_provider(p);
    w.run_for(s(20));
    ck_assert_text(where(w, id), "n2");
}
END_TEST

START_TEST(jobs_inside_a_place_take_its_room_and_pay_nothing) {
    World w = world();
    w.add_node("n1", 100, 1, 4);
    w.add_node("n2", 90, 1, 4);
    w.run_for(s(2));
    const JobId place = book(w, "n1", 20, {.cpus = 3, .holds = true});
    w.run_for(s(5));
    ck_assert_text(where(w, place), "n1");
    const JobId one = book(w, "n1", 1, {.cpus = 2, .within = place.text()}),
                two = book(w, "n1", 99, {.cpus = 2, .within = place.text()}),
                foreign = book(w, "n1", 99, {.within = place.text()}, 7), other = w.submit("n1", 1);
    w.run_for(s(5));
    ck_assert_text(where(w, one), "n1");
    ck_assert_text(where(w, other), "n1");  // the fourth CPU is still free
    ck_assert(code(w, two) == ReasonCode::inside_full);
    ck_assert(code(w, foreign) == ReasonCode::inside_gone);
    w.run_for(s(60));
    ck_assert(w.cost(one) == Money{});
    ck_assert(w.cost(place) > Money{});
    // It goes where its place goes.
    ProviderReport p = w.providers["n1"];
    p.on_market = false;
    w.set_provider(p);
    w.run_for(s(30));
    ck_assert_text(where(w, place), "n2");
    ck_assert_text(where(w, one), "n2");
    w.end(w.jobs[one]);
    w.run_for(s(10));
    ck_assert_text(where(w, two), "n2");
    const JobId later = book(w, "n1", 1, {.cpus = 4, .holds = true}),
                early = book(w, "n1", 1, {.within = later.text()});
    w.run_for(s(5));
    ck_assert(w.phase(later) == JobPhase::waiting && code(w, early) == ReasonCode::inside_waits);
    w.end(w.jobs[place]);
    w.run_for(s(10));
    ck_assert(w.phase(two) == JobPhase::frozen);
    ck_assert(code(w, two) == ReasonCode::inside_gone);
    ck_assert_text(w.market->audit(), "");
}
END_TEST

START_TEST(a_place_that_is_given_takes_programs_of_that_user_until_it_is_taken_back) {
    World w = world();
    w.add_node("n1", 100, 1, 4);
    w.run_for(s(2));
    const JobId place = book(w, "n1", 20, {.cpus = 3, .holds = true}, 1'001),
                program = w.submit("n1", 1);
    w.run_for(s(5));
    ck_assert(!w.market->give(place, 1'002, 1'002));
    ck_assert(!w.market->give(place, 1'001, 1'001));
    ck_assert(!w.market->give(program, 1'002, 1'000));
    const JobId one = book(w, "n1", 1, {.cpus = 2, .within = place.text()}, 1'002);
    w.run_for(s(5));
    ck_assert(code(w, one) == ReasonCode::inside_gone);
    ck_assert(w.market->give(place, 1'002, 1'001).has_value());
    w.run_for(s(5));
    ck_assert_text(where(w, one), "n1");
    w.run_for(s(60));
    ck_assert(w.cost(one) == Money{});
    ck_assert(w.cost(place) > Money{});
    // It holds after a restart of the market, and for nobody else.
    w.restart();
    w.connect("n1");
    w.run_for(s(30));
    const JobId own = book(w, "n1", 1, {.within = place.text()}, 1'001),
                third = book(w, "n1", 1, {.within = place.text()}, 1'003);
    w.run_for(s(5));
    ck_assert_text(where(w, one), "n1");
    ck_assert(code(w, own) == ReasonCode::inside_full);  // all of its memory is taken
    ck_assert(code(w, third) == ReasonCode::inside_gone);
    ck_assert(w.market->give(place, 0, 1'001).has_value());
    w.run_for(s(30));
    ck_assert(w.phase(one) == JobPhase::frozen && code(w, one) == ReasonCode::inside_gone);
    ck_assert_text(where(w, own), "n1");
    ck_assert_text(w.market->audit(), "");
}
END_TEST

START_TEST(all_components_are_sold_places_or_none) {
    World w = world();
    for (const char* name : {"n1", "n2", "n3"}) w.add_node(name, 100, 1, 2);
    w.run_for(s(2));
    const auto gang_at = [&](int64_t start_s, uint32_t of) {
        return w.submit_gang("n1", 20, of, 2, Nanos::never(), UINT32_MAX, [&](JobReport& r) {
            r.terms.booking = Booking{monday + s(start_s), s(100)};
        });
    };
    const auto two = gang_at(100, 2), more = gang_at(150, 2), later = gang_at(200, 3);
    w.run_for(s(5));
    for (const JobId& id : two) ck_assert(contract(w, id).is_sold());
    ck_assert(contract(w, two[0]).node != contract(w, two[1]).node);
    for (const JobId& id : more) ck_assert(!contract(w, id).is_sold());
    for (const JobId& id : later) ck_assert(contract(w, id).is_sold());
    w.run_until(s(101));
    for (const JobId& id : two) ck_assert_text(where(w, id), contract(w, id).node);
    w.run_until(s(205));
    for (const JobId& id : later) ck_assert_text(where(w, id), contract(w, id).node);
}
END_TEST

START_TEST(a_gang_runs_in_the_places_of_another_one) {
    World w = world();
    for (const char* name : {"n1", "n2", "n3"}) w.add_node(name, 100, 1, 2);
    w.run_for(s(2));
    const auto gang = [&](uint32_t of, int32_t cpus, const Booking& b) {
        return w.submit_gang("n1", 20, of, cpus, Nanos::never(), UINT32_MAX, [&](JobReport& r) {
            r.terms.booking = b;
            if (!b.within.empty()) r.terms.memory_mb = 40;
        });
    };
    const auto places = gang(3, 2, {.holds = true});
    w.run_for(s(5));
    for (const JobId& id : places) ck_assert(w.phase(id) == JobPhase::running);
    const auto first = gang(2, 2, {.within = places[0].text()}),
               second = gang(2, 1, {.within = places[0].text()}),
               third = gang(2, 1, {.within = places[0].text()});
    w.run_for(s(5));
    ck_assert(where(w, first[0]) != where(w, first[1]) && !where(w, first[1]).empty());
    // One place is left, with room for two.
    ck_assert_text(where(w, second[0]), where(w, second[1]));
    ck_assert_msg(!where(w, second[0]).empty(), "%s", w.comment(second[0]).c_str());
    for (const JobId& id : third) ck_assert(code(w, id) == ReasonCode::inside_full);
    for (const JobId& id : first) w.end(w.jobs[id]);
    w.run_for(s(5));
    ck_assert(where(w, third[0]) != where(w, third[1]) && !where(w, third[1]).empty());
}
END_TEST

START_TEST(a_sold_place_moves_when_its_node_has_become_too_small) {
    World w = world();
    w.add_node("n1", 100, 1, 4);
    w.add_node("n2", 90, 1, 4);
    w.run_for(s(2));
    const JobId id = book(w, "n2", 20, {.start_s = 100, .span_s = 100, .cpus = 4});
    w.run_for(s(5));
    ck_assert_text(contract(w, id).node, "n1");
    ProviderReport p = w.providers["n1"];
    p.cpus = 2;
    w.set_provider(p);
    w.run_until(s(101));
    ck_assert_text(where(w, id), "n2");
    // Another time is sold after that one is over.
    w.run_until(s(205));
    w.jobs[id].report.terms.booking = Booking{monday + s(300), s(50)};
    w.tell(w.jobs[id]);
    w.run_until(s(310));
    ck_assert(contract(w, id).start == monday + s(300) && !contract(w, id).over);
    ck_assert_text(where(w, id), "n2");
}
END_TEST

START_TEST(who_is_held_back_gives_nobody_room_and_a_user_buys_within_his_limit) {
    World w = world();
    w.add_node("n1", 100, 1, 4);
    w.run_for(s(2));
    const JobId place = book(w, "n1", 20, {.cpus = 4, .holds = true});
    w.run_for(s(5));
    const JobId inner = book(w, "n1", 1, {.cpus = 4, .within = place.text()});
    w.jobs[inner].report.waits_for = "9:00";
    w.tell(w.jobs[inner]);
    const JobId other = w.submit("n1", 3);
    w.run_for(s(5));
    ck_assert(w.phase(other) == JobPhase::waiting && w.phase(inner) == JobPhase::waiting);
    ck_assert_int_eq(w.market->nodes().at("n1").inside_cpus, 0);
    w.jobs[inner].report.waits_for.clear();
    w.tell(w.jobs[inner]);
    w.run_for(s(5));
    ck_assert_text(where(w, inner), "n1");
    ck_assert_int_eq(w.market->nodes().at("n1").inside_cpus, 4);
    // Its user holds it back, and lets it go on.
    ck_assert(w.market->freeze(inner, true, 1000).has_value());
    w.run_for(s(5));
    ck_assert(w.phase(inner) == JobPhase::frozen && w.phase(other) == JobPhase::waiting);
    ck_assert_int_eq(w.market->nodes().at("n1").inside_cpus, 0);
    ck_assert(w.market->release(inner, 1000).has_value());
    w.run_for(s(5));
    ck_assert_text(where(w, inner), "n1");
    ck_assert(w.phase(other) == JobPhase::waiting);
    UserLimits limits;
    limits.cpus = 3;
    ck_assert(w.market->set_limits(7, "u7", limits, 0, w.now).has_value());
    const JobId one = book(w, "n1", 60, {.start_s = 500, .span_s = 50, .cpus = 2}, 7),
                two = book(w, "n1", 60, {.start_s = 600, .span_s = 50, .cpus = 2}, 7);
    w.run_for(s(5));
    ck_assert(contract(w, one).is_sold() && !contract(w, two).is_sold());
}
END_TEST

START_TEST(a_user_buys_within_his_hours_and_no_more_than_he_may_reserve) {
    World w = world();
    w.add_node("n1", 100, 1, 8);
    w.run_for(s(2));
    UserLimits limits;
    limits.hours = "mon 0:10-0:20";
    ck_assert(w.market->set_limits(8, "u8", limits, 0, w.now).has_value());
    const auto sold = [&](int64_t from, int64_t span, int32_t cpus = 1) {
        const JobId id = book(w, "n1", 60, {.start_s = from, .span_s = span, .cpus = cpus}, 8);
        w.run_for(s(3));
        return contract(w, id).is_sold();
    };
    ck_assert(!sold(550, 300));
    ck_assert(sold(600, 600));
    ck_assert(!sold(1'000, 201));
    limits.reserve = 3;
    ck_assert(w.market->set_limits(8, "u8", limits, 0, w.now).has_value());
    ck_assert(!sold(700, 300, 3));
    ck_assert(sold(700, 300, 2));
    limits.reserve = 0;
    ck_assert(w.market->set_limits(8, "u8", limits, 0, w.now).has_value());
    ck_assert(!sold(700, 300));
}
END_TEST

START_TEST(nobody_leaves_for_a_job_that_may_not_start_and_it_gets_its_place_when_it_may) {
    World w = world();
    w.add_node("n1", 100, 1, 2);
    const JobId there = w.submit("n1", 50, Nanos::never(), 2);
    w.run_for(s(5));
    // One waits for another job, one is held back by its user.
    const JobId waits = book(w, "n1", 60, {.start_s = 100, .span_s = 1'000, .cpus = 1}, 7),
                held = book(w, "n1", 60, {.start_s = 100, .span_s = 1'000, .cpus = 1}, 8);
    w.jobs[waits].report.waits_for = "job n1.99 to end";
    w.tell(w.jobs[waits]);
    ck_assert(w.market->freeze(held, true, 8).has_value());
    w.run_for(s(5));
    ck_assert(contract(w, waits).is_sold() && contract(w, held).is_sold());
    for (int64_t at = 95; at <= 300; at += 5) {
        w.run_until(s(at));
        ck_assert_text(where(w, there), "n1");
    }
    ck_assert(code(w, waits) == ReasonCode::waits_for_job);
    ck_assert(w.market->find(waits)->record.account.amount.micro == 0);
    w.jobs[waits].report.waits_for.clear();
    w.tell(w.jobs[waits]);
    w.run_until(s(320));
    ck_assert_text(where(w, waits), "n1");
    ck_assert(w.phase(there) == JobPhase::frozen);
    ck_assert(w.market->find(waits)->record.price == contract(w, waits).price);
}
END_TEST

// Random requests, ends, owners that come and go, and restarts. What was sold is never more than a
// node has, and whoever has a place begins within a second of the time, unless his node has left.
START_TEST(random_reservations_are_kept) {
    for (uint32_t seed = 1; seed <= 25; ++seed) {
        std::mt19937 random(seed);
        const auto upto = [&](int64_t n) {
            return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
        };
        World w = world();
        std::map<NodeName, int32_t> cpus;
        for (const char* name : {"n1", "n2", "n3"}) {
            cpus[name] = static_cast<int32_t>(1 + upto(4));
            w.add_node(name, 80 + upto(40), 1 + upto(3), cpus[name], 100'000);
        }
        std::vector<JobId> booked;
        for (int step = 0; step < 120; ++step) {
            const int64_t now_s = w.now.ns / 1'000'000'000;
            switch (upto(8)) {
                case 0:
                case 1:
                    booked.push_back(book(w, "n1", 1 + upto(30),
                                          {.start_s = now_s + upto(60),
                                           .span_s = 1 + upto(80),
                                           .cpus = static_cast<int32_t>(1 + upto(4)),
                                           .early = upto(2) == 0}));
                    break;
                case 2: (void)w.submit("n2", 1 + upto(90), s(1 + upto(40))); break;
                case 3:
                    if (!booked.empty()) {
                        World::HomeJob& job = w.jobs[booked[static_cast<size_t>(
                            upto(static_cast<int64_t>(booked.size())))]];
                        if (job.report.phase == JobPhase::running && !job.doing) w.end(job);
                    }
                    break;
                case 4: {
                    ProviderReport p = w.providers["n3"];
                    p.on_market = upto(2) == 0;
                    w.set_provider(p);
                    break;
                }
                default: break;
            }
            w.run_for(Nanos::from_ms(200 + upto(4'000)));
            std::map<NodeName, std::vector<Contract>> sold;
            for (const JobId& id : booked) {
                const Job* const job = w.market->find(id);
                if (!job || job->phase() == JobPhase::finished) continue;
                const Contract& c = *job->record.contract;
                if (!c.is_sold() || c.over || c.node.empty()) continue;
                sold[c.node].push_back(c);
                const Nanos unix = w.now + monday;
                if (c.node == "n3" || c.places_lost > 0) continue;  // which comes and goes
                if (unix > c.start + s(2) && unix < c.end && unix > c.sold + s(2))
                    ck_assert_msg(where(w, id) == c.node, "seed %u: %s is not on %s", seed,
                                  id.text().c_str(), c.node.c_str());
            }
            for (const auto& [node, all] : sold)
                for (const Contract& at : all) {
                    int32_t sum = 0;
                    for (const Contract& c : all)
                        if (c.start <= at.start && at.start < c.end) sum += c.cpus;
                    ck_assert_msg(sum <= cpus[node], "seed %u: %d of %d CPUs of %s are sold", seed,
                                  sum, cpus[node], node.c_str());
                }
        }
    }
}
END_TEST

UNIT_SUITE(reservations, a_user_buys_within_his_hours_and_no_more_than_he_may_reserve,
           a_place_is_kept_from_the_second_for_which_it_was_sold,
           a_lower_bid_changes_nothing_of_a_price_that_was_fixed,
           no_more_is_sold_than_there_is_and_the_next_time_is_told,
           many_requests_beside_many_places_are_looked_at_some_at_a_time,
           a_price_of_a_time_to_come_is_the_owners_or_what_the_history_says,
           a_contract_outlives_the_market_and_a_node_that_leaves,
           jobs_inside_a_place_take_its_room_and_pay_nothing,
           a_place_that_is_given_takes_programs_of_that_user_until_it_is_taken_back,
           all_components_are_sold_places_or_none, a_gang_runs_in_the_places_of_another_one,
           a_sold_place_moves_when_its_node_has_become_too_small,
           who_is_held_back_gives_nobody_room_and_a_user_buys_within_his_limit,
           nobody_leaves_for_a_job_that_may_not_start_and_it_gets_its_place_when_it_may,
           random_reservations_are_kept);
