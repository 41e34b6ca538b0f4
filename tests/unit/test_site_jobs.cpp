// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of one site that run at another (market/core/lent_jobs.hpp, site_guests.hpp): two markets
// whose words are carried from one to the other, with breaks and restarts by a seed. The judge:
// each market's own statements hold at every step, a site has no more than its terms, each job ends
// once, and both sites have charged the same for what it ran at the other.
#include "kernel/base/rng.hpp"
#include "tests/unit/site_pair.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

// One CPU at lab, which a dearer job has, and one at uni.
struct Crowded : SitePair {
    JobId first, job;
    explicit Crowded(Nanos work = Nanos::never()) {
        lab.add_node("n1", 100, 1);
        uni.add_node("n1", 100, 1, 2);
        set_link(true);
        run(s(4));
        first = lab.submit("n1", 100);
        run(s(1));
        job = lab.submit("n1", 20, work);
        run(s(1));
        ck_assert(lab.market->lend(job, "uni", lab.now).has_value());
    }
};

}  // namespace

START_TEST(a_job_that_is_given_to_a_peer_runs_there_and_both_charge_the_same) {
    Crowded p(s(600));
    p.run(s(5));
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    ck_assert_text(p.at_uni(p.job), "running");
    ck_assert_text(p.lab.comment(p.job), "site uni has it");
    // its own market orders nothing, and another is not heard
    Order o;
    o.id = p.job;
    o.seq = 1000;
    o.node = "far:n1";
    o.address = "10.0.0.9:1";
    ck_assert(!p.lab.market->site_order("far", o, p.lab.now));
    ck_assert(!p.lab.market->site_order("uni", o, p.lab.now));
    o.id = p.first;
    o.node = "uni:n1";
    ck_assert(!p.lab.market->site_order("uni", o, p.lab.now));
    ck_assert(!p.lab.market->move(p.job, "n9", false, 0));
    // nor makes what is refused a node of anybody's, of this site least of all
    for (const char* node : {"n77", "far:n77", "uni:n77"})
        for (const JobId& id : {p.first, p.job, JobId{"n1", 999}}) {
            if (id == p.job && of_site(node).site == "uni") continue;
            o.id = id;
            o.node = node;
            ck_assert(!p.lab.market->site_order("uni", o, p.lab.now));
            ck_assert_msg(!p.lab.market->find_node(node), "%s is there", node);
        }
    p.run(s(700));
    ck_assert_text(p.lab.where(p.job), "finished");
    ck_assert_text(p.at_uni(p.job), "finished");
    ck_assert_text(p.loan(p.job).site, "");
    const Money ours = SitePair::charged(p.lab, p.job, true),
                theirs = SitePair::charged(p.uni, {"lab:n1", p.job.seq}, false);
    ck_assert_int_gt(theirs.micro, 0);
    ck_assert_int_eq(ours.micro, theirs.micro);
}
END_TEST

START_TEST(a_peer_lets_in_jobs_of_the_projects_that_it_names) {
    for (const char* asked : {"atlas", "ice", ""}) {
        SitePair p;
        p.terms.projects = {"atlas"};
        p.lab.add_node("n1", 100, 1);
        p.uni.add_node("n1", 100, 1);
        for (const char* project : {"atlas", "ice"})
            ck_assert(p.lab.market->set_member(project, 1000, true, 0, p.lab.now).has_value());
        p.set_link(true);
        p.run(s(4));
        p.lab.submit("n1", 100);
        p.run(s(1));
        const JobId id = p.lab.submit("n1", 20, s(600));
        p.lab.jobs.at(id).report.terms.project = asked;
        p.lab.tell(p.lab.jobs.at(id));
        p.run(s(1));
        must(p.lab.market->lend(id, "uni", p.lab.now));
        p.run(s(5));
        const bool comes = std::string_view("atlas") == asked;
        ck_assert_text(p.at_uni(id), comes ? "running" : "unknown");
        ck_assert_int_eq(is_lent(*p.lab.market->find(id)), comes);
    }
}
END_TEST

