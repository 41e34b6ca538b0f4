// SPDX-License-Identifier: GPL-2.0-or-later
// The market machine on random markets: jobs, bids, owners who come and go, nodes and markets that die, orders that
// fail. World::check() demands after every step that no CPU or megabyte is given twice and that the ledger balances;
// here are the prices. In the end everything heals, and every job must end.
#include "kernel/base/rng.hpp"
#include "market/wire/market_records.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

struct Chaos {
    explicit Chaos(uint64_t seed) : rng(seed) {
        w.transit = Nanos::from_ms(rng.between(0, 3'000));
        w.refuse = [this](const Order& o) -> std::optional<OrderFailed> {
            if (!rng.chance(refusal)) return std::nullopt;
            const HomeJobRef job{w, o.id};
            return OrderFailed{o.id, o.seq, rng.chance(0.5) ? o.node : job.where(), "no"};
        };
        w.after_step = [this]() { check_prices(); };
        for (int64_t i = 1, n = rng.between(1, 6); i <= n; ++i)
            w.add_node("n" + std::to_string(i), rng.between(1, 4) * 50, rng.between(0, 30),
                       static_cast<int32_t>(rng.between(1, 4)), rng.between(2, 8) * 256);
        if (!rng.chance(0.3)) return;
        for (auto [name, p] : std::map(w.providers)) {  // of several kinds
            p.machine = {"x86_64", "6.1", rng.chance(0.9) ? "4.2" : "4.3", 4096, rng.chance(0.5) ? "avx fpu" : "fpu"};
            w.set_provider(p);
        }
    }
    struct HomeJobRef {
        World& w;
        JobId id;
        NodeName where() const { return w.jobs.at(id).report.where; }
    };

    // No job that runs where it is meant to be pays more than its bid or less than the reserve.
    void check_prices() {
        for (const auto& [id, job] : w.market->jobs()) {
            if (job.phase() != JobPhase::running || w.market->settling()) continue;
            const JobRecord& r = job.record;
            const auto& terms = r.report.terms;
            if (terms.budget.micro > 0 && !healed)
                ck_assert_msg(w.market->cost(job, w.now) <= terms.budget && r.account.amount <= terms.budget,
                              "%s has spent more than its budget", id.text().c_str());
            const Node* node = w.market->find_node(r.report.where);
            ck_assert_msg(r.price <= terms.max_price, "%s pays %ld, bids %ld", id.text().c_str(),
                          r.price.micro, terms.max_price.micro);
            // Where a reserve rose above a bid, the guest is on its way out and pays what it paid.
            const bool stays = !job.record.order && node->connected && w.connected.contains(id.home) && job.reported;
            if (stays && node->record.report.reserve <= terms.max_price && raised_reserve.count(r.report.where) == 0)
                ck_assert_msg(r.price >= node->record.report.reserve, "%s pays %ld, reserve %ld; %s", id.text().c_str(),
                              r.price.micro, node->record.report.reserve.micro, w.market->comment(job).c_str());
        }
    }

    NodeName any_node() {
        auto it = w.providers.begin();
        std::advance(it, static_cast<long>(rng.below(w.providers.size())));
        return it->first;
    }
    World::HomeJob* any_job() {
        if (w.jobs.empty()) return nullptr;
        auto it = w.jobs.begin();
        std::advance(it, static_cast<long>(rng.below(w.jobs.size())));
        return it->second.report.phase == JobPhase::finished ? nullptr : &it->second;
    }

    void event() {
        switch (rng.below(12)) {
            case 0:
            case 1:
            case 2:
            case 3: {
                if (w.jobs.size() >= 60) return;
                w.submit(any_node(), rng.between(1, 60), Nanos::from_ms(rng.between(1, 40'000)),
                         static_cast<int32_t>(rng.between(1, 2)), rng.between(0, 4) * 200,
                         rng.chance(0.2) ? Money{rng.between(1, 400'000)} : Money{});
                return;
            }
            case 4: {  // another bid
                auto* job = any_job();
                if (!job) return;
                job->report.terms.max_price = Money::units(rng.between(1, 80));
                return w.tell(*job);
            }
            case 5: {  // the owner comes or goes
                ProviderReport p = w.providers[any_node()];
                p.on_market = !p.on_market;
                return w.set_provider(p);
            }
            case 6: {
                ProviderReport p = w.providers[any_node()];
                const Money old = std::exchange(p.reserve, Money::units(rng.between(0, 40)));
                if (p.reserve > old) raised_reserve.insert(p.node);
                return w.set_provider(p);
            }
            case 7: {
                const NodeName node = any_node();
                return w.connected.contains(node) ? w.disconnect(node) : w.connect(node);
            }
            case 8: {
                if (!rng.chance(0.3)) return;
                w.restart();
                for (const auto& [name, p] : w.providers)
                    if (rng.chance(0.8)) w.connect(name);
                return;
            }
            case 9: {
                if (auto* job = any_job(); job && rng.chance(0.3)) (void)w.market->cancel(job->report.id, 0);
                return;
            }
            case 10: {
                auto* job = any_job();
                if (!job) return;
                const JobId id = job->report.id;
                switch (rng.below(4)) {
                    case 0: (void)w.market->move(id, any_node(), rng.chance(0.3), 0); return;
                    case 1: (void)w.market->freeze(id, rng.chance(0.3), 0); return;
                    case 2: (void)w.market->thaw(id, rng.chance(0.5) ? any_node() : "", rng.chance(0.3), 0); return;
                    default: (void)w.market->release(id, 0); return;
                }
            }
            default: return;
        }
    }

    void heal() {
        refusal = 0;
        healed = true;
        for (auto& [name, p] : w.providers) {
            p.on_market = true;
            p.reserve = {};
            if (!w.connected.contains(name)) w.connect(name);
            w.set_provider(p);
        }
        // A place for the largest of them.
        w.add_node("big", 100, 0, 4, 8'000);
        for (auto& [id, job] : w.jobs) {
            (void)w.market->release(id, 0);
            if (job.report.phase == JobPhase::finished) continue;
            job.report.terms.budget = {};
            w.tell(job);
        }
        w.run_for(Nanos::from_s(3'000));
    }

    World w;
    Rng rng;
    double refusal = 0.15;
    bool healed = false;
    std::set<NodeName> raised_reserve;
};

}  // namespace

START_TEST(no_random_market_breaks_an_invariant_and_every_job_ends_when_all_heals) {
    for (uint64_t seed = 1; seed <= 150; ++seed) {
        Chaos c(seed);
        for (int i = 0; i < 150; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
        }
        c.heal();
        for (const auto& [id, job] : c.w.jobs) {
            ck_assert_msg(job.report.phase == JobPhase::finished, "seed %lu: %s is %s at the end: %s",
                          static_cast<unsigned long>(seed), id.text().c_str(), phase_name(job.report.phase),
                          c.w.comment(id).c_str());
            ck_assert_msg(job.settled, "seed %lu: %s was not settled", static_cast<unsigned long>(seed),
                          id.text().c_str());
        }
        const Totals t = c.w.market->totals(c.w.now);
        ck_assert_int_eq(t.paid.micro, t.earned.micro);
    }
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
            all += o.id.text() + " " + std::to_string(static_cast<int>(o.kind)) + " " + o.node + " " +
                   format_money(o.price) + "\n";
        return all;
    };
    ck_assert_text(run(), run());
}
END_TEST

UNIT_SUITE_LONG(market_random, 300, no_random_market_breaks_an_invariant_and_every_job_ends_when_all_heals,
                every_record_of_a_random_market_reads_back_as_it_was_written, the_same_inputs_give_the_same_orders);
