// SPDX-License-Identifier: GPL-2.0-or-later
// Sequences of well-formed words by which the market of another site lies to this one: of jobs of
// its own, of jobs that were given to it, and of jobs that are nothing to it. Nothing that it says
// ends the machine; the books balance; each record can be read back; it has no more CPUs and nodes
// here than it may; jobs that stay here are not touched and pay for what they run; one that was
// given away pays its bid at most and ends; and a job that bids more than the site's gets a place
// although the site goes on. SOUK_LIES=N: so many seeds, from SOUK_LIES_FROM on.
#include "market/core/site_names.hpp"
#include "tests/unit/lied_world.hpp"
#include "tests/unit/seeds.hpp"
#include "tests/unit/wire_samples.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
const std::string evil = "evil", lab = "lab";
constexpr int64_t sites_bid_max = 50, honest_bid = 60;

struct LiedSites : LiedWorld {
    SiteTerms terms;
    std::vector<JobId> stays, given;
    std::map<JobId, Order> ordered;  // of the site's jobs, by their names there
    std::map<JobId, Nanos> frozen_since;
    bool link = false;

    static MarketOptions options(Rng& rng) {
        MarketOptions o;
        o.metered = rng.chance(0.3);
        o.nodes_max = 60;
        o.finished_recent = static_cast<size_t>(rng.between(0, 8));
        return o;
    }

