// SPDX-License-Identifier: GPL-2.0-or-later
// The market machine on random markets (market_chaos.hpp). In the end everything heals, and every
// job must end.
#include "market/store/records.hpp"
#include "tests/unit/market_chaos.hpp"

using namespace souk;
using namespace souk::market;

START_TEST(no_random_market_breaks_an_invariant_and_every_job_ends_when_all_heals) {
    size_t holds = 0, days_spent = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        MarketOptions options;
        if (seed > 150) options.solver.algorithm = "welfare";
        if (seed > 150 && seed % 4 == 1) options.solver.horizon = Nanos::from_s(600);
        if (seed > 150 && seed % 4 == 2) options.solver.min_stay = Nanos::from_s(20);
        Chaos c(seed, World(options));
        for (int i = 0; i < 150; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
        }
        c.heal();
        for (const auto& [id, job] : c.w.jobs) {
            ck_assert_msg(job.report.phase == JobPhase::finished,
                          "seed %lu: %s is %s at the end: %s", static_cast<unsigned long>(seed),
                          id.text().c_str(), to_string(job.report.phase), c.w.comment(id).c_str());
            ck_assert_msg(job.settled, "seed %lu: %s was not settled",
                          static_cast<unsigned long>(seed), id.text().c_str());
        }
        const Totals t = c.w.market->totals(c.w.now);
        ck_assert_int_eq(t.paid.micro, t.earned.micro);
        holds += c.holds;
        days_spent += c.days_spent;
    }
    ck_assert(holds > 1'000 && days_spent > 1'000);
}
END_TEST

START_TEST(every_record_of_a_random_market_reads_back_as_it_was_written) {
    size_t records = 0;
    const auto same = [&records](const auto& record) {
        const std::string bytes = wire::pack(record);
        const auto read = wire::unpack<std::decay_t<decltype(record)>>(bytes);
        ck_assert_msg(read.has_value(), "%s", read ? "" : read.error().message.c_str());
        ck_assert(wire::pack(*read) == bytes);
        ++records;
    };
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        Chaos c(seed);
        for (int i = 0; i < 100; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
            for (const auto& [id, record] : c.w.stored_jobs) same(record);
        }
        for (const auto& [name, record] : c.w.stored_nodes) same(record);
        for (const auto& [uid, record] : c.w.stored_users) same(record);
        for (const auto& [minute, record] : c.w.stored_prices) same(record);
        for (const auto& [holder, record] : c.w.stored_accounts) same(record);
        same(c.w.stored_meta);
    }
    ck_assert(records > 1'000);
}
END_TEST

START_TEST(the_same_inputs_give_the_same_orders) {
    const auto run = [] {
        Chaos c(4711);
        for (int i = 0; i < 300; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
        }
        std::string all;
        for (const Order& o : c.w.orders)
            all += o.id.text() + " " + std::to_string(static_cast<int>(o.kind)) + " " + o.node +
                   " " + format_money(o.price) + "\n";
        return all;
    };
    ck_assert_text(run(), run());
}
END_TEST

UNIT_SUITE_LONG(market_random, 300,
                no_random_market_breaks_an_invariant_and_every_job_ends_when_all_heals,
                every_record_of_a_random_market_reads_back_as_it_was_written,
                the_same_inputs_give_the_same_orders);
