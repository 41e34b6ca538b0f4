// SPDX-License-Identifier: GPL-2.0-or-later
// A job that runs moves between two sites by hand (market/core/lent_jobs.hpp): live, there, among
// the nodes there, and back. What is tried are all crossings: a report from before an order, orders
// that are refused, links that break and markets that die at each step, and whoever decides
// otherwise meanwhile.
#include <array>

#include "tests/unit/site_pair.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

// A job runs on lab's n1, with a second node there, and two at uni.
struct Spread : SitePair {
    JobId job;
    JobId guest;
    explicit Spread(Nanos work = Nanos::never()) {
        lab.add_node("n1", 100, 1);
        lab.add_node("n2", 100, 1);
        uni.add_node("n1", 100, 1, 2);
        uni.add_node("n2", 100, 1, 2);
        set_link(true);
        run(s(4));
        job = lab.submit("n1", 20, work);
        guest = {"lab:n1", job.seq};
        run(s(20));
        ck_assert_text(lab.where(job).substr(0, 1), "n");
    }
    // Words are carried one at a time.
    void carry_to_uni() {
        for (auto& word : std::exchange(to_uni, {})) word();
        uni.now = std::max(uni.now, lab.now);
        uni.decide();
    }
    void carry_to_lab() {
        for (auto& word : std::exchange(to_lab, {})) word();
        lab.decide();
    }
    void move(const char* to, bool may = true) {
        const auto said = lab.market->move(job, to, false, 0);
        ck_assert_msg(said.has_value() == may, "%s",
                      said ? said->c_str() : said.error().message.c_str());
        lab.decide();
    }
    Market::Outcome outcome(const char* to, uint64_t failures = 0) const {
        return lab.market->outcome(job, to, false, failures);
    }
    // It goes on to its end, once, and both sites have charged the same.
    void ends_well() {
        run(s(700));
        ck_assert_text(lab.where(job), "finished");
        ck_assert_text(loan(job).site, "");
        ck_assert(at_uni(job) == "unknown" || at_uni(job) == "finished");
        const int64_t ours = charged(lab, job, true).micro,
                      theirs = charged(uni, guest, false).micro;
        ck_assert_msg(std::abs(ours - theirs) <= 10'000 + ours / 50, "%ld and %ld", ours, theirs);
    }
};

}  // namespace

START_TEST(a_running_job_moves_to_a_peer_by_hand_among_its_nodes_and_back) {
    Spread p(s(600));
    const Nanos ran = p.lab.run_time(p.lab.jobs.at(p.job));
    p.move("uni:n2");
    ck_assert(!is_lent(*p.lab.market->find(p.job)));  // it is asked about, and runs here
    ck_assert(!p.outcome("uni:n2").over);
    p.run(s(5));
    ck_assert_text(p.lab.where(p.job), "uni:n2");
    ck_assert_text(p.at_uni(p.job), "running");
    ck_assert(is_lent(*p.lab.market->find(p.job)));
    ck_assert(p.outcome("uni:n2").done && p.outcome("uni:").done);
    ck_assert_uint_eq(p.lab.jobs.at(p.job).report.stats.migrations, 1);
    ck_assert_uint_eq(p.lab.jobs.at(p.job).report.stats.freezes, 0);
    // what it ran here, nobody pays there
    ck_assert(p.lab.run_time(p.lab.jobs.at(p.job)) > ran);
    p.run(s(30));
    // the peer moves it among its own nodes, as its market decides
    ProviderReport off = p.uni.providers.at("n2");
    off.on_market = false;
    p.uni.set_provider(off);
    p.run(s(5));
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    ck_assert(is_lent(*p.lab.market->find(p.job)));
    ck_assert_uint_eq(p.lab.jobs.at(p.job).report.stats.freezes, 0);
    p.run(s(30));
    // and back, to a node whose place must be cleared first
    const JobId other = p.lab.submit("n2", 30);
    p.run(s(5));
    const std::string taken = p.lab.where(other);
    ck_assert(taken == "n1" || taken == "n2");
    p.move(taken.c_str());
    p.run(s(5));
    ck_assert_text(p.lab.where(p.job), taken);
    ck_assert(p.outcome(taken.c_str()).done);
    ck_assert_text(p.lab.where(other), taken == "n1" ? "n2" : "n1");
    ck_assert_uint_eq(p.lab.jobs.at(p.job).report.stats.migrations, 3);
    ck_assert_uint_eq(p.lab.jobs.at(p.job).report.stats.freezes, 0);
    ck_assert_text(p.at_uni(p.job), "finished");
    ck_assert_text(p.loan(p.job).site, "");
    const Nanos away = s(60);
    const Money price = SitePair::charged(p.uni, p.guest, false);
    ck_assert_int_gt(price.micro, 0);
    ck_assert(price <= Money{20'000'000 * (away + s(15)).ns / 3'600'000'000'000});
    // it may go there once more, to a new account there
    p.move("uni:n1");
    p.run(s(5));
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    ck_assert_text(p.at_uni(p.job), "running");
    p.ends_well();
}
END_TEST