START_TEST(a_job_comes_home_when_its_place_is_wanted_back_and_goes_on_there) {
    Crowded p(s(600));
    p.run(s(10));
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    ProviderReport off = p.uni.providers.at("n1");
    off.on_market = false;
    p.uni.set_provider(off);
    p.run(s(10));
    ck_assert_text(p.lab.where(p.job), "frozen");
    ck_assert_text(p.lab.jobs.at(p.job).report.where, "n1");
    ck_assert_text(p.at_uni(p.job), "finished");
    ck_assert_text(p.loan(p.job).site, "");
    ck_assert(p.lab.market->cancel(p.first, 0).has_value());
    p.run(s(10));
    ck_assert_text(p.lab.where(p.job), "n1");
    p.run(s(700));
    ck_assert_text(p.lab.where(p.job), "finished");
    const Money ours = SitePair::charged(p.lab, p.job, true);
    ck_assert_int_eq(ours.micro, SitePair::charged(p.uni, {"lab:n1", p.job.seq}, false).micro);
}
END_TEST

START_TEST(a_job_that_is_not_taken_waits_at_home_and_nothing_hangs) {
    {  // by the terms
        SitePair p;
        p.terms.most_cpus = 0;
        p.open(1);
        const JobId id = p.crowd_out(20, s(5));
        ck_assert(p.lab.market->lend(id, "uni", p.lab.now).has_value());
        p.run(s(2));
        ck_assert(!is_lent(*p.lab.market->find(id)));
        ck_assert_text(p.at_uni(id), "unknown");
    }
    {  // a peer that is silent
        Crowded p(s(5));
        p.to_uni.clear();
        p.set_link(false);
        p.run(s(5));
        ck_assert(is_lent(*p.lab.market->find(p.job)));
        p.run(s(40));
        ck_assert(!is_lent(*p.lab.market->find(p.job)));
        ck_assert(p.lab.market->cancel(p.first, 0).has_value());
        p.run(s(20));
        ck_assert_text(p.lab.where(p.job), "finished");
        p.set_link(true);  // it hears that this one is over
        p.run(s(5));
        ck_assert_text(p.loan(p.job).site, "");
        ck_assert_text(p.at_uni(p.job), "unknown");
    }
}
END_TEST

START_TEST(a_site_cannot_ask_for_more_than_when_its_job_came_nor_pay_from_anothers_account) {
    Crowded p;
    p.run(s(5));
    const JobId guest{"lab:n1", p.job.seq};
    JobReport r = p.uni.market->find(guest)->record.report;
    ck_assert_uint_eq(r.uid, site_account(1));
    ck_assert_uint_eq(r.uid_there, 1000);
    ck_assert_text(r.user, "lab/u1000");
    r.uid = 0;
    r.terms.cpus = 64;
    r.terms.project = "atlas";
    r.gang = "lab:n1.1";
    const SiteGuests::Site lab{"lab", site_account(1), &p.terms, 0};
    ck_assert(p.uni.market->site_job(lab, {r, {}, {}}, p.uni.now).has_value());
    const JobReport& now = p.uni.market->find(guest)->record.report;
    ck_assert(now.terms.cpus == 1 && now.uid == site_account(1) && now.gang.empty());
    // jobs of others, and homes of this site, are not its own
    for (const char* home : {"n1", "far:n1", "lab2:n1"}) {
        r.id = {home, 77};
        ck_assert(!p.uni.market->site_job(lab, {r, {}, {}}, p.uni.now));
    }
    JobReport own;
    own.id = {"n1", 88};
    own.uid = site_account(1);
    own.terms.max_price = Money::units(1);
    ck_assert(!p.uni.market->report("n1", own, p.uni.now));
    // a job that runs already does not come
    r = now;
    r.id = {"lab:n1", 99};
    ck_assert(!p.uni.market->site_job(lab, {r, {}, {}}, p.uni.now));
    ck_assert_text(p.uni.market->audit(), "");
}
END_TEST

