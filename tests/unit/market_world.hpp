// SPDX-License-Identifier: GPL-2.0-or-later
// World: a Market with homes that obey it, on virtual time. A home here is as small as the market
// can tell: it takes an order, is in transit for a while, then reports where the job is. It keeps
// the true run time of every job, and what the market stored, so that a test may restart the market
// from its records.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "market/core/market.hpp"
#include "tests/unit/unit.hpp"

namespace souk::market {

struct World {
    struct HomeJob {
        JobReport report;
        Nanos run_since = Nanos::never();
        std::optional<Order> doing;
        Nanos done_at = Nanos::never();
        Nanos work = Nanos::never();  // ends after so much run time
        bool settled = false;
        std::string immovable;  // why; it cannot be dumped, and a freeze stops it where it is
        JobNote note;
    };
    MarketOptions options;
    std::unique_ptr<Market> market;
    Nanos now = Nanos::from_s(1);
    Nanos transit = Nanos::from_ms(10);
    Nanos calendar;  // what to add to `now` for Unix time
    Nanos zone;      // and to that for local time
    std::map<JobId, HomeJob> jobs;
    std::map<NodeName, ProviderReport> providers;
    std::set<NodeName> connected;
    std::map<NodeName, uint64_t> next_id;
    // all that were ever given
    std::vector<Order> orders;
    std::map<NodeName, ProviderNote> provider_notes;
    // of one that is refused: for want of its program
    std::function<bool(const Order&)> lacks;
    // asked when an order is about to be done
    std::function<std::optional<OrderFailed>(const Order&)> refuse;
    // Set by GangHomes (gang_homes.hpp), for components. True: its node holds it, and it does not
    // run yet.
    std::function<bool(HomeJob&, const Order&)> holds;
    std::function<void(HomeJob&)> start_failed, aborted;
    std::function<void()> after_step;
    // True: a message to a home that is none of these, which takes it.
    std::function<bool(const Send&)> elsewhere;
    std::function<void(const JobRecord&)> sees_record;
    std::function<void()> restarted;  // a new market has its records, and has not started
    std::map<JobId, JobRecord> stored_jobs;
    std::map<NodeName, NodeRecord> stored_nodes;
    MetaRecord stored_meta;
    std::map<Holder, AccountRecord> stored_accounts;
    std::map<uint32_t, UserRecord> stored_users;
    std::map<int64_t, PriceRecord> stored_prices;
    std::vector<Receipt> receipts;  // all that were ever stored
    std::map<JobId, Money> paid;    // by these

    explicit World(MarketOptions o = {}) : options(std::move(o)) { restart(); }