START_TEST(a_move_to_a_peer_is_refused_in_words) {
    Spread p;
    const auto refused = [&](const char* to, const char* why, uint32_t uid = 0, bool hold = false) {
        const auto said = p.lab.market->move(p.job, to, hold, uid);
        ck_assert_msg(!said && said.error().message.find(why) != std::string::npos, "%s: %s", to,
                      said ? said->c_str() : said.error().message.c_str());
    };
    refused("uni:", "only root", 1000);
    refused("uni:n1", "its own site alone", 0, true);
    p.move("uni:n7");  // there is none
    p.run(s(2));
    const auto none = p.outcome("uni:n7");
    ck_assert(none.over && !none.done);
    ck_assert_text(none.text, "site uni does not take it: it has no node n7");
    ck_assert_text(p.at_uni(p.job), "unknown");
    p.terms.most_cpus = 0;
    p.move("uni:");  // what was not taken has not been there
    p.run(s(2));
    ck_assert(p.outcome("uni:", 1).text.find("nothing may come") != std::string::npos);
    p.terms.most_cpus = 3;
    p.move("uni:n1");
    refused("far:", "is about to go to site uni");
    p.run(s(2));
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    refused("far:", "move it to a node of this site first");
    refused("uni:n2", "says on which of its nodes");
    refused("n1", "can be held here when it has come", 0, true);
    refused("n9", "no such node");
    p.lab.becomes_immovable(p.lab.submit("n1", 50), "it holds a lock");
    p.run(s(2));
    const auto fixed = p.lab.market->move({"n1", 2}, "uni:", false, 0);
    ck_assert(!fixed && fixed.error().message.find("it holds a lock") != std::string::npos);
}
END_TEST

START_TEST(a_peer_without_room_leaves_the_job_where_it_runs) {
    Spread p(s(300));
    std::array<JobId, 4> full;
    for (JobId& id : full) id = p.uni.submit("n1", 90);
    p.run(s(3));
    const std::string where = p.lab.where(p.job);
    p.move("uni:");
    p.run(s(2));
    ck_assert_text(p.lab.where(p.job), where.c_str());
    const auto none = p.outcome("uni:");
    ck_assert(none.over && !none.done);
    ck_assert_msg(none.text.starts_with("site uni does not take it: "), "%s", none.text.c_str());
    ck_assert_text(p.at_uni(p.job), "unknown");
    // There is room, and the one node that is named gives it none: the question ends.
    ck_assert(p.uni.market->cancel(full[0], 0).has_value());
    p.run(s(3));
    const std::string taken =
        p.uni.where(full[1]) == "n1" && p.uni.where(full[2]) == "n1" ? "n1" : "n2";
    p.move(("uni:" + taken).c_str());
    p.run(s(20));
    ck_assert(!p.outcome("uni:", 1).over);
    p.run(s(13));
    ck_assert_text(p.lab.where(p.job), where.c_str());
    const auto late = p.outcome("uni:", 1);
    ck_assert(late.over && !late.done);
    ck_assert_msg(late.text.starts_with("site uni gave it no place within 30 s"), "%s",
                  late.text.c_str());
    ck_assert_int_eq(p.lab.jobs.at(p.job).report.stats.migrations, 0);
    p.ends_well();
    ck_assert_int_eq(SitePair::charged(p.uni, p.guest, false).micro, 0);
}
END_TEST