START_TEST(jobs_end_once_and_ledgers_agree_under_breaks_restarts_and_owners) {
    size_t went = 0, came_home = 0, ended_there = 0, moved_out = 0, moved_back = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        Rng rng(seed);
        const bool breaks = seed % 2 == 0;  // then a new price is told late
        SitePair p;
        p.terms.most_cpus = static_cast<int32_t>(rng.between(1, 4));
        p.lab.add_node("n1", 100, 1);
        p.lab.add_node("n2", 80, 2);
        for (const char* name : {"n1", "n2", "n3"})
            p.uni.add_node(name, rng.between(50, 200), rng.between(1, 10), 2);
        p.set_link(true);
        p.run(s(4));
        std::vector<JobId> all;
        for (int n = 0; n < 100; ++n) {
            const auto event = rng.below(12);
            if (event < 3 && all.size() < 8)
                all.push_back(p.lab.submit("n1", rng.between(5, 60), s(rng.between(5, 60))));
            if (event == 3) (void)p.uni.submit("n2", rng.between(5, 60), s(rng.between(5, 30)));
            if (event == 4 && breaks) p.set_link(!p.link);
            if (event == 5 && breaks && rng.below(3) == 0) {
                p.set_link(false);
                SitePair::restart(rng.below(2) ? p.lab : p.uni);
            }
            if (event == 6 || event == 7) {
                ProviderReport r = p.uni.providers.at("n" + std::to_string(rng.between(1, 3)));
                r.on_market = !r.on_market;
                p.uni.set_provider(r);
            }
            for (const JobId& id : all)
                if (event > 7 && p.lab.phase(id) == JobPhase::waiting && p.link)
                    went += p.lab.market->lend(id, "uni", p.lab.now).has_value();
                else if (event > 8 && p.lab.phase(id) == JobPhase::running &&
                         p.lab.market->find(id)) {
                    const bool is_away = of_site(p.lab.where(id)).site == "uni";
                    const auto moved = p.lab.market->move(id, is_away ? "n2" : "uni:", false, 0);
                    moved_out += !is_away && moved;
                    moved_back += is_away && moved;
                }
            p.run(s(rng.between(1, 5)));
        }
        for (const char* name : {"n1", "n2", "n3"}) {
            ProviderReport r = p.uni.providers.at(name);
            r.on_market = true;
            p.uni.set_provider(r);
        }
        p.set_link(true);
        p.run(s(900));
        for (const JobId& id : all) {
            const std::string who = "seed " + std::to_string(seed) + " " + id.text();
            ck_assert_msg(p.lab.phase(id) == JobPhase::finished, "%s is %s", who.c_str(),
                          p.lab.where(id).c_str());
            const JobId guest{"lab:n1", id.seq};
            const Job* const there = p.uni.market->find(guest);
            ck_assert_msg(!there || there->phase() == JobPhase::finished, "%s: %s at uni",
                          who.c_str(), p.at_uni(id).c_str());
            if (const Job* const job = p.lab.market->find(id))
                ck_assert_msg(job->record.loan->site.empty(), "%s is not settled", who.c_str());
            const Money ours = SitePair::charged(p.lab, id, true),
                        theirs = SitePair::charged(p.uni, guest, false);
            const int64_t apart = std::abs(ours.micro - theirs.micro);
            ck_assert_msg(breaks || apart <= 10'000 + ours.micro / 50, "%s: %ld and %ld",
                          who.c_str(), ours.micro, theirs.micro);
            ended_there += theirs.micro > 0;
            came_home += theirs.micro > 0 && SitePair::charged(p.lab, id, false).micro > 0;
        }
    }
    ck_assert(moved_out > 60 && moved_back > 30);
    ck_assert(went > 60 && ended_there > 40 && came_home > 10);
}
END_TEST

UNIT_SUITE_LONG(site_jobs, 120, a_job_that_is_given_to_a_peer_runs_there_and_both_charge_the_same,
                a_peer_lets_in_jobs_of_the_projects_that_it_names,
                a_job_comes_home_when_its_place_is_wanted_back_and_goes_on_there,
                a_job_that_is_not_taken_waits_at_home_and_nothing_hangs,
                a_site_cannot_ask_for_more_than_when_its_job_came_nor_pay_from_anothers_account,
                jobs_end_once_and_ledgers_agree_under_breaks_restarts_and_owners);