    // A new market from what the old one stored; nobody is connected to it.
    void restart() {
        market = std::make_unique<Market>(options);
        connected.clear();
        market->load(stored_meta);
        for (const auto& [id, r] : stored_jobs) market->load(r);
        for (const auto& [name, r] : stored_nodes) market->load(r);
        for (const auto& [holder, r] : stored_accounts) market->load(r);
        for (const auto& [uid, r] : stored_users) market->load(r);
        for (const auto& [minute, r] : stored_prices) market->load(r);
        market->set_calendar(calendar, zone);
        if (restarted) restarted();
        market->started(now);
    }
    void connect(const NodeName& node) {
        ck_assert(market->agent_connected(node, "10.0.0.1:1", now).has_value());
        connected.insert(node);
        if (providers.contains(node))
            ck_assert(market->report(node, providers[node], now).has_value());
        for (auto& [id, job] : jobs)
            if (id.home == node && !job.settled) tell(job);
    }
    void disconnect(const NodeName& node) {
        connected.erase(node);
        market->agent_lost(node, now);
    }
    // A node that is home and provider at once.
    void add_node(const NodeName& node, int64_t speed, int64_t reserve, int32_t cpus = 1,
                  int64_t memory_mb = 1000) {
        ProviderReport p;
        p.node = node;
        p.on_market = true;
        p.reserve = Money::units(reserve);
        p.speed = speed;
        p.cpus = cpus;
        p.memory_mb = p.free_mb = memory_mb;
        p.holds = true;
        providers[node] = p;
        connect(node);
    }
    void set_provider(const ProviderReport& p) {
        providers[p.node] = p;
        if (connected.contains(p.node)) ck_assert(market->report(p.node, p, now).has_value());
    }
    JobId submit(const NodeName& home, int64_t price, Nanos work = Nanos::never(), int32_t cpus = 1,
                 int64_t memory = 100, Money budget = {}, uint32_t uid = 1000) {
        JobId id{home, ++next_id[home]};
        HomeJob& job = jobs[id];
        job.report.id = id;
        job.report.uid = uid;
        job.report.user = "u" + std::to_string(uid);
        job.report.terms.max_price = Money::units(price);
        job.report.terms.cpus = cpus;
        job.report.terms.memory_mb = memory;
        job.report.terms.budget = budget;
        job.report.submitted = now;
        job.work = work;
        tell(job);
        return id;
    }
    // Components of one CPU each, or of `cpus`; those from `required` on are optional.
    std::vector<JobId> submit_gang(const NodeName& home, int64_t price, uint32_t of,
                                   int32_t cpus = 1, Nanos work = Nanos::never(),
                                   uint32_t required = UINT32_MAX,
                                   const std::function<void(JobReport&)>& with = {}) {
        std::vector<JobId> ids;
        for (uint32_t i = 0; i < of; ++i) {
            const JobId id{home, ++next_id[home]};
            ids.push_back(id);
            HomeJob& job = jobs[id];
            job.report.id = id;
            job.report.uid = 1000;
            job.report.user = "u1000";
            job.report.terms.max_price = Money::units(price);
            job.report.terms.cpus = cpus;
            job.report.terms.memory_mb = 100;
            job.report.submitted = now;
            job.report.gang = ids[0].text();
            job.report.component = i;
            job.report.components = of;
            job.report.optional = i >= required;
            job.work = work;
            if (with) with(job.report);
            tell(job);
        }
        return ids;
    }
    JobId submit_as(uint32_t uid, const NodeName& home, int64_t price) {
        return submit(home, price, Nanos::never(), 1, 100, {}, uid);
    }
    void tell(HomeJob& job) {
        const JobId& id = job.report.id;
        if (!connected.contains(id.home)) return;
        if (const auto it = stored_jobs.find(id);
            !market->find(id) && it != stored_jobs.end() && it->second.finish_seq > 0)
            market->recall(it->second);  // as the shell does
        ck_assert(market->report(id.home, job.report, now).has_value());
    }
    static void stop_clock(HomeJob& job, Nanos at) {
        if (job.run_since != Nanos::never()) job.report.stats.run_time += at - job.run_since;
        job.run_since = Nanos::never();
    }
    Nanos run_time(const HomeJob& job) const {
        return job.report.stats.run_time +
               (job.run_since == Nanos::never() ? Nanos{0} : now - job.run_since);
    }