START_TEST(a_report_from_before_an_order_ends_no_loan) {
    // On its way there, among the peer's nodes, and back: the home's report crosses the order.
    Spread p(s(300));
    const auto crosses = [&] {
        p.lab.elsewhere = [&p, before = p.lab.jobs.at(p.job)](const Send& send) {
            if (const auto* o = std::get_if<Order>(&send.message); o && o->id == p.job) {
                // it says what was so before the order came
                must(p.lab.market->report("n1", before.report, p.lab.now));
            }
            return !of_site(send.node).site.empty();
        };
    };
    const auto settles = [&] {
        p.lab.elsewhere = [](const Send& send) { return !of_site(send.node).site.empty(); };
    };
    crosses();
    p.move("uni:n2");
    p.run(s(3));
    settles();
    p.run(s(1));
    ck_assert_text(p.lab.where(p.job), "uni:n2");
    ck_assert(is_lent(*p.lab.market->find(p.job)));
    crosses();
    ProviderReport off = p.uni.providers.at("n2");
    off.on_market = false;
    p.uni.set_provider(off);
    p.run(s(3));
    settles();
    p.run(s(1));
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    ck_assert(is_lent(*p.lab.market->find(p.job)));
    crosses();
    p.move("n1");
    p.run(s(3));
    settles();
    p.run(s(1));
    ck_assert_text(p.lab.where(p.job), "n1");
    p.ends_well();
}
END_TEST

START_TEST(a_move_to_a_peer_that_fails_leaves_the_job_at_home) {
    Spread p(s(100));
    const std::string where = p.lab.where(p.job);
    p.lab.refuse = [&](const Order& o) -> std::optional<OrderFailed> {
        if (o.kind != Order::Kind::run || of_site(o.node).site.empty()) return std::nullopt;
        OrderFailed f;
        f.id = o.id, f.seq = o.seq, f.node = o.node;
        f.why = "lab/u1000 is nobody there";
        return f;
    };
    p.move("uni:n1");
    p.run(s(3));
    ck_assert_text(p.lab.where(p.job), where.c_str());
    ck_assert(!is_lent(*p.lab.market->find(p.job)));
    const auto out = p.outcome("uni:n1");
    ck_assert(out.over && !out.done && out.text.find("nobody there") != std::string::npos);
    ck_assert_text(p.at_uni(p.job), "finished");
    p.ends_well();
    ck_assert_int_eq(SitePair::charged(p.uni, p.guest, false).micro, 0);
}
END_TEST

START_TEST(a_way_back_that_fails_leaves_the_job_at_the_peer) {
    Spread p(s(200));
    p.move("uni:n1");
    p.run(s(3));
    p.lab.refuse = [&](const Order& o) -> std::optional<OrderFailed> {
        if (o.kind != Order::Kind::run || !of_site(o.node).site.empty()) return std::nullopt;
        OrderFailed f;
        f.id = o.id, f.seq = o.seq, f.node = o.node;
        f.why = "no way to it";
        return f;
    };
    p.move("n2");
    p.run(s(3));
    const auto out = p.outcome("n2");
    ck_assert(out.over && !out.done && out.text.find("no way to it") != std::string::npos);
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    ck_assert(is_lent(*p.lab.market->find(p.job)));
    ck_assert_text(p.at_uni(p.job), "running");
    p.ends_well();
}
END_TEST

