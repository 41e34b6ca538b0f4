// SPDX-License-Identifier: GPL-2.0-or-later
// Sequences of well-formed messages that lie, to a Market: a home that says anything of its jobs,
// and a provider that says anything of itself and of whatever job, beside an honest home and two
// honest providers. Half of its jobs ask for places ahead, promises and named resources. Nothing
// that they say ends the machine; its books balance; each record can be read back; the honest jobs
// pay for what they run alone, and one of them gets a place soon although the liars go on.
// SOUK_LIES=N: so many seeds, from SOUK_LIES_FROM on.
#include <cstdlib>

#include "tests/unit/lied_world.hpp"
#include "tests/unit/seeds.hpp"
#include "tests/unit/wire_samples.hpp"

using namespace souk;
using namespace souk::market;

namespace {

const NodeName liar = "evil", lender = "bad";
constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
constexpr uint32_t honest_uid = 1'000, liars_uid = 2'000;
constexpr int64_t liars_bid_max = 50, honest_bid = 60;

struct LiedMarket : LiedWorld {
    std::map<JobId, Order> ordered;  // the liar's jobs
    std::vector<JobId> honest;
    bool books = true;  // the liar's jobs ask for places ahead

    static MarketOptions options(Rng& rng) {
        MarketOptions o;
        o.metered = rng.chance(0.3);
        o.jobs_max = static_cast<size_t>(rng.chance(0.3) ? rng.between(20, 40) : 1'000);
        o.finished_recent = static_cast<size_t>(rng.between(0, 8));
        if (rng.chance(0.3)) o.solver.ageing = s(600);
        return o;
    }

    explicit LiedMarket(uint64_t number) : LiedWorld(number, options) {
        w.elsewhere = [this](const Send& send) { return heard(send); };
        w.after_step = [this] { check(); };
        if (w.options.metered) {
            MoneyOrder m;
            m.uid = honest_uid;
            m.user = "u1000";
            m.amount = Money::units(1'000'000);
            ck_assert(w.market->move_money(m, 0, w.now).has_value());
        }
        // Honest jobs may be placed at the liars, too.
        ProviderReport p;
        p.node = lender;
        p.on_market = true;
        p.cpus = 1'000'000;
        p.memory_mb = p.free_mb = int64_t{1} << 40;
        w.providers[lender] = w.providers[liar] = p;
        come(liar);
        come(lender);
        for (int i = 0; i < 3; ++i) submit();
        w.decide();  // what was ordered by hand is stored
    }

    void come(const NodeName& name) {
        ck_assert(w.market->agent_connected(name, "10.0.0.9:1", w.now).has_value());
        w.connected.insert(name);
    }

    JobId submit() {
        honest.push_back(w.submit(rng.chance(0.5) ? "n1" : "n2", honest_bid,
                                  s(rng.between(20, 400)), 1, rng.between(1, 900)));
        return honest.back();
    }

    // A message to a liar.
    bool heard(const Send& send) {
        if (const auto* order = std::get_if<Order>(&send.message); order && order->id.home == liar)
            ordered[order->id] = *order;
        return send.node == liar || send.node == lender;
    }

    // Holds at every step, beside World::check.
    void check() {
        for (const JobId& id : honest) {
            const Job* const job = w.market->find(id);
            if (!job || w.jobs.at(id).settled) continue;
            const auto& r = job->record.report;
            // A node that has it may say that it has not.
            const auto lies = [](const NodeName& n) { return n == liar || n == lender; };
            const bool is_touched =
                r.uid != honest_uid || (job->record.unbacked && !lies(r.where) && !lies(r.to));
            ck_assert_msg(!is_touched, "seed %lu: job %s was touched",
                          static_cast<unsigned long>(seed), id.text().c_str());
            // per CPU-hour, of what it has run, and of what two clocks may differ by
            const double run = (w.run_time(w.jobs.at(id)) + s(5)).seconds();
            const double most = static_cast<double>(r.terms.max_price.micro) * run / 3'600 + 1;
            ck_assert_msg(static_cast<double>(w.market->cost(*job, w.now).micro) <= most,
                          "seed %lu: job %s costs too much", static_cast<unsigned long>(seed),
                          id.text().c_str());
        }
        for (const Receipt& receipt : w.receipts)
            ck_assert_msg(
                receipt.moves() || (receipt.uid == honest_uid) == (receipt.job.home != liar),
                "seed %lu: somebody pays for the jobs of others", static_cast<unsigned long>(seed));
        w.receipts.erase(w.receipts.begin(), w.receipts.end() - !w.receipts.empty());
    }

    NodeName any_node() {
        const NodeName all[] = {"n1", "n2", "n1", "n2", liar, lender, "ghost"};
        return all[rng.below(7)];
    }
    JobId liars_job() {
        return {liar, 1 + rng.below(60) + (rng.chance(0.02) ? uint64_t{1} << 20 : 0)};
    }
    JobId any_job() { return rng.chance(0.5) ? liars_job() : honest[rng.below(honest.size())]; }
    Epoch any_epoch(const JobId& id) {
        const Job* const job = w.market->find(id);
        return job && rng.chance(0.7) ? job->record.report.epoch
                                      : Epoch{static_cast<uint64_t>(rng.between(0, 9))};
    }

    // Places ahead, promises, named resources and what a node is to be like.
    void ask_for_more(JobReport& r) {
        JobTerms& t = r.terms;
        if (rng.chance(0.5)) t.runtime = s(rng.between(1, 100));
        if (rng.chance(0.2)) t.needs = rng.chance(0.5) ? "speed>=1" : "gpu=a100";
        if (rng.chance(0.2)) t.resources = rng.chance(0.5) ? "gpu=1" : "gpu=1 seat=2";
        if (!books || rng.chance(0.5)) return;
        Booking b;
        b.promise = rng.chance(0.5);
        if (b.promise) t.finish = s(rng.between(1, 400));
        if (!b.promise || rng.chance(0.1)) b.span = s(rng.between(1, 60));
        if (rng.chance(0.3)) b.start = w.now + w.calendar + s(rng.between(-60, 120));
        b.early = rng.chance(0.3);
        b.holds = rng.chance(0.3);
        if (rng.chance(0.2)) b.within = any_job().text();
        t.booking = b;
    }

    JobReport report() {
        JobReport r = unit::sample<JobReport>(rng);
        r.id = liars_job();
        r.uid = liars_uid + static_cast<uint32_t>(rng.below(3));
        r.user = "liar";
        if (rng.chance(0.95)) r.terms.max_price = Money::units(rng.between(1, liars_bid_max));
        r.terms.max_price = std::min(r.terms.max_price, Money::units(liars_bid_max));
        if (rng.chance(0.7)) r.terms.cpus = static_cast<int32_t>(rng.between(1, 3));
        if (rng.chance(0.7)) r.terms.memory_mb = rng.between(0, 3'000);
        if (rng.chance(0.8)) r.terms.budget = {};
        if (rng.chance(0.8)) r.terms.project.clear();
        if (rng.chance(0.7)) r.gang.clear();
        if (rng.chance(0.7)) r.waits_for.clear();
        if (rng.chance(0.8)) r.lacking.clear();
        if (rng.chance(0.8)) r.no_user.clear();
        if (!r.gang.empty()) r.gang = liars_job().text();
        if (rng.chance(0.8)) r.submitted = w.now + w.calendar;
        if (rng.chance(0.8)) r.where = any_node();
        if (rng.chance(0.8)) r.to = any_node();
        if (rng.chance(0.5)) r.cannot_move.clear();
        if (rng.chance(0.8)) r.stats.run_time = Nanos{rng.between(0, s(1'000).ns)};
        if (rng.chance(0.9)) r.order_seq = static_cast<uint64_t>(rng.between(0, 200));
        r.epoch = any_epoch(r.id);
        const auto given = ordered.find(r.id);
        if (given != ordered.end() && rng.chance(0.7)) {  // as if it were carried out
            r.order_seq = given->second.seq;
            if (given->second.kind == Order::Kind::run) r.where = r.to = given->second.node;
        }
        if (rng.chance(0.4)) r.phase = JobPhase::waiting;
        if (rng.chance(0.5)) ask_for_more(r);
        return r;
    }

    // An error would end the liar's connection, as marketd does; the market is as before.
    void say(const NodeName& who, const ToMarket& message) {
        if (!w.connected.contains(who)) return come(who);
        if (const auto* r = std::get_if<JobReport>(&message); r && !w.market->find(r->id))
            if (const auto it = w.stored_jobs.find(r->id);
                it != w.stored_jobs.end() && it->second.finish_seq > 0)
                w.market->recall(it->second);
        if (!w.market->report(who, message, w.now)) w.disconnect(who);
    }

    void lie() {
        switch (rng.below(12)) {
            case 0: {
                OrderFailed f = unit::sample<OrderFailed>(rng);
                f.id = rng.chance(0.8) ? liars_job() : any_job();
                if (const auto given = ordered.find(f.id); given != ordered.end())
                    f.seq = given->second.seq;
                return say(rng.chance(0.8) ? liar : lender, f);
            }
            case 1:
            case 2: {
                const NodeName who = rng.chance(0.5) ? lender : liar;
                ProviderReport p = unit::sample<ProviderReport>(rng);
                p.node = rng.chance(0.95) ? who : any_node();
                if (rng.chance(0.5)) p.reserve = Money::units(rng.between(0, 70));
                if (rng.chance(0.5)) p.machine = {};
                if (rng.chance(0.5)) p.cannot.clear();
                if (rng.chance(0.3)) {
                    const auto from = static_cast<int32_t>(rng.between(0, OpenHours::week_s - 1));
                    const auto to = static_cast<int32_t>(rng.between(1, 2 * OpenHours::week_s));
                    p.hours.push_back({from, to, Money::units(rng.between(0, 70))});
                }
                if (rng.chance(0.3))
                    p.resources.push_back({rng.chance(0.5) ? "gpu" : "seat", rng.between(0, 4),
                                           Money::units(rng.between(0, 9)), rng.chance(0.5)});
                return say(who, p);
            }
            case 3: {
                UseReport use = unit::sample<UseReport>(rng);
                for (JobUse& one : use.jobs) one.id = any_job(), one.epoch = any_epoch(one.id);
                for (JobSend& one : use.sends) one.id = any_job(), one.epoch = any_epoch(one.id);
                return w.market->use_report(rng.chance(0.7) ? lender : liar, use, w.now);
            }
            case 4: {
                if (rng.chance(0.8)) return;
                const NodeName who = rng.chance(0.5) ? lender : liar;
                return w.connected.contains(who) ? w.disconnect(who) : come(who);
            }
            case 5: {
                JobReport r = report();
                r.id = any_job();
                return say(lender, r);
            }
            default: return say(liar, report());
        }
    }

    // A job that takes all of the node, and has it, if its home is believed.
    void siege(const NodeName& node) {
        const JobPhase phases[] = {JobPhase::starting, JobPhase::running, JobPhase::frozen};
        JobReport r;
        r.id = liars_job();
        r.uid = liars_uid;
        r.terms.max_price = Money::units(liars_bid_max);
        r.terms.cpus = 2;
        r.terms.memory_mb = 2'000;
        r.phase = phases[rng.below(3)];
        r.where = node;
        r.epoch = any_epoch(r.id);
        r.in_place = true;
        r.cannot_move = "it is said so";
        if (const auto given = ordered.find(r.id); given != ordered.end())
            r.order_seq = given->second.seq;
        say(liar, r);
    }

    // Honest nodes tell how long guests run there.
    void tell_use() {
        for (const char* name : {"n1", "n2"}) {
            UseReport use;
            for (const JobId& id : honest) {
                const World::HomeJob& job = w.jobs.at(id);
                if (job.report.where != name || job.run_since == Nanos::never()) continue;
                const Nanos before = std::max(Nanos{}, job.report.stay_run);
                use.jobs.push_back({id, job.report.epoch, w.run_time(job) - before, {}, false});
            }
            w.market->use_report(name, use, w.now);
        }
    }

    void restart() {
        w.restart();
        for (const char* name : {"n1", "n2"}) w.connect(name);
        ordered.clear();
    }

    void play() {
        constexpr int steps = 60;
        for (int i = 0; i < steps; ++i) {
            for (auto n = rng.between(1, 4); n > 0; --n) lie();
            if (i % 10 == 0) tell_use();
            if (rng.chance(0.1) && honest.size() < 10) submit();
            if (rng.chance(0.01)) restart();
            w.run_for(Nanos::from_ms(rng.between(0, 2'000)));
        }
        // One that bids more than all others, while the liars offer nothing and claim everything.
        books = false;
        const JobId probe = w.submit("n1", honest_bid + 1, Nanos::never(), 1, 1);
        constexpr int minutes = 30;
        for (int i = 0; i < 2 * minutes && w.phase(probe) != JobPhase::running; ++i) {
            lie();
            for (const NodeName& who : {liar, lender}) {
                ProviderReport off;
                off.node = who;
                say(who, off);
            }
            for (const char* name : {"n1", "n2"}) siege(name);
            tell_use();
            w.run_for(s(30));
        }
        ck_assert_msg(w.phase(probe) == JobPhase::running, "seed %lu: waits: %s",
                      static_cast<unsigned long>(seed),
                      w.market->find(probe) ? w.comment(probe).c_str()
                                            : w.jobs.at(probe).note.comment.c_str());
        for (const char* name : {"n1", "n2"}) ck_assert(w.connected.contains(name));
    }
};

}  // namespace

START_TEST(nothing_that_a_home_and_a_provider_say_touches_the_jobs_of_others) {
    for (const uint64_t seed : seeds_of_lies(40)) LiedMarket(seed).play();
}
END_TEST

UNIT_SUITE(market_lies, nothing_that_a_home_and_a_provider_say_touches_the_jobs_of_others);
