// SPDX-License-Identifier: GPL-2.0-or-later
// Quoter: what the market says of a job is what becomes of it when it is submitted in the same
// instant, and saying it changes nothing.
#include <map>
#include <set>

#include "market/store/records.hpp"
#include "tests/unit/market_chaos.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

QuoteRequest asked(const NodeName& home, int64_t price, int32_t cpus = 1, int64_t memory = 100,
                   uint32_t uid = 1000) {
    QuoteRequest q;
    q.home = home;
    q.uid = uid;
    q.terms.max_price = Money::units(price);
    q.terms.cpus = cpus;
    q.terms.memory_mb = memory;
    return q;
}

// The node of one job that would run; empty if it would not.
NodeName node_of(const Quote& q) { return q.places.empty() ? NodeName{} : q.places[0].node; }
Money price_of(const Quote& q) { return q.places.empty() ? Money{} : q.places[0].price; }

// A job as the request describes it, which its home reports in this instant.
JobId submit(Chaos& c, const QuoteRequest& r) {
    const JobId id{r.home, ++c.w.next_id[r.home]};
    World::HomeJob& job = c.w.jobs[id];
    job.report.id = id;
    job.report.uid = r.uid;
    job.report.terms = r.terms;
    job.report.submitted = c.w.now + c.w.calendar;
    job.work = s(c.rng.between(1, 40));
    c.w.tell(job);
    return id;
}

// Everything of a market that can be seen from outside, as bytes.
std::string state_of(const Market& m, Nanos now) {
    std::string all = std::to_string(m.next_call().ns) + " " + m.audit();
    for (const auto& [id, job] : m.jobs()) {
        all += wire::pack(job.record) + m.comment(job) + format_money(m.cost(job, now)) +
               format_money(job.bid);
        all += std::to_string(static_cast<int>(job.held)) + std::to_string(job.alarm.ns);
    }
    for (const auto& [name, node] : m.nodes()) {
        const ProviderNote note = m.prices(node);
        all += wire::pack(node.record) + format_money(note.current_price) +
               format_money(note.next_price);
    }
    for (const auto& [uid, user] : m.users())
        all += wire::pack(user.record) + format_money(user.spent) + std::to_string(user.held) +
               std::to_string(user.order.size());
    const auto problem = m.problem();
    for (const auto& job : problem.jobs) {
        all += std::to_string(job.key.n) + format_money(job.spec.value) +
               std::to_string(static_cast<int>(job.spec.state));
        all += std::to_string(job.spec.place.n) + std::to_string(static_cast<int>(job.spec.pin));
    }
    for (const auto& place : problem.providers)
        all += std::to_string(place.key.n) + std::to_string(place.spec.cpus);
    const Totals t = m.totals(now);
    return all + format_money(t.surplus.welfare) + format_money(t.paid);
}

MarketOptions some_options(uint64_t seed) {
    MarketOptions o;
    if (seed % 5 == 1) o.solver.algorithm = "proportional_share";
    if (seed % 5 == 4) o.solver.algorithm = "welfare";
    if (seed % 5 == 2) o.solver.pricing = "uniform";
    if (seed % 5 == 3) o.solver.pricing = "first";
    if (seed % 7 == 3) o.solver.horizon = s(600);
    if (seed % 7 == 5) o.solver.min_stay = s(20);
    return o;
}