START_TEST(a_peer_that_decides_otherwise_before_it_lets_a_job_go_is_no_end_of_the_wish) {
    // 0: it moves it among its nodes, 1: it freezes it, and the job comes home
    for (int what = 0; what < 2; ++what) {
        Spread p(s(200));
        p.move("uni:n1");
        p.run(s(3));
        ck_assert_text(p.lab.where(p.job), "uni:n1");
        for (const char* name : {"n1", "n2"}) {
            if (what == 0 && std::string_view(name) == "n2") continue;
            ProviderReport off = p.uni.providers.at(name);
            off.on_market = false;
            p.uni.set_provider(off);
        }
        p.uni.decide();  // its order is on its way
        p.move("n2");
        p.run(s(12));
        ck_assert_text(p.lab.where(p.job).substr(0, what == 0 ? 2 : 1), what == 0 ? "n2" : "n");
        ck_assert_uint_eq(p.lab.jobs.at(p.job).report.stats.migrations, what == 0 ? 3 : 1);
        // nothing is kept for it any more
        ck_assert(!p.lab.market->find(p.job)->once);
        ck_assert_text(p.loan(p.job).site, "");
        p.ends_well();
    }
}
END_TEST

START_TEST(both_sites_say_how_a_job_has_ended) {
    for (const bool at_home : {false, true}) {
        Spread p(s(60));
        p.move("uni:n1");
        p.run(s(3));
        if (at_home) {  // it ends before the peer hears that it has gone
            p.set_link(true);
            p.move("n2");
            for (int i = 0; i < 50 && p.lab.where(p.job) != "n2"; ++i) p.step();
            ck_assert_text(p.lab.where(p.job), "n2");
            p.set_link(false);
        }
        p.run(s(80));
        ck_assert_text(p.lab.where(p.job), "finished");
        p.set_link(true);
        p.run(s(3));
        const JobReport& r = p.uni.market->find(p.guest)->record.report;
        ck_assert(r.phase == JobPhase::finished);
        ck_assert_text(*r.why, at_home ? "it went home" : "");
        // Its node there, which measures what it ran, has no word in this world.
        if (!at_home) p.ends_well();
    }
}
END_TEST

START_TEST(whoever_decides_otherwise_meanwhile_is_obeyed) {
    // 0 freeze, 1 cancel, 2 another move, 3 its owner; before the peer hears, before its order
    // comes, and when that is under way
    for (int what = 0; what < 4; ++what)
        for (int step = 0; step < 3; ++step) {
            Spread p(s(200));
            const std::string where = p.lab.where(p.job);
            p.move("uni:");
            if (step > 0) p.carry_to_uni();
            if (step > 1) p.carry_to_lab();
            ck_assert_int_eq(is_lent(*p.lab.market->find(p.job)), step > 1);
            const std::string other = where == "n1" ? "n2" : "n1";
            if (what == 0) ck_assert(p.lab.market->freeze(p.job, true, 0).has_value());
            if (what == 1) ck_assert(p.lab.market->cancel(p.job, 0).has_value());
            if (what == 2)
                ck_assert_int_eq(p.lab.market->move(p.job, other, false, 0).has_value(), step < 2);
            if (what == 3) {
                ProviderReport off = p.lab.providers.at(where);
                off.on_market = false;
                p.lab.set_provider(off);
            }
            p.lab.decide();
            p.run(s(20));
            const auto out = p.outcome("uni:");
            ck_assert_msg(out.over, "%d %d: %s", what, step, out.text.c_str());
            const std::string now = p.lab.where(p.job);
            if (what == 0) {
                ck_assert_text(now, "frozen");
                ck_assert_text(of_site(p.lab.jobs.at(p.job).report.where).site, "");
                ck_assert(p.lab.market->release(p.job, 0).has_value());
            }
            if (what == 1) ck_assert_text(now, "finished");
            if (what == 2) ck_assert_text(now.substr(0, 3), step < 2 ? other : "uni");
            if (what == 3) ck_assert_text(now.substr(0, 3), step < 2 ? other : "uni");
            p.ends_well();
        }
}
END_TEST

