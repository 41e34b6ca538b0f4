// SPDX-License-Identifier: GPL-2.0-or-later
// Chaos: a random market. Jobs, bids, owners who come and go, users' limits, nodes and markets that
// die, orders that fail, a midnight. World::check() demands after every step that no CPU or
// megabyte is given twice and that the ledger balances; this file checks the prices and the limits.
#pragma once

#include "kernel/base/rng.hpp"
#include "tests/unit/market_world.hpp"

namespace souk::market {

struct Chaos {
    explicit Chaos(uint64_t seed, World world = World()) : w(std::move(world)), rng(seed) {
        w.transit = Nanos::from_ms(rng.between(0, 3'000));
        w.calendar = Nanos{day_ns} - Nanos::from_s(rng.between(10, 300));
        w.market->set_calendar(w.calendar);
        w.refuse = [this](const Order& o) -> std::optional<OrderFailed> {
            if (!rng.chance(refusal)) return std::nullopt;
            const HomeJobRef job{w, o.id};
            return OrderFailed{o.id, o.seq, rng.chance(0.5) ? o.node : job.where(), "no"};
        };
        w.after_step = [this]() {
            check_prices();
            check_limits();
        };
        for (int64_t i = 1, n = rng.between(1, 6); i <= n; ++i)
            w.add_node("n" + std::to_string(i), rng.between(1, 4) * 50, rng.between(0, 30),
                       static_cast<int32_t>(rng.between(1, 4)), rng.between(2, 8) * 256);
        if (!rng.chance(0.3)) return;
        for (auto [name, p] : std::map(w.providers)) {  // of several kinds
            p.machine = {"x86_64", "6.1", rng.chance(0.9) ? "4.2" : "4.3", 4096,
                         rng.chance(0.5) ? "avx fpu" : "fpu"};
            w.set_provider(p);
        }
    }
    int32_t cpus_most = 2;     // that a job needs
    int64_t memory_steps = 4;  // of 200 MB
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
                ck_assert_msg(
                    w.market->cost(job, w.now) <= terms.budget && r.account.amount <= terms.budget,
                    "%s has spent more than its budget", id.text().c_str());
            const Node* node = w.market->find_node(r.report.where);
            ck_assert_msg(r.price <= terms.max_price, "%s pays %ld, bids %ld", id.text().c_str(),
                          r.price.micro, terms.max_price.micro);
            // A guest whose node's reserve rose above its bid is on its way out. It still pays what
            // it paid before.
            const bool stays = !job.record.order && node->connected &&
                               w.connected.contains(id.home) && job.reported;
            if (stays && node->record.report.reserve <= job.bid &&
                raised_reserve.count(r.report.where) == 0)
                ck_assert_msg(r.price >= node->record.report.reserve,
                              "%s pays %ld, reserve %ld; %s", id.text().c_str(), r.price.micro,
                              node->record.report.reserve.micro, w.market->comment(job).c_str());
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
                         static_cast<int32_t>(rng.between(1, cpus_most)),
                         rng.between(0, memory_steps) * 200,
                         rng.chance(0.2) ? Money{rng.between(1, 400'000)} : Money{}, any_user());
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
                if (auto* job = any_job(); job && rng.chance(0.3))
                    (void)w.market->cancel(job->report.id, 0);
                return;
            }
            case 10: {
                auto* job = any_job();
                if (!job) return;
                const JobId id = job->report.id;
                switch (rng.below(4)) {
                    case 0: (void)w.market->move(id, any_node(), rng.chance(0.3), 0); return;
                    case 1: (void)w.market->freeze(id, rng.chance(0.3), 0); return;
                    case 2:
                        (void)w.market->thaw(id, rng.chance(0.5) ? any_node() : "", rng.chance(0.3),
                                             0);
                        return;
                    default: (void)w.market->release(id, 0); return;
                }
            }
            default: return limit_somebody();
        }
    }
    uint32_t any_user() { return 1000 + static_cast<uint32_t>(rng.below(3)); }
    void limit_somebody() {
        if (!rng.chance(0.4)) return;
        const uint32_t uid = any_user();
        UserLimits l;
        if (rng.chance(0.5)) l.jobs = static_cast<int32_t>(rng.between(0, 4));
        if (rng.chance(0.5)) l.cpus = static_cast<int32_t>(rng.between(0, 5));
        if (rng.chance(0.5)) l.spend_per_day = Money{rng.between(0, 500'000)};
        set_limits(uid, l);
    }
    void set_limits(uint32_t uid, const UserLimits& l) {
        ck_assert(w.market->set_limits(uid, "u" + std::to_string(uid), l, 0, w.now).has_value());
        spent_before[uid] = money_max;
        ran.erase(uid);  // who has more already gives it up in time
        limits[uid] = l;
    }

    // No user's jobs run beyond his limits (but those that ran when the limits were set), and none
    // pays more in a day.
    void check_limits() {
        std::map<uint32_t, std::pair<int32_t, int32_t>> runs;
        std::map<uint32_t, Money> cost;
        for (const auto& [id, job] : w.jobs) {
            const JobPhase phase = job.report.phase;
            if (phase == JobPhase::waiting || phase == JobPhase::frozen ||
                phase == JobPhase::finished)
                continue;
            ++runs[job.report.uid].first;
            runs[job.report.uid].second += job.report.terms.cpus;
        }
        for (const auto& [id, record] : w.stored_jobs)
            cost[record.report.uid] += record.account.amount;
        const int64_t day = day_of(w.now + w.calendar);
        if (std::exchange(today, day) != day) cost_before = cost;
        for (const auto& [uid, l] : limits) {
            const auto before = ran.contains(uid) ? ran[uid] : std::pair(INT32_MAX, INT32_MAX);
            const std::pair now = runs[uid];
            ck_assert_msg(now.first <= std::max(l.jobs.value_or(INT32_MAX), before.first),
                          "%u runs %d jobs", uid, now.first);
            ck_assert_msg(now.second <= std::max(l.cpus.value_or(INT32_MAX), before.second),
                          "%u uses %d CPUs", uid, now.second);
            ran[uid] = now;
            const Money spent = cost[uid] - cost_before[uid];
            const Money most = std::max(l.spend_per_day.value_or(money_max), spent_before[uid]);
            ck_assert_msg(spent <= most, "%u has spent %ld of %ld", uid, spent.micro, most.micro);
            spent_before[uid] = l.spend_per_day && spent <= *l.spend_per_day ? Money{} : spent;
            const auto user = w.market->users().find(uid);
            if (user == w.market->users().end()) continue;
            if (l.spend_per_day && w.market->day_is_spent(user->second)) ++days_spent;
            if (user->second.held > 0) ++holds;
        }
    }

    void heal() {
        for (auto& [uid, l] : limits) set_limits(uid, {});
        refusal = 0;
        healed = true;
        for (auto& [name, p] : w.providers) {
            p.on_market = true;
            p.reserve = {};
            if (!w.connected.contains(name)) w.connect(name);
            w.set_provider(p);
        }
        // The largest job must find a place too.
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
    std::map<uint32_t, UserLimits> limits;
    std::map<uint32_t, std::pair<int32_t, int32_t>> ran;  // jobs, CPUs
    std::map<uint32_t, Money> cost_before, spent_before;
    int64_t today = -1;
    size_t holds = 0, days_spent = 0;
};

}  // namespace souk::market