QuoteRequest any_request(Chaos& c) {
    QuoteRequest q =
        asked(c.any_node(), c.rng.between(1, 80), static_cast<int32_t>(c.rng.between(1, 3)),
              c.rng.between(0, 4) * 200, c.any_user());
    if (!c.rng.chance(0.2)) return q;
    q.terms.budget = Money::units(c.rng.between(1, 20));
    q.terms.finish = s(c.rng.between(600, 7'200));
    q.terms.pace = c.rng.chance(0.5);
    return q;
}

}  // namespace

START_TEST(a_quote_says_where_at_what_price_and_what_bid_it_takes) {
    World w;
    w.add_node("n1", 200, 20);
    w.add_node("n2", 100, 10);
    w.run_for(s(4));
    auto q = w.market->quote(asked("n1", 50), w.now);
    ck_assert(q.has_value() && q->runs && !q->others_first);
    ck_assert_text(node_of(*q), "n1");
    ck_assert_text(format_money(price_of(*q)), "20");
    ck_assert_text(format_money(*q->winning_bid), "10");
    ck_assert(!q->cost && !q->span);  // how long it runs is not said
    w.submit("n1", 60);
    w.submit("n1", 40);
    w.run_for(s(4));
    q = w.market->quote(asked("n1", 30), w.now);
    ck_assert(!q->runs);
    ck_assert_text(q->why, "outbid; 41 would win a place");
    ck_assert_text(format_money(*q->winning_bid), "41");
    q = w.market->quote(asked("n1", 50), w.now);
    ck_assert(q->runs && q->others_first);
    ck_assert_text(node_of(*q), "n2");
    ck_assert_uint_eq(q->displaced, 1);
    q = w.market->quote(asked("n1", 50, 2), w.now);
    ck_assert_text(q->why, "needs 2 CPUs; no provider has more than 1");
    ck_assert(!q->winning_bid);
    ck_assert(!w.market->quote(asked("n9", 50), w.now).has_value());
    w.restart();
    w.connect("n1");
    ck_assert(w.market->quote(asked("n1", 50), w.now)
                  .error()
                  .message.starts_with("the market has just started"));
}
END_TEST

START_TEST(a_quote_with_a_run_time_says_what_it_costs_and_when_it_ends) {
    World w;
    w.add_node("n1", 200, 20, 4);
    w.run_for(s(600));
    QuoteRequest r = asked("n1", 50, 2);
    r.terms.runtime = s(7'200);
    r.terms.budget = Money::units(20);
    r.terms.finish = s(3'600);
    const auto q = w.market->quote(r, w.now);
    ck_assert(q.has_value());
    ck_assert_int_eq(q->span->ns, s(3'600).ns);
    ck_assert_text(format_money(*q->cost), "40");
    ck_assert_int_eq(q->budget_lasts->ns, s(1'800).ns);
    ck_assert(q->day.minutes >= 10);
    ck_assert_text(format_money(*q->day.cost), "40");
    ck_assert(*q->day.in_time == 1 && *q->day.frozen == 0);
}
END_TEST

START_TEST(a_quote_knows_its_users_limits) {
    World w;
    w.add_node("n1", 100, 10, 4);
    w.run_for(s(4));
    ck_assert(w.market->set_limits(1000, "alice", {{}, 1, {}}, 0, w.now).has_value());
    w.submit("n1", 50);
    w.run_for(s(4));
    auto q = w.market->quote(asked("n1", 40), w.now);
    ck_assert(!q->runs);
    ck_assert_text(q->why, "user alice may run 1 job at once");
    ck_assert_text(format_money(*q->winning_bid), "51");
    q = w.market->quote(asked("n1", 51), w.now);
    ck_assert(q->runs && q->others_first);  // there is room, when the other of its user has stopped
    ck_assert(w.market->quote(asked("n1", 40, 1, 100, 1001), w.now)->runs);
    ck_assert(w.market->set_limits(1000, "alice", {Money{}, {}, {}}, 0, w.now).has_value());
    w.run_for(s(4));
    q = w.market->quote(asked("n1", 90), w.now);
    ck_assert(!q->runs && !q->winning_bid);
    ck_assert(q->why.find("has spent the 0 of this day") != std::string::npos);
}
END_TEST

// Method: at random moments of random markets, with faults and limits, a quote; then the same job
// in the same instant.
START_TEST(a_quote_changes_nothing_and_is_what_a_submission_in_the_same_instant_gets) {
    size_t ran = 0, waited = 0, later = 0, limited = 0;
    for (uint64_t seed = 1; seed <= 120; ++seed) {
        Chaos c(seed, World(some_options(seed)));
        for (int i = 0; i < 60; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
            const QuoteRequest r = any_request(c);
            if (!c.w.connected.contains(r.home) || c.w.market->settling()) continue;
            const std::string before = state_of(*c.w.market, c.w.now);
            const auto q = c.w.market->quote(r, c.w.now);
            ck_assert(q.has_value());
            ck_assert(state_of(*c.w.market, c.w.now) == before);
            ck_assert(price_of(*c.w.market->quote(r, c.w.now)) == price_of(*q));

            const size_t orders = c.w.orders.size();
            const JobId id = submit(c, r);
            c.w.decide();
            const Order* order = nullptr;
            for (size_t n = orders; n < c.w.orders.size(); ++n)
                if (c.w.orders[n].id == id) order = &c.w.orders[n];
            const std::string comment = c.w.comment(id);
            const char* const what = comment.c_str();
            ck_assert_msg(c.w.market->find(id)->bid == q->bid, "seed %lu, %d: it bids otherwise",
                          seed, i);
            if (!q->runs) {
                ck_assert_msg(!order, "seed %lu, %d: it was to wait: %s", seed, i, q->why.c_str());
                ck_assert_msg(comment == q->why, "seed %lu, %d: it waits: %s, not: %s", seed, i,
                              what, q->why.c_str());
                ++(q->why.starts_with("user ") ? limited : waited);
            } else if (q->others_first) {
                ck_assert_msg(!order, "seed %lu, %d: it was to wait for others on %s", seed, i,
                              node_of(*q).c_str());
                const bool said = comment.starts_with("waits for room on " + node_of(*q)) ||
                                  comment.starts_with("waits until another job");
                ck_assert_msg(said, "seed %lu, %d: it is to go to %s: %s", seed, i,
                              node_of(*q).c_str(), what);
                ++later;
            } else {
                ck_assert_msg(order, "seed %lu, %d: it was to run on %s: %s", seed, i,
                              node_of(*q).c_str(), what);
                ck_assert_text(order->node, node_of(*q));
                ck_assert_msg(order->price == price_of(*q), "seed %lu, %d: %ld, not %ld", seed, i,
                              order->price.micro, price_of(*q).micro);
                ++ran;
            }
        }
    }
    ck_assert_msg(ran > 300 && waited > 1'000 && later > 200 && limited > 500, "%zu %zu %zu %zu",
                  ran, waited, later, limited);
}
END_TEST

// The method is as above, with two to five jobs at once. The orders must go to the places of the
// quote. A job whose place others still hold gets no order yet, and says where it is to go.
START_TEST(a_quote_for_several_jobs_is_what_they_get_that_come_together) {
    size_t all = 0, some = 0, none = 0, spread = 0;
    for (uint64_t seed = 1; seed <= 120; ++seed) {
        Chaos c(seed, World(some_options(seed)));
        for (int i = 0; i < 40; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
            QuoteRequest r = any_request(c);
            r.jobs = static_cast<int32_t>(c.rng.between(2, 5));
            if (!c.w.connected.contains(r.home) || c.w.market->settling()) continue;
            const std::string before = state_of(*c.w.market, c.w.now);
            const auto q = c.w.market->quote(r, c.w.now);
            ck_assert(q.has_value());
            ck_assert(state_of(*c.w.market, c.w.now) == before);
            const size_t orders = c.w.orders.size();
            std::set<JobId> mine;
            for (int32_t n = 0; n < r.jobs; ++n) mine.insert(submit(c, r));
            c.w.decide();
            std::map<std::pair<NodeName, int64_t>, int32_t> got;
            int32_t ordered = 0, going = 0;
            for (size_t n = orders; n < c.w.orders.size(); ++n) {
                const Order& o = c.w.orders[n];
                if (mine.contains(o.id)) ++ordered, ++got[{o.node, o.price.micro}];
            }
            for (const JobId& id : mine) {
                const std::string why = c.w.comment(id);
                going += why.starts_with("waits for room on ") ||
                         why.starts_with("waits until another job");
            }
            const std::string where = "seed " + std::to_string(seed) + ", " + std::to_string(i);
            ck_assert_msg(ordered + going == q->running, "%s: %d ordered and %d going, not %d",
                          where.c_str(), ordered, going, q->running);
            Money rate;
            for (const Quote::Place& p : q->places) {
                rate += Money{p.price.micro * r.terms.cpus * p.jobs};
                if (!q->others_first) {
                    const int32_t there = got[{p.node, p.price.micro}];
                    ck_assert_msg(there == p.jobs, "%s: %d on %s, not %d", where.c_str(), there,
                                  p.node.c_str(), p.jobs);
                }
            }
            ck_assert(rate == q->rate && q->runs == (q->running == r.jobs));
            ++(q->runs ? all : q->running > 0 ? some : none);
            spread += q->places.size() > 1;
        }
    }
    ck_assert_msg(all > 80 && some > 200 && none > 500 && spread > 120, "%zu %zu %zu %zu", all,
                  some, none, spread);
}
END_TEST

START_TEST(the_bid_that_a_quote_names_for_several_gets_all_a_place_and_one_unit_less_does_not) {
    size_t named = 0, none = 0;
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        MarketOptions o = some_options(seed);
        o.solver.algorithm = "greedy_migration";
        o.solver.min_stay = {};
        Chaos c(seed, World(o));
        for (int i = 0; i < 40; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
            QuoteRequest r = any_request(c);
            r.terms.pace = false;
            r.jobs = static_cast<int32_t>(c.rng.between(2, 5));
            const auto q = c.w.market->quote(r, c.w.now);
            if (!q) continue;
            if (q->runs) ck_assert(*q->winning_bid <= r.terms.max_price);
            r.terms.max_price = q->winning_bid.value_or(Money::units(1'000'000));
            ck_assert_int_eq(c.w.market->quote(r, c.w.now)->runs, q->winning_bid.has_value());
            ++(q->winning_bid ? named : none);
            if (!q->winning_bid || c.limits[r.uid].any()) continue;
            r.terms.max_price = *q->winning_bid - Money::units(1);
            if (r.terms.max_price.micro > 0) ck_assert(!c.w.market->quote(r, c.w.now)->runs);
        }
    }
    ck_assert_msg(named > 100 && none > 100, "%zu %zu", named, none);
}
END_TEST

START_TEST(a_quote_for_several_adds_up_what_they_cost_and_counts_limits) {
    World w;
    w.add_node("n1", 200, 20, 2);
    w.add_node("n2", 100, 10, 4);
    w.run_for(s(600));
    QuoteRequest r = asked("n1", 50);
    r.jobs = 5;
    r.terms.runtime = s(7'200);
    auto q = w.market->quote(r, w.now);
    ck_assert(q.has_value() && q->runs && !q->others_first && q->places.size() == 2);
    ck_assert_text(q->places[0].node + " " + q->places[1].node, "n1 n2");
    ck_assert_int_eq(q->places[0].jobs, 2);
    ck_assert_int_eq(q->places[1].jobs, 3);
    // 2 x 20 + 3 x 10 an hour; an hour on n1, two on n2; own jobs do not price each other
    ck_assert_text(format_money(q->rate), "70");
    ck_assert_text(format_money(*q->cost), "100");
    ck_assert_int_eq(q->span->ns, s(7'200).ns);
    ck_assert_text(format_money(*q->winning_bid), "20");
    r.jobs = 7;
    q = w.market->quote(r, w.now);
    ck_assert(!q->runs && q->running == 6 && !q->winning_bid && !q->cost);
    ck_assert(w.market->set_limits(1000, "alice", {{}, 3, {}}, 0, w.now).has_value());
    w.run_for(s(4));
    q = w.market->quote(r, w.now);
    ck_assert_int_eq(q->running, 3);
    ck_assert_text(q->why, "user alice may run 3 jobs at once");
    r.jobs = 1'001;
    ck_assert_text(w.market->quote(r, w.now).error().message, "a quote is for 1 to 1000 jobs");
}
END_TEST

START_TEST(where_nothing_else_happens_a_job_comes_to_run_where_and_at_the_price_that_was_quoted) {
    size_t ran = 0;
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        Rng rng(seed);
        World w;
        for (int64_t i = 1, n = rng.between(2, 6); i <= n; ++i)
            w.add_node("n" + std::to_string(i), rng.between(1, 4) * 50, rng.between(0, 30),
                       static_cast<int32_t>(rng.between(1, 4)), rng.between(2, 8) * 256);
        ck_assert(w.market->set_limits(1002, "u", {{}, 2, 4}, 0, w.now).has_value());
        w.run_for(s(10));
        for (int i = 0; i < 40; ++i) {
            const uint32_t uid = 1000 + static_cast<uint32_t>(rng.below(3));
            const QuoteRequest r =
                asked("n1", rng.between(1, 80), static_cast<int32_t>(rng.between(1, 3)),
                      rng.between(0, 4) * 200, uid);
            const auto q = w.market->quote(r, w.now);
            const JobId id = w.submit("n1", r.terms.max_price.micro / 1'000'000, Nanos::never(),
                                      r.terms.cpus, r.terms.memory_mb, {}, uid);
            w.run_for(s(30));
            ck_assert_text(w.where(id), q->runs ? node_of(*q) : "waiting");
            if (!q->runs) continue;
            ++ran;
            const Money price = w.market->find(id)->record.price;
            ck_assert_msg(price == price_of(*q), "seed %lu, %d: it pays %ld, not %ld", seed, i,
                          price.micro, price_of(*q).micro);
            if (rng.chance(0.5)) w.end(w.jobs[id]);
            w.run_for(s(30));
        }
    }
    ck_assert(ran > 300);
}
END_TEST

START_TEST(the_bid_that_a_quote_names_gets_a_place_and_one_less_does_not) {
    size_t named = 0, none = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        MarketOptions o = some_options(seed);
        o.solver.algorithm = "greedy_migration";
        o.solver.min_stay = {};
        Chaos c(seed, World(o));
        for (int i = 0; i < 60; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
            QuoteRequest r = any_request(c);
            r.terms.pace = false;
            const auto q = c.w.market->quote(r, c.w.now);
            if (!q) continue;
            if (q->runs) ck_assert(*q->winning_bid <= r.terms.max_price);
            r.terms.max_price = q->winning_bid.value_or(money_max);
            ck_assert_int_eq(c.w.market->quote(r, c.w.now)->runs, q->winning_bid.has_value());
            ++(q->winning_bid ? named : none);
            if (!q->winning_bid || c.limits[r.uid].any()) continue;
            r.terms.max_price = *q->winning_bid - Money::units(1);
            if (r.terms.max_price.micro > 0) ck_assert(!c.w.market->quote(r, c.w.now)->runs);
        }
    }
    ck_assert(named > 500 && none > 100);
}
END_TEST

START_TEST(a_market_that_gives_quotes_decides_as_one_that_does_not) {
    const auto run = [](uint64_t seed, bool quotes) {
        Chaos c(seed, World(some_options(seed)));
        for (int i = 0; i < 150; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
            const QuoteRequest r = any_request(c);
            if (quotes) (void)c.w.market->quote(r, c.w.now);
        }
        std::string all;
        for (const Order& o : c.w.orders)
            all += o.id.text() + " " + o.node + " " + format_money(o.price) + " " + o.reason + "\n";
        return all;
    };
    for (uint64_t seed = 1; seed <= 20; ++seed) ck_assert_text(run(seed, true), run(seed, false));
}
END_TEST

UNIT_SUITE_LONG(
    quote, 300, a_quote_says_where_at_what_price_and_what_bid_it_takes,
    a_quote_with_a_run_time_says_what_it_costs_and_when_it_ends, a_quote_knows_its_users_limits,
    a_quote_changes_nothing_and_is_what_a_submission_in_the_same_instant_gets,
    a_quote_for_several_jobs_is_what_they_get_that_come_together,
    the_bid_that_a_quote_names_for_several_gets_all_a_place_and_one_unit_less_does_not,
    a_quote_for_several_adds_up_what_they_cost_and_counts_limits,
    where_nothing_else_happens_a_job_comes_to_run_where_and_at_the_price_that_was_quoted,
    the_bid_that_a_quote_names_gets_a_place_and_one_less_does_not,
    a_market_that_gives_quotes_decides_as_one_that_does_not);