START_TEST(a_peer_that_lies_gets_no_job_that_was_not_asked_for) {
    Spread p;
    const std::string where = p.lab.where(p.job);
    Order o;
    o.id = p.job;
    o.seq = 1000;
    o.address = "10.0.0.9:1";
    for (const char* node : {"uni:n1", "n2", "far:n1"}) {
        o.node = node;
        ck_assert(!p.lab.market->site_order("uni", o, p.lab.now));
    }
    p.move("uni:");
    p.to_uni.clear();
    for (const char* node : {"n1", "n2", "far:n1"}) {
        o.node = node;
        ck_assert(!p.lab.market->site_order("uni", o, p.lab.now));
    }
    o.node = "uni:n1";
    ck_assert(!p.lab.market->site_order("far", o, p.lab.now));
    for (const auto kind : {Order::Kind::suspend, Order::Kind::abort, Order::Kind::give_up}) {
        o.kind = kind;
        ck_assert(!p.lab.market->site_order("uni", o, p.lab.now));
    }
    p.run(s(2));
    ck_assert_text(p.lab.where(p.job), where.c_str());
    // One that has not heard of the job orders it, and does not have it then: it comes home.
    o.kind = Order::Kind::run;
    ck_assert(p.lab.market->site_order("uni", o, p.lab.now).has_value());
    p.run(s(60));
    ck_assert_text(of_site(p.lab.jobs.at(p.job).report.where).site, "");
    ck_assert_text(p.loan(p.job).site, "");
    // once it is there, it is ordered to no node here but the one that is asked for
    Spread q;
    q.move("uni:n1");
    q.run(s(3));
    ck_assert_text(q.lab.where(q.job), "uni:n1");
    for (const char* node : {"n1", "n2"}) {
        o.node = node;
        ++o.seq;
        ck_assert(!q.lab.market->site_order("uni", o, q.lab.now));
    }
    // and a site that says where its own job is to go names a node of its own
    const SiteGuests::Site lab{"lab", site_account(1), &q.terms, 0};
    SiteJob word{q.uni.market->find(q.guest)->record.report, "n2", "10.0.0.9:1"};
    ck_assert(q.uni.market->site_job(lab, word, q.uni.now).has_value());
    ck_assert(!q.uni.market->find(q.guest)->record.order);
}
END_TEST

START_TEST(a_move_survives_breaks_and_restarts_at_each_step) {
    // There and back; after so many steps the link breaks, or a market dies, for some time.
    int moved[2] = {0, 0};
    for (int back = 0; back < 2; ++back)
        for (int what = 0; what < 3; ++what)
            for (int step = 0; step < 7; ++step) {
                Spread p(s(300));
                const std::string who =
                    std::to_string(back) + std::to_string(what) + std::to_string(step);
                if (back) {
                    p.move("uni:n1");
                    p.run(s(3));
                    ck_assert_text(p.lab.where(p.job), "uni:n1");
                }
                p.move(back ? "n2" : "uni:n1");
                for (int i = 0; i < step; ++i) {
                    if (i % 2 == 0)
                        p.carry_to_uni();
                    else
                        p.carry_to_lab();
                    if (i >= 2) p.lab.run_for(Nanos::from_ms(5));
                }
                p.set_link(false);
                if (what == 1) SitePair::restart(p.lab);
                if (what == 2) SitePair::restart(p.uni);
                p.run(s(4));
                p.set_link(true);
                p.run(s(60));
                // it runs in one place, and both sites know it
                const std::string where = p.lab.where(p.job);
                const bool there = where.starts_with("uni:");
                ck_assert_msg(there || where.starts_with("n"), "%s: %s", who.c_str(),
                              where.c_str());
                ck_assert_msg((p.at_uni(p.job) == "running") == there, "%s: %s, and %s at uni",
                              who.c_str(), where.c_str(), p.at_uni(p.job).c_str());
                ck_assert_msg(is_lent(*p.lab.market->find(p.job)) == there, "%s", who.c_str());
                if (there == (back == 0)) ++moved[back];
                p.run(s(400));
                ck_assert_msg(p.lab.phase(p.job) == JobPhase::finished, "%s", who.c_str());
                ck_assert_text(p.loan(p.job).site, "");
                const int64_t ours = SitePair::charged(p.lab, p.job, true).micro,
                              theirs = SitePair::charged(p.uni, p.guest, false).micro;
                ck_assert_msg(std::abs(ours - theirs) <= 10'000 + ours / 50, "%s: %ld and %ld",
                              who.c_str(), ours, theirs);
            }
    // A break in the first steps takes the question back; one after that does not stop the job.
    ck_assert_int_ge(moved[0], 9);
    ck_assert_int_ge(moved[1], 9);
}
END_TEST