    explicit LiedSites(uint64_t number) : LiedWorld(number, options) {
        w.elsewhere = [this](const Send& send) { return heard(send); };
        w.after_step = [this] { check(); };
        terms.most_cpus = static_cast<int32_t>(rng.between(0, 4));
        for (const uint32_t uid : {1'000U, site_account(1)}) {
            if (!w.options.metered) break;
            MoneyOrder m;
            m.uid = uid;
            m.user = "u" + std::to_string(uid);
            m.amount = Money::units(1'000'000);
            ck_assert(w.market->move_money(m, 0, w.now).has_value());
        }
        set_link(true);
        for (int i = 0; i < 4; ++i) submit();
        w.decide();
    }

    SiteGuests::Site site() const { return {evil, site_account(1), &terms, 12 * 3'600}; }

    void set_link(bool up) {
        if (std::exchange(link, up) == up) return;
        if (up)
            w.market->site_up(evil, w.now);
        else
            w.market->site_down(evil, w.now);
    }

    void submit() {
        const JobId id = w.submit(rng.chance(0.5) ? "n1" : "n2", honest_bid,
                                  s(rng.between(20, 400)), 1, rng.between(1, 900));
        if (rng.chance(0.5) && w.market->lend(id, evil, w.now))
            given.push_back(id);
        else
            stays.push_back(id);
    }

    // A message to the site, or an order that its word sends where the job is: a home has nothing
    // to do then.
    bool heard(const Send& send) {
        const auto* const order = std::get_if<Order>(&send.message);
        if (of_site(send.node).site == evil) {
            if (order) ordered[order->id] = *order;
            return true;
        }
        if (!order) return false;
        World::HomeJob& job = w.jobs.at(order->id);
        const JobReport& r = job.report;
        const bool runs = order->kind == Order::Kind::run;
        const bool is_there = runs ? r.phase == JobPhase::running && r.where == order->node
                                   : r.phase == JobPhase::frozen && !r.in_place;
        if (!is_there || job.doing || order->kind == Order::Kind::abort) return false;
        job.report.order_seq = order->seq;
        w.tell(job);
        return true;
    }

    // Holds at every step, beside World::check.
    void check() {
        int64_t cpus = 0;
        for (const auto& [id, job] : w.market->jobs())
            if (is_of_site(id) && job.phase() != JobPhase::finished)
                cpus += job.record.report.terms.cpus;
        ck_assert_msg(cpus <= terms.most_cpus, "seed %lu: the site has %ld CPUs",
                      static_cast<unsigned long>(seed), cpus);
        for (const auto& list : {stays, given})
            for (const JobId& id : list) {
                const Job* const job = w.market->find(id);
                if (!job || w.jobs.at(id).settled) continue;
                const auto& r = job->record.report;
                ck_assert_msg(r.uid == 1'000, "seed %lu: whose is %s?",
                              static_cast<unsigned long>(seed), id.text().c_str());
                if (&list == &stays || r.where.empty())
                    ck_assert_msg(!job->record.unbacked, "seed %lu: %s was touched",
                                  static_cast<unsigned long>(seed), id.text().c_str());
                const double run = (w.run_time(w.jobs.at(id)) + s(5)).seconds();
                const double most = static_cast<double>(r.terms.max_price.micro) * run / 3'600 + 1;
                ck_assert_msg(static_cast<double>(w.market->cost(*job, w.now).micro) <= most,
                              "seed %lu: job %s costs too much", static_cast<unsigned long>(seed),
                              id.text().c_str());
            }
        for (const JobId& id : stays)
            ck_assert_msg(of_site(w.jobs.at(id).report.where).site.empty(), "seed %lu: %s went",
                          static_cast<unsigned long>(seed), id.text().c_str());
        for (const Receipt& receipt : w.receipts)
            ck_assert_msg(receipt.moves() || (receipt.uid == 1'000) != is_of_site(receipt.job),
                          "seed %lu: somebody pays for the jobs of others",
                          static_cast<unsigned long>(seed));
        w.receipts.erase(w.receipts.begin(), w.receipts.end() - !w.receipts.empty());
    }

    // Names as the site writes them: its own are bare, those of this site have its name.
    NodeName any_node() {
        const NodeName all[] = {"n1", "n2", "lab:n1", "lab:n2", "lab:n9", "", "m"};
        const NodeName& name = all[rng.below(7)];
        return name == "m" ? "m" + std::to_string(rng.below(80)) : name;
    }
    JobId any_job() {
        if (rng.chance(0.6)) {
            const auto& list = rng.chance(0.8) && !given.empty() ? given : stays;
            if (!list.empty()) {
                JobId id = list[rng.below(list.size())];
                id.home = lab + ":" + id.home;
                return id;
            }
        }
        return {rng.chance(0.9) ? "n1" : any_node(), 1 + rng.below(40)};
    }

    JobReport report() {
        JobReport r = unit::sample<JobReport>(rng);
        r.id = {rng.chance(0.9) ? "n1" : "m" + std::to_string(rng.below(80)), 1 + rng.below(40)};
        if (rng.chance(0.1)) r.user = std::string(255, 'u');
        r.terms.max_price = std::min(r.terms.max_price, Money::units(sites_bid_max));
        r.terms.cpus = static_cast<int32_t>(rng.between(1, 3));
        r.terms.memory_mb = rng.between(0, 2'500);
        if (rng.chance(0.8)) r.terms.budget = {};
        if (rng.chance(0.7)) r.terms.project.clear();
        if (rng.chance(0.9)) r.gang.clear();
        if (rng.chance(0.9)) r.address = {};
        if (rng.chance(0.8)) r.only_node = NodeName();
        if (rng.chance(0.1)) r.terms.needs = "memory_mb>1";
        if (rng.chance(0.1)) r.terms.resources = "gpu=1";
        if (rng.chance(0.1)) r.terms.booking = Booking{{}, s(100), false, true, "n1.1", false};
        if (rng.chance(0.7)) r.waits_for.clear();
        for (auto* names : {&r.places, &r.lacking, &r.no_user}) {
            names->clear();
            if (rng.chance(0.2)) names->push_back("m" + std::to_string(rng.below(80)));
        }
        r.checkpoint_node = any_node();
        r.where = any_node();
        r.to = any_node();
        const JobId here{evil + ":" + r.id.home, r.id.seq};
        const Job* const known = w.market->find(here);
        if (known && rng.chance(0.7)) r.epoch = known->record.report.epoch;
        const auto told = ordered.find(here);
        if (told != ordered.end() && rng.chance(0.7)) {  // as if it were carried out
            r.order_seq = told->second.seq;
            if (told->second.kind == Order::Kind::run)
                r.where = r.to = lab + ":" + told->second.node;
        }
        if (rng.chance(0.5)) r.phase = JobPhase::waiting;
        if (r.phase == JobPhase::waiting && rng.chance(0.8)) r.where.clear();
        return r;
    }

    void say_job() {
        SiteJob word{report(), rng.chance(0.3) ? any_node() : NodeName(), "10.0.0.9:1"};
        if (!SiteBorder({evil, lab}).hear(word)) return;
        const JobId& id = word.report.id;
        if (const auto it = w.stored_jobs.find(id);
            !w.market->find(id) && it != w.stored_jobs.end() && it->second.finish_seq > 0)
            w.market->recall(it->second);
        (void)w.market->site_job(site(), word, w.now);
    }

    void say_order() {
        Order o = unit::sample<Order>(rng);
        o.id = any_job();
        o.node = any_node();
        if (rng.chance(0.7)) o.kind = Order::Kind::run;
        if (rng.chance(0.5)) o.price = Money::units(rng.between(0, 100));
        if (SiteBorder({evil, lab}).hear(o)) (void)w.market->site_order(evil, o, w.now);
    }

    void say_note() {
        SiteNote word{unit::sample<JobNote>(rng), {}};
        word.note.id = any_job();
        if (rng.chance(0.8)) word.note.settled = false;
        if (rng.chance(0.2)) word.no = souk::Cause(CauseCode::not_possible, "it is not taken");
        if (SiteBorder({evil, lab}).hear(word.note.id.home)) w.market->site_note(evil, word, w.now);
    }

    void say_failed() {
        OrderFailed f = unit::sample<OrderFailed>(rng);
        f.id = any_job();
        if (!SiteBorder({evil, lab}).hear(f)) return;
        if (const auto told = ordered.find(f.id); told != ordered.end()) f.seq = told->second.seq;
        (void)w.market->site_failed(evil, f, w.now);
    }

    void ask() {
        SiteAsk ask = unit::sample<SiteAsk>(rng);
        ask.job = {"n" + std::to_string(rng.below(90)), rng.below(50)};
        ask.terms.max_price = Money::units(rng.between(1, 100));
        ask.terms.cpus = static_cast<int32_t>(rng.between(1, 3));
        ask.terms.memory_mb = rng.between(0, 1'500);
        if (!w.market->settling()) check_readable(w.market->offer(site(), ask, w.now));
    }

    void lie() {
        switch (rng.below(12)) {
            case 0:
            case 1: return say_order();
            case 2: return say_note();
            case 3: return say_failed();
            case 4: return ask();
            case 5: return rng.chance(0.1) ? set_link(!link) : void();
            case 6: {  // an operator gives it a job that runs, or wants one back
                if (stays.empty() || rng.chance(0.9)) return;
                const JobId id = stays[rng.below(stays.size())];
                if (w.market->move(id, rng.chance(0.5) ? evil + ":" : evil + ":n1", false, 0)) {
                    given.push_back(id);
                    std::erase(stays, id);
                }
                return;
            }
            default: return say_job();
        }
    }

    void come_home() {
        for (const JobId& id : given) {
            World::HomeJob& job = w.jobs.at(id);
            JobReport& r = job.report;
            const bool is_away = r.phase == JobPhase::frozen && !r.in_place && !job.doing &&
                                 of_site(r.where).site == evil;
            if (!is_away) {
                frozen_since.erase(id);
            } else if (frozen_since.try_emplace(id, w.now).first->second + s(2) < w.now) {
                r.where = id.home;
                r.stay_run = r.stats.run_time;
                r.epoch = r.epoch.next();
                w.tell(job);
            }
        }
    }

    // Honest nodes tell how long guests run there.
    void tell_use() {
        for (const char* name : {"n1", "n2"}) {
            UseReport use;
            for (const auto& [id, job] : w.jobs) {
                if (job.report.where != name || job.run_since == Nanos::never()) continue;
                const Nanos before = std::max(Nanos{}, job.report.stay_run);
                use.jobs.push_back({id, job.report.epoch, w.run_time(job) - before, {}, false});
            }
            w.market->use_report(name, use, w.now);
        }
    }

    void pass(Nanos span) {
        for (const Nanos end = w.now + span; w.now < end;) {
            tell_use();
            w.run_for(std::min(s(5), end - w.now));
        }
    }

    void restart() {
        w.restart();
        for (const char* name : {"n1", "n2"}) w.connect(name);
        ordered.clear();
        link = false;
    }

    void play() {
        for (int i = 0; i < 60; ++i) {
            if (!link && rng.chance(0.5)) set_link(true);
            for (auto n = rng.between(1, 4); n > 0 && link; --n) lie();
            come_home();
            if (rng.chance(0.1) && stays.size() + given.size() < 12) submit();
            if (rng.chance(0.01)) restart();
            pass(Nanos::from_ms(rng.between(0, 2'000)));
        }
        set_link(true);
        const JobId probe = w.submit("n1", honest_bid + 1, Nanos::never(), 1, 1);
        stays.push_back(probe);
        for (int i = 0; i < 60 && w.phase(probe) != JobPhase::running; ++i) {
            say_job();
            ask();
            come_home();
            pass(s(30));
        }
        ck_assert_msg(w.phase(probe) == JobPhase::running, "seed %lu: waits: %s",
                      static_cast<unsigned long>(seed),
                      w.market->find(probe) ? w.comment(probe).c_str()
                                            : w.jobs.at(probe).note.comment.c_str());
        // The site is gone for good, and what is given to it ends by its users' word or here.
        for (const JobId& id : given) (void)w.market->cancel(id, 1'000);
        pass(s(60));
        // A node of this site may still come.
        w.add_node("late", 100, 1);
    }
};

}  // namespace

START_TEST(nothing_that_another_site_says_touches_the_jobs_of_this_one) {
    for (const uint64_t seed : seeds_of_lies(40)) LiedSites(seed).play();
}
END_TEST

UNIT_SUITE(site_lies, nothing_that_another_site_says_touches_the_jobs_of_this_one);