    void take(const Order& order) {
        HomeJob& job = jobs.at(order.id);
        JobReport& r = job.report;
        if (r.phase == JobPhase::finished) return tell(job);
        if (order.seq <= r.order_seq) return;
        r.order_seq = order.seq;
        if (order.kind == Order::Kind::abort) {
            r.cancelled = true;
            r.why = "cancelled";
            end(job);
            if (aborted) aborted(job);
            return;
        }
        if (order.kind == Order::Kind::give_up) {
            ck_assert(r.phase == JobPhase::waiting && !r.lacking.empty());
            r.why = "no node has its program";
            return end(job);
        }
        if (order.kind == Order::Kind::suspend && r.phase == JobPhase::waiting) return tell(job);
        ck_assert_msg(!job.doing, "job %s has an order already", order.id.text().c_str());
        job.doing = order;
        job.done_at = now + transit;
        if (order.kind == Order::Kind::suspend) {
            const bool stands = r.phase == JobPhase::frozen && r.in_place;
            ck_assert(r.phase == JobPhase::running || (stands && !order.stand));
            ck_assert(job.immovable.empty() || !stands);
            r.phase = JobPhase::freezing;
            stop_clock(job, now);
            return tell(job);
        }
        if (r.phase == JobPhase::waiting) {
            r.phase = JobPhase::starting;
            r.where = order.node;
            r.epoch = r.epoch.next();
            return;
        }
        if (r.in_place && r.where == order.node) {
            r.in_place = false;
            r.phase = JobPhase::running;
            job.run_since = now;
            job.doing.reset();
            job.done_at = Nanos::never();
            return tell(job);
        }
        ck_assert_msg(r.phase == JobPhase::frozen || r.where != order.node,
                      "%s is there already, %s: %s", order.id.text().c_str(), to_string(r.phase),
                      order.reason.c_str());
        const Machine &there = providers[order.node].machine, &here = providers[r.where].machine;
        ck_assert_msg(there.architecture.empty() || here.architecture.empty() ||
                          can_take(there, here).has_value(),
                      "%s cannot go on on %s", order.id.text().c_str(), order.node.c_str());
        ck_assert_msg(job.immovable.empty(), "%s is to move, and cannot", order.id.text().c_str());
        ck_assert_msg(!r.in_place, "%s stands, and is to move", order.id.text().c_str());
        r.phase = r.phase == JobPhase::frozen ? JobPhase::thawing : JobPhase::moving;
        r.to = order.node;
        stop_clock(job, now);
        tell(job);
    }
    void end(HomeJob& job) {
        stop_clock(job, now);
        job.report.phase = JobPhase::finished;
        job.report.to.clear();
        job.doing.reset();
        job.done_at = Nanos::never();
        tell(job);
    }
    void done(HomeJob& job) {
        JobReport& r = job.report;
        const Order order = *std::exchange(job.doing, std::nullopt);
        job.done_at = Nanos::never();
        if (const auto failed = refuse ? refuse(order) : std::nullopt) {
            if (lacks && lacks(order)) r.lacking.push_back(order.node);
            if (r.phase == JobPhase::starting)
                r.phase = JobPhase::waiting, r.where.clear();
            else if (r.phase == JobPhase::thawing || r.in_place)
                r.phase = JobPhase::frozen;
            else
                r.phase = JobPhase::running, job.run_since = now;
            r.to.clear();
            r.comment = failed->why;
            if (connected.contains(r.id.home))
                ck_assert(market->report(r.id.home, *failed, now).has_value());
            tell(job);
            if (start_failed) start_failed(job);
            return;
        }
        if (order.kind == Order::Kind::suspend) {
            r.phase = JobPhase::frozen;
            r.in_place = !job.immovable.empty() || order.stand;
            if (!r.in_place) ++r.stats.freezes;
            return tell(job);
        }
        if (!holds || !holds(job, order)) runs(job, order);
    }
    void runs(HomeJob& job, const Order& order) {
        JobReport& r = job.report;
        if (r.phase == JobPhase::moving) ++r.stats.migrations;
        r.in_place = false;
        if (r.phase == JobPhase::thawing) ++r.stats.thaws;
        if (r.phase != JobPhase::starting) r.epoch = r.epoch.next();
        r.phase = JobPhase::running;
        r.where = order.node;
        r.to.clear();
        r.stay_run = r.stats.run_time;
        r.places.push_back(order.node);
        job.run_since = now;
        tell(job);
    }
    // Lets the market decide once at the present time, and carries out its outputs.
    void decide() {
        Outputs out;
        market->solve(now, out);
        for (const StoreOp& op : out.store) {
            if (const auto* job = std::get_if<JobRecord>(&op)) {
                if (sees_record) sees_record(*job);
                // A job of another site that comes again has a new account.
                if (const auto it = stored_jobs.find(job->report.id);
                    it != stored_jobs.end() && it->second.finish_seq > 0 &&
                    it->second.finish_seq != job->finish_seq)
                    paid.erase(job->report.id);
                stored_jobs[job->report.id] = *job;
            }
            if (const auto* node = std::get_if<NodeRecord>(&op)) stored_nodes[node->node] = *node;
            if (const auto* meta = std::get_if<MetaRecord>(&op)) stored_meta = *meta;
            if (const auto* user = std::get_if<UserRecord>(&op)) stored_users[user->uid] = *user;
            if (const auto* gone = std::get_if<EraseUser>(&op)) stored_users.erase(gone->uid);
            if (const auto* price = std::get_if<PriceRecord>(&op))
                stored_prices[price->minute] = *price;
            if (const auto* gone = std::get_if<EraseNode>(&op)) stored_nodes.erase(gone->node);
            if (const auto* gone = std::get_if<ErasePrice>(&op)) stored_prices.erase(gone->minute);
            if (const auto* account = std::get_if<AccountRecord>(&op))
                stored_accounts[account->holder] = *account;
            if (const auto* receipt = std::get_if<Receipt>(&op)) {
                receipts.push_back(*receipt);
                if (!receipt->moves()) paid[receipt->job] += receipt->paid;
            }
        }
        for (const Send& send : out.send) {
            if (!of_site(send.node).site.empty() && elsewhere && elsewhere(send)) continue;
            ck_assert_msg(connected.contains(send.node), "a message to %s, which is not connected",
                          send.node.c_str());
            if (const auto* order = std::get_if<Order>(&send.message)) {
                ck_assert(orders.empty() || order->seq > orders.back().seq);
                ck_assert(order->seq < stored_meta.seq_limit);
                orders.push_back(*order);
                if (elsewhere && elsewhere(send)) continue;
                take(*order);
            }
            if (const auto* note = std::get_if<JobNote>(&send.message)) {
                const auto job = jobs.find(note->id);
                if (job == jobs.end()) continue;
                job->second.note = *note;
                if (note->settled) job->second.settled = true;
            }
            if (const auto* note = std::get_if<ProviderNote>(&send.message))
                provider_notes[send.node] = *note;
        }
        check();
        check_stored();
        if (after_step) after_step();
    }
    // These statements must hold at every step.
    void check() const {
        ck_assert_text(market->audit(), "");
        std::map<NodeName, std::pair<int64_t, int64_t>> used;
        for (const auto& [id, job] : jobs) {
            const JobReport& r = job.report;
            if (!r.terms.booking->within.empty()) continue;  // another job has its room
            const auto occupy = [&](const NodeName& n) {
                used[n].first += r.terms.cpus;
                used[n].second += r.terms.memory_mb;
            };
            switch (r.phase) {
                case JobPhase::moving: occupy(r.to); [[fallthrough]];
                case JobPhase::starting:
                case JobPhase::running:
                case JobPhase::freezing:
                    occupy(r.where);
                    if (r.in_place) used[r.where].first -= r.terms.cpus;  // it stood
                    break;
                case JobPhase::thawing: occupy(r.to); break;
                case JobPhase::frozen:
                    if (r.in_place) used[r.where].second += r.terms.memory_mb;
                    break;
                default: break;
            }
        }
        for (const auto& [name, u] : used) {
            if (!of_site(name).site.empty()) continue;  // the other site looks after it
            ck_assert_msg(u.first <= providers.at(name).cpus, "%s has %ld CPUs in use",
                          name.c_str(), u.first);
            ck_assert_msg(u.second <= providers.at(name).memory_mb, "%s has %ld MB in use",
                          name.c_str(), u.second);
        }
    }
    // A crash now must leave a complete account: each job's cost is in its receipts and its open
    // tab, and each receipt is on both sides.
    void check_stored() const {
        ck_assert_uint_eq(receipts.empty() ? 0 : receipts.back().seq, stored_meta.receipts);
        for (const auto& [id, record] : stored_jobs) {
            const auto sum = paid.find(id);
            ck_assert_msg((sum == paid.end() ? Money{} : sum->second) + record.tab.amount ==
                              record.account.amount,
                          "job %s costs other than its receipts say", id.text().c_str());
        }
        Money sum;
        for (const auto& [holder, record] : stored_accounts) sum += record.balance;
        ck_assert_int_eq(sum.micro, 0);
    }
    // Runs until nothing happens any more before `end`.
    void run_until(Nanos end) {
        for (int steps = 0;; ++steps) {
            ck_assert_msg(steps < 200'000, "it never comes to rest");
            decide();
            Nanos next = std::max(now, market->next_call());
            for (const auto& [id, job] : jobs) {
                next = std::min(next, std::max(now, job.done_at));
                if (job.run_since != Nanos::never() && job.work != Nanos::never())
                    next = std::min(next, now + std::max(Nanos{0}, job.work - run_time(job)));
            }
            if (next > end) break;
            now = next;
            for (auto& [id, job] : jobs) {
                if (job.done_at <= now)
                    done(job);
                else if (job.run_since != Nanos::never() && run_time(job) >= job.work)
                    end_by_itself(job);
            }
        }
        now = end;
    }
    // The job turns out to be one that cannot be dumped.
    void becomes_immovable(const JobId& id, const std::string& why) {
        HomeJob& job = jobs.at(id);
        job.immovable = job.report.cannot_move = why;
        tell(job);
    }
    void paused(const JobId& id, const souk::Cause& why) {
        HomeJob& job = jobs.at(id);
        job.report.paused = why;
        job.report.stands = !why.empty();
        tell(job);
    }
    void end_by_itself(HomeJob& job) { end(job); }
    void run_for(Nanos span) { run_until(now + span); }

    JobPhase phase(const JobId& id) const { return jobs.at(id).report.phase; }
    std::string where(const JobId& id) const {
        return phase(id) == JobPhase::running ? jobs.at(id).report.where : to_string(phase(id));
    }
    std::string comment(const JobId& id) const { return market->comment(*market->find(id)); }
    Money cost(const JobId& id) const { return market->cost(*market->find(id), now); }
};

inline void three_nodes(World& w) {
    w.add_node("n1", 300, 1);
    w.add_node("n2", 200, 1);
    w.add_node("n3", 100, 1);
    w.run_for(Nanos::from_s(4));
}

}  // namespace souk::market