START_TEST(any_other_order_takes_the_question_back_at_once) {
    // 0: a move to a node that is full yet, 1: to where it runs, 2: the same with a hold, 3: a
    // thaw, 4: a freeze; each crosses the order of the peer
    for (int what = 0; what < 5; ++what) {
        Spread p(s(200));
        const JobId dear = p.lab.submit("n2", 50);
        p.run(s(5));
        const std::string where = p.lab.where(p.job), other = p.lab.where(dear);
        p.move("uni:");
        p.carry_to_uni();
        ck_assert(!p.to_lab.empty());
        if (what == 0) ck_assert(p.lab.market->move(p.job, other, false, 0).has_value());
        if (what == 1) ck_assert(p.lab.market->move(p.job, where, false, 0).has_value());
        if (what == 2) ck_assert(p.lab.market->move(p.job, where, true, 0).has_value());
        if (what == 3) ck_assert(p.lab.market->thaw(p.job, "", false, 0).has_value());
        if (what == 4) ck_assert(p.lab.market->freeze(p.job, true, 0).has_value());
        p.carry_to_lab();
        ck_assert(!is_lent(*p.lab.market->find(p.job)));
        p.run(s(5));
        const std::string now = what == 0 ? other : what == 4 ? "frozen" : where;
        ck_assert_text(p.lab.where(p.job), now);
        ck_assert_text(p.loan(p.job).site, "");
        ck_assert(!p.lab.market->find(p.job)->once);
        const auto out = p.outcome("uni:");
        ck_assert(out.over && !out.done);
        if (what == 4) ck_assert(p.lab.market->release(p.job, 0).has_value());
        p.ends_well();
        ck_assert_int_eq(SitePair::charged(p.uni, p.guest, false).micro, 0);
    }
}
END_TEST

START_TEST(a_job_that_waits_for_a_node_by_hand_is_not_given_away) {
    Spread p;
    const JobId dear = p.lab.submit("n2", 50);
    p.run(s(5));
    const JobId waits = p.lab.submit("n2", 5);
    p.run(s(2));
    ck_assert_text(p.lab.where(waits), "waiting");
    ck_assert(p.lab.market->move(waits, p.lab.where(dear), false, 0).has_value());
    ck_assert(!p.lab.market->lend(waits, "uni", p.lab.now));
    ck_assert(p.lab.market->thaw(waits, "", false, 0).has_value());
    ck_assert(p.lab.market->lend(waits, "uni", p.lab.now).has_value());
    p.run(s(5));
    ck_assert_text(p.lab.where(waits).substr(0, 4), "uni:");
}
END_TEST

START_TEST(nothing_makes_room_for_a_job_that_its_peer_cannot_let_go) {
    Spread p(s(300));
    p.move("uni:n1");
    p.run(s(3));
    const JobId other = p.lab.submit("n2", 30);
    p.run(s(5));
    const std::string taken = p.lab.where(other);
    p.set_link(false);
    const auto said = p.lab.market->move(p.job, taken, false, 0);
    ck_assert(!said && said.error().message.find("is not connected") != std::string::npos);
    p.set_link(true);
    p.run(s(2));
    // The link breaks after the order was given.
    ck_assert(p.lab.market->move(p.job, taken, false, 0).has_value());
    p.set_link(false);
    p.run(s(40));
    const auto& stats = p.lab.jobs.at(other).report.stats;
    ck_assert_uint_eq(stats.freezes + stats.migrations, 0);
    ck_assert_text(p.lab.where(other), taken);
    const auto late = p.outcome(taken.c_str());
    ck_assert(late.over && !late.done);
    ck_assert(late.text.find("did not let it go within 30 s") != std::string::npos);
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    p.set_link(true);
    p.run(s(2));
    p.move(taken.c_str());
    p.run(s(5));
    ck_assert_text(p.lab.where(p.job), taken);
    p.ends_well();
}
END_TEST

START_TEST(each_site_charges_its_own_price_be_it_nothing) {
    for (const int64_t theirs : {7, 0}) {
        Spread p(s(300));
        for (const char* name : {"n1", "n2"}) {
            ProviderReport r = p.uni.providers.at(name);
            r.reserve = Money::units(theirs);
            p.uni.set_provider(r);
            r = p.lab.providers.at(name);
            r.reserve = Money::units(3);
            p.lab.set_provider(r);
        }
        p.run(s(70));
        const auto at_lab = [&] { return p.lab.market->find(p.job)->record.price; };
        ck_assert_int_eq(at_lab().micro, 3'000'000);
        p.move("uni:n1");
        p.run(s(3));
        ck_assert_text(p.lab.where(p.job), "uni:n1");
        ck_assert_int_eq(at_lab().micro, theirs * 1'000'000);
        ck_assert(p.uni.market->find(p.guest)->record.price == at_lab());
        p.run(s(57));
        p.move("n2");
        p.run(s(5));
        ck_assert_text(p.lab.where(p.job), "n2");
        ck_assert_int_eq(at_lab().micro, 3'000'000);
        p.ends_well();
        const int64_t paid = SitePair::charged(p.uni, p.guest, false).micro;
        ck_assert_int_ge(paid, theirs * 1'000'000 * 59 / 3600);
        ck_assert_int_le(paid, theirs * 1'000'000 * 62 / 3600);
    }
}
END_TEST

START_TEST(a_peer_charges_nothing_after_a_return_of_which_it_hears_late) {
    // 0: first that the job has ended, 1: that it is frozen
    for (int what = 0; what < 2; ++what) {
        Spread p(s(60));
        p.move("uni:n1");
        p.run(s(3));
        p.lab.transit = s(1);
        p.move("n2");
        for (int i = 0; i < 20 && p.lab.phase(p.job) != JobPhase::moving; ++i) p.step();
        ck_assert(p.lab.phase(p.job) == JobPhase::moving);
        p.lab.disconnect("n1");
        p.run(s(what == 0 ? 50 : 20));
        if (what == 1) {
            World::HomeJob& job = p.lab.jobs.at(p.job);
            World::stop_clock(job, p.lab.now);
            job.report.phase = JobPhase::frozen;
        }
        const JobReport r = p.lab.jobs.at(p.job).report;
        ck_assert(r.phase == (what == 0 ? JobPhase::finished : JobPhase::frozen));
        ck_assert_text(r.where, "n2");
        ck_assert(r.stay_run + s(15) < r.stats.run_time);
        p.lab.connect("n1");
        p.run(s(5));
        ck_assert_int_eq(p.loan(p.job).run.ns, r.stay_run.ns);
        ck_assert_text(p.loan(p.job).site, "");
        ck_assert_text(p.at_uni(p.job), "finished");
        ck_assert(p.uni.market->find(p.guest)->record.report.stats.run_time == p.loan(p.job).run);
    }
}
END_TEST

START_TEST(a_job_that_is_there_stays_when_its_site_names_too_many_nodes) {
    Spread p(s(200));
    p.move("uni:n1");
    p.run(s(3));
    for (size_t i = 0; i < SiteGuests::nodes_max; ++i) {
        const NodeName name = "lab:x" + std::to_string(i);
        ck_assert(p.uni.market->agent_connected(name, {}, p.uni.now).has_value());
    }
    p.lab.add_node("n3", 100, 1);
    p.move("n3");
    p.run(s(40));
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    ck_assert(!p.loan(p.job).recalled);
    ck_assert(p.outcome("n3").over && !p.outcome("n3").done);
    ck_assert(!p.uni.market->find_node("lab:n3"));
    // its end is heard, wherever that was
    const SiteGuests::Site lab{"lab", site_account(1), &p.terms, 0};
    SiteJob word{p.uni.market->find(p.guest)->record.report, {}, {}};
    word.report.phase = JobPhase::finished;
    word.report.where = "lab:n3";
    word.report.stay_run = Nanos{-1};
    ck_assert(p.uni.market->site_job(lab, word, p.uni.now).has_value());
    ck_assert_text(p.at_uni(p.job), "finished");
    ck_assert(!p.uni.market->find_node("lab:n3"));
}
END_TEST

START_TEST(a_peer_gives_the_node_that_is_named_or_none) {
    Spread p;
    p.move("uni:n2");
    p.to_uni.clear();
    Order o;
    o.id = p.job;
    o.seq = 1000;
    o.node = "uni:n1";
    o.address = "10.0.0.9:1";
    const Status other = p.lab.market->site_order("uni", o, p.lab.now);
    ck_assert(!other && other.error().message.find("uni:n2") != std::string::npos);
    o.node = "uni:n2";
    ck_assert(p.lab.market->site_order("uni", o, p.lab.now).has_value());
    // An operator who waits for another node hears where it runs.
    Spread q;
    q.move("uni:n1");
    q.run(s(3));
    const auto out = q.outcome("uni:n2");
    ck_assert(out.over && !out.done && out.text.find("runs on uni:n1") != std::string::npos);
}
END_TEST

START_TEST(a_question_that_is_refused_leaves_a_job_held) {
    Spread p;
    const std::string where = p.lab.where(p.job);
    ck_assert(p.lab.market->move(p.job, where, true, 0).has_value());
    const auto& record = p.lab.market->find(p.job)->record;
    p.move("uni:n7");
    p.run(s(2));
    ck_assert(p.outcome("uni:n7").over);
    ck_assert(record.hold == Hold::at_node);
    ck_assert_text(*record.hold_node, where);
    p.move("uni:n1");
    p.run(s(3));
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    ck_assert(record.hold == Hold::none && record.hold_node->empty());
}
END_TEST

START_TEST(a_job_that_runs_at_a_peer_without_being_given_comes_home) {
    Spread p;
    p.move("uni:n1");
    p.run(s(3));
    p.lab.stored_jobs.at(p.job).loan = Loan{};
    SitePair::restart(p.lab);
    p.run(s(60));
    ck_assert_text(of_site(p.lab.jobs.at(p.job).report.where).site, "");
    ck_assert_text(p.lab.where(p.job).substr(0, 1), "n");
}
END_TEST

UNIT_SUITE_LONG(site_moves, 120, a_running_job_moves_to_a_peer_by_hand_among_its_nodes_and_back,
                a_move_to_a_peer_is_refused_in_words,
                a_peer_without_room_leaves_the_job_where_it_runs,
                a_report_from_before_an_order_ends_no_loan,
                a_move_to_a_peer_that_fails_leaves_the_job_at_home,
                a_way_back_that_fails_leaves_the_job_at_the_peer,
                a_peer_that_decides_otherwise_before_it_lets_a_job_go_is_no_end_of_the_wish,
                both_sites_say_how_a_job_has_ended, whoever_decides_otherwise_meanwhile_is_obeyed,
                a_peer_that_lies_gets_no_job_that_was_not_asked_for,
                a_move_survives_breaks_and_restarts_at_each_step,
                any_other_order_takes_the_question_back_at_once,
                a_job_that_waits_for_a_node_by_hand_is_not_given_away,
                nothing_makes_room_for_a_job_that_its_peer_cannot_let_go,
                each_site_charges_its_own_price_be_it_nothing,
                a_peer_charges_nothing_after_a_return_of_which_it_hears_late,
                a_job_that_is_there_stays_when_its_site_names_too_many_nodes,
                a_peer_gives_the_node_that_is_named_or_none,
                a_question_that_is_refused_leaves_a_job_held,
                a_job_that_runs_at_a_peer_without_being_given_comes_home);
