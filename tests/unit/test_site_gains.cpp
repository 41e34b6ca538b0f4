// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs that wait and jobs that run move between sites for a gain (market/core/site_gain.hpp,
// site_moves.hpp, lent_jobs.hpp): the gain beside a reference with fractions, and single moves with
// their reasons and bounds.
#include <cmath>

#include "agentd/wire/codec.hpp"
#include "agentd/wire/messages.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/site_net.hpp"
#include "tests/unit/site_pair.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

}  // namespace

START_TEST(a_gain_is_what_a_reference_with_fractions_says) {
    Rng rng(3);
    size_t pays = 0, doubled = 0;
    for (int n = 0; n < 50'000; ++n) {
        SiteMove m;
        m.here = {Money{rng.between(0, 40'000'000)}, rng.between(1, 400), {}};
        m.cheapest = rng.chance(0.5);
        m.cpus = static_cast<int32_t>(rng.between(1, 8));
        m.bid = Money{rng.between(1, 60'000'000)};
        m.rest = rng.chance(0.3) ? Nanos::never() : s(rng.between(0, 5'000));
        m.pause = Nanos::from_ms(rng.between(0, 100'000));
        m.carried = Money{rng.between(0, 2'000'000)};
        if (rng.chance(0.3)) m.lately = {"uni"};
        const SiteStay there{Money{rng.between(0, 40'000'000)}, rng.between(1, 400),
                             s(rng.chance(0.5) ? 0 : rng.between(0, 300))};
        const SiteGain gain = gain_of(m, there, "uni");
        const double is = worth(m, there, "uni");
        // milliseconds, or the money of one
        const double blur = m.cheapest ? 100'000 : 0.01;
        if (std::abs(is) > blur) ck_assert_msg(gain.pays == (is > 0), "%d: %f", n, is);
        ck_assert_int_eq(gain.is_doubled, !m.lately.empty());
        ck_assert(gain_of(m, there, "far").is_doubled == false);
        pays += gain.pays;
        doubled += gain.pays && gain.is_doubled;
    }
    ck_assert_msg(pays > 5'000 && doubled > 500, "%zu %zu", pays, doubled);
}
END_TEST

START_TEST(no_numbers_make_a_gain_that_is_none) {
    SiteMove m;
    m.here = {money_max, speed_max, {}};
    m.cheapest = true;
    m.cpus = 65'536;
    m.bid = money_max;
    m.rest = m.pause = Nanos::never();
    m.carried = money_max;
    ck_assert(!gain_of(m, {Money{}, 1, {}}, "uni").pays);
    ck_assert(!gain_of(m, {money_max, 1, {}}, "uni").pays);
    m.bid = m.carried = Money{};
    m.pause = {};
    const SiteGain all = gain_of(m, {Money{}, 1, {}}, "uni");
    ck_assert(all.pays && all.money > Money{});
    ck_assert(gain_of(m, {money_max, 1, {}}, "uni").money < Money{});
    m.cheapest = false;
    m.here.speed = 0;  // not known
    ck_assert(!gain_of(m, {Money{}, 0, {}}, "uni").pays);
    ck_assert(!gain_of(m, {Money{}, 1, Nanos::never()}, "uni").pays);
}
END_TEST

START_TEST(a_running_job_goes_where_it_ends_earlier_and_stays_there) {
    Uneven p;
    while (p.now < s(90) && p.place() != "uni:n1") p.step();
    ck_assert_text(p.place(), "uni:n1");
    const JobReport& r = p.at("lab").w.jobs.at(p.job).report;
    ck_assert_uint_eq(r.stats.migrations, 1);
    ck_assert_uint_eq(r.stats.freezes, 0);
    ck_assert_msg(p.says("moved for a gain: uni saves 45m"), "%s", p.why().c_str());
    ck_assert(p.loan().came.ns > 0 && p.loan().by_markets && p.loan().speed == 200);
    ck_assert_text(to_string(ReasonCode::site_gain), "site_gain");
    p.run(s(3'600));
    ck_assert_text(p.place(), "uni:n1");
    ck_assert_msg(p.says("no other site is worth a move: its own site loses"), "%s",
                  p.why().c_str());
    ck_assert(p.at("lab").w.market->find(p.job)->site_word->code == ReasonCode::site_no_gain);
    // A faster machine at home brings it back, by the place that its bid wins there.
    p.at("lab").w.add_node("n2", 800, 5);
    p.run(s(700));
    ck_assert_text(p.place(), "n2");
    ck_assert_uint_eq(r.stats.migrations, 2);
    ck_assert_text(p.loan().site, "");
    ck_assert(p.loan().visits.size() == 1 && p.loan().visits[0].left.ns > 0);
}
END_TEST

START_TEST(a_job_moves_for_no_gain_that_is_less_than_the_move_costs_or_not_wanted) {
    {  // it ends too soon
        Uneven p(any_site, s(400));
        p.at("lab").w.jobs.at(p.job).report.terms.runtime = s(30);
        p.at("lab").w.tell(p.at("lab").w.jobs.at(p.job));
        p.run(s(200));
        ck_assert_text(p.place(), "n1");
        ck_assert_msg(p.says("a move costs"), "%s", p.why().c_str());
    }
    SiteWish stays = any_site, dear = any_site, cost = any_site, far{"far"};
    stays.stays = true;
    dear.within = Money::units(4);
    cost.cheapest = true;
    for (const SiteWish& wish : {stays, dear, far}) {
        Uneven p(wish);
        p.run(s(700));
        ck_assert_text(p.place(), "n1");
        ck_assert_int_eq(p.loan().number, 0);
    }
    {  // for money: a machine four times as fast at the same price
        Uneven p(cost);
        p.run(s(700));
        ck_assert_text(p.place(), "uni:n1");
        ck_assert_msg(p.says("uni saves 3.75") || p.says("its own site loses"), "%s",
                      p.why().c_str());
    }
    {  // and what is dearer for its speed gains nothing
        Uneven p(cost);
        p.set_owner("uni", "n1", true, 20);
        p.run(s(700));
        ck_assert_text(p.place(), "n1");
    }
    {  // a place within the price is taken, and costs no more while others bid there
        dear.within = Money::units(7);
        Uneven p(dear);
        p.run(s(60));
        ck_assert_text(p.place(), "uni:n1");
        ck_assert(p.at("uni").w.market->find({"lab:n1", 1})->record.report.terms.max_price ==
                  Money::units(7));
        for (int n = 0; n < 2; ++n) p.submit("uni", 6, Nanos::never(), {});
        p.run(s(120));
        ck_assert(p.at("lab").w.market->find(p.job)->record.price <= Money::units(7));
    }
}
END_TEST

START_TEST(a_frozen_job_goes_on_at_a_site_that_has_a_place) {
    SiteNet p({"lab", "uni"});
    p.at("lab").w.add_node("n1", 100, 1);
    p.at("uni").w.add_node("n1", 100, 1);
    p.set_owner("uni", "n1", false, 1);
    p.run(s(5));
    const JobId job = p.submit("lab", 20, Nanos::never(), any_site);
    p.run(s(10));
    p.submit("lab", 50, Nanos::never(), {});
    p.run(s(10));
    ck_assert_text(p.where("lab", job), "frozen");
    p.set_owner("uni", "n1", true, 1);
    p.run(s(120));
    ck_assert_text(p.where("lab", job), "uni:n1");
    const JobReport& r = p.at("lab").w.jobs.at(job).report;
    ck_assert(r.stats.freezes == 1 && r.stats.thaws == 1);
}
END_TEST

START_TEST(a_site_that_took_a_job_and_gave_it_no_place_is_asked_again_after_pauses) {
    SiteNet p({"lab", "uni"});
    p.at("lab").w.add_node("n1", 100, 1);
    p.at("uni").w.add_node("n1", 100, 1, 2);
    p.run(s(5));
    p.submit("lab", 50, Nanos::never(), {});
    const JobId job = p.submit("lab", 20, Nanos::never(), any_site);
    // Its orders are lost, each time.
    std::vector<Nanos> lent;
    p.decided = [&](SiteNet::Site&, const JobId&, const SiteNet::Gain& g) { lent.push_back(g.at); };
    bool loses = true;
    p.at("uni").w.elsewhere = [&, was = p.at("uni").w.elsewhere](const Send& send) {
        return (loses && std::holds_alternative<Order>(send.message)) || was(send);
    };
    p.run(s(3 * 3'600));
    ck_assert_text(p.where("lab", job), "waiting");
    ck_assert_msg(lent.size() >= 4 && lent.size() <= 8, "%zu", lent.size());
    for (size_t i = 2; i < lent.size(); ++i)
        ck_assert(lent[i] - lent[i - 1] >= s(60) && lent[i] - lent[0] >= s(int64_t{60} << (i - 1)));
    loses = false;
    p.restart("uni");
    p.set_link("lab", "uni", true);
    p.run(s(2 * 3'600));
    ck_assert_text(p.where("lab", job), "uni:n1");
}
END_TEST

START_TEST(a_late_no_ends_no_newer_question) {
    SitePair p;
    p.open(1, 2);
    const JobId job = p.lab.submit("n1", 20);
    p.run(s(20));
    ck_assert(p.lab.market->move(job, "uni:n9", false, 0).has_value());
    p.lab.decide();
    for (auto& word : std::exchange(p.to_uni, {})) word();
    auto late = std::exchange(p.to_lab, {});  // there is no node n9
    ck_assert_uint_eq(late.size(), 1);
    ck_assert(p.lab.market->thaw(job, "", false, 0).has_value());
    p.run(s(2));
    ck_assert_text(p.loan(job).site, "");
    ck_assert(p.lab.market->move(job, "uni:n1", false, 0).has_value());
    late[0]();
    ck_assert_text(p.loan(job).site, "uni");
    ck_assert(p.loan(job).asked);
    p.run(s(5));
    ck_assert_text(p.lab.where(job), "uni:n1");
    // Nor does one end a stay: what is said of none, by a market of before, still counts.
    const uint64_t number = p.loan(job).number;
    SiteNote no;
    no.note.id = {"lab:n1", job.seq};
    no.no = "not any more";
    no.number = number - 1;
    p.note_at_lab(no);
    ck_assert(!p.loan(job).recalled);
    no.number = 0;
    p.note_at_lab(no);
    ck_assert(p.loan(job).recalled);
    // An order of a stay before is refused.
    Order o;
    o.id = job;
    o.seq = 5'000;
    o.node = "uni:n1";
    o.address = "10.0.0.9:1";
    const Status old = p.lab.market->site_order("uni", o, p.lab.now, number - 1);
    ck_assert(!old && old.error().message.find("not given") != std::string::npos);
}
END_TEST

START_TEST(a_job_comes_again_to_a_new_account_and_both_sites_charge_the_same) {
    SitePair p;
    p.open(1, 2);
    const JobId job = p.lab.submit("n1", 20, s(600)), guest{"lab:n1", job.seq};
    p.run(s(20));
    uint64_t number = 0;
    for (int stay = 0; stay < 3; ++stay) {
        ck_assert(p.lab.market->move(job, "uni:", false, 0).has_value());
        p.run(s(30));
        ck_assert_text(p.lab.where(job), "uni:n1");
        ck_assert_text(p.at_uni(job), "running");
        ck_assert(p.loan(job).number > number);
        number = p.loan(job).number;
        ck_assert_uint_eq(p.uni.market->find(guest)->record.loan->number, number);
        // Its cost there is of this stay alone.
        ck_assert(p.uni.cost(guest) <= Money{20'000'000 * 40 / 3'600});
        ck_assert(p.lab.market->move(job, "n1", false, 0).has_value());
        p.run(s(20));
        ck_assert_text(p.lab.where(job), "n1");
        ck_assert_text(p.at_uni(job), "finished");
    }
    p.run(s(700));
    ck_assert_text(p.lab.where(job), "finished");
    const int64_t ours = SitePair::charged(p.lab, job, true).micro,
                  theirs = SitePair::charged(p.uni, guest, false).micro;
    ck_assert_int_gt(theirs, 0);
    ck_assert_msg(std::abs(ours - theirs) <= 10'000 + ours / 50, "%ld and %ld", ours, theirs);
    // A market of before, which counts no stays, is told that the job has ended here.
    SiteJob word{p.uni.market->find(guest)->record.report, {}, {}, 0};
    word.report.phase = JobPhase::waiting;
    word.report.where.clear();
    ck_assert(!p.uni.market->comes_again(word));
    word.number = number + 1;
    ck_assert(p.uni.market->comes_again(word));
}
END_TEST

START_TEST(a_job_that_comes_home_for_a_gain_displaces_nobody_who_bids_more) {
    Uneven p;
    p.run(s(60));
    ck_assert_text(p.place(), "uni:n1");
    p.run(s(3'700));
    p.at("lab").w.add_node("n2", 800, 5);
    // Its place there is another's before uni hears that it is to let it go.
    p.delay = [] { return s(4); };
    JobId dear;
    bool said = false;
    p.decided = [&](SiteNet::Site&, const JobId&, const SiteNet::Gain& g) {
        if (g.to.empty() && dear.seq == 0) dear = p.submit("lab", 90, Nanos::never(), {});
    };
    for (int n = 0; n < 650; ++n) {
        p.step();
        const Reason& word = *p.at("lab").w.market->find(p.job)->site_word;
        said = said || word.code == ReasonCode::site_refused;
    }
    ck_assert(dear.seq > 0);
    ck_assert_text(p.where("lab", dear), "n2");
    const JobReport& r = p.at("lab").w.jobs.at(dear).report;
    ck_assert_uint_eq(r.stats.freezes + r.stats.migrations, 0);
    ck_assert_text(p.place(), "uni:n1");
    ck_assert_msg(said, "%s", p.why().c_str());
}
END_TEST

START_TEST(a_peer_that_does_not_let_a_job_go_has_few_others_make_room_for_it) {
    Uneven p;
    p.run(s(60));
    ck_assert_text(p.place(), "uni:n1");
    p.run(s(3'700));
    p.at("lab").w.add_node("n2", 800, 5);
    const std::vector<JobId> low = {p.submit("lab", 10, Nanos::never(), {}),
                                    p.submit("lab", 10, Nanos::never(), {})};
    // uni's orders about it are lost.
    p.at("uni").w.elsewhere = [was = p.at("uni").w.elsewhere](const Send& send) {
        return std::holds_alternative<Order>(send.message) || was(send);
    };
    size_t tries = 0;
    p.decided = [&](SiteNet::Site&, const JobId&, const SiteNet::Gain&) { ++tries; };
    p.run(s(2 * 3'600));
    ck_assert_text(p.place(), "uni:n1");
    ck_assert_msg(tries >= 1 && tries <= 8, "%zu", tries);
    for (const JobId& id : low) {
        const JobStats& stats = p.at("lab").w.jobs.at(id).report.stats;
        ck_assert_uint_le(stats.freezes + stats.migrations, 16);
    }
}
END_TEST

START_TEST(a_site_that_was_left_lately_must_gain_twice_as_much_and_trips_have_a_bound) {
    // The faster machine is now here, now there.
    Uneven p;
    std::vector<SiteNet::Gain> gains;
    p.decided = [&](SiteNet::Site&, const JobId&, const SiteNet::Gain& g) { gains.push_back(g); };
    p.run(s(60));
    ck_assert_text(p.place(), "uni:n1");
    const auto set_speed = [&](const char* site, int64_t speed) {
        ProviderReport r = p.at(site).w.providers.at("n1");
        r.speed = speed;
        p.at(site).w.set_provider(r);
    };
    // 3600 s x (1 - 200/206) is 105 s: more than the move costs, less than twice that.
    set_speed("lab", 206);
    p.run(s(1'200));
    ck_assert_text(p.place(), "uni:n1");
    ck_assert_msg(p.says("counts twice"), "%s", p.why().c_str());
    p.run(s(3'000));  // that was long ago
    ck_assert_text(p.place(), "n1");
    bool rested = false;
    for (int n = 0; n < 40; ++n) {
        const bool is_home = p.place() == "n1";
        set_speed("lab", is_home ? 50 : 800);
        p.run(s(700));
        rested = rested || p.says("no other site is asked before");
    }
    ck_assert(rested && std::string(to_string(ReasonCode::site_rests)) == "site_rests");
    size_t out = 0;
    for (const auto& g : gains) out += !g.to.empty();
    // 40 x 700 s and about 4,200 s
    ck_assert_msg(out >= 6 && out <= 6 + 32'500 / 7'200, "%zu trips", out);
}
END_TEST

START_TEST(trips_to_ever_other_sites_have_a_bound) {
    std::vector<std::string> names{"lab"};
    for (int n = 1; n <= 9; ++n) names.push_back("s" + std::to_string(n));
    SiteNet p(names);
    for (const std::string& name : names) p.at(name).w.add_node("n1", 50, 5);
    p.run(s(5));
    const auto set_speed = [&](const std::string& site, int64_t speed) {
        ProviderReport r = p.at(site).w.providers.at("n1");
        r.speed = speed;
        p.at(site).w.set_provider(r);
    };
    const JobId job = p.submit("lab", 20, Nanos::never(), any_site);
    const Nanos began = p.now;
    size_t trips = 0;
    for (size_t n = 1; n < names.size(); ++n) {
        set_speed(names[n], 200);
        p.run(s(650));
        if (p.where("lab", job) != names[n] + ":n1") break;
        ++trips;
        set_speed(names[n], 50);
        set_speed("lab", 800);
        p.run(s(650));
        ck_assert_text(p.where("lab", job), "n1");
        set_speed("lab", 50);
    }
    // Six at once; the first is paid off when the seventh begins, and the second later.
    ck_assert_uint_eq(trips, 7);
    ck_assert(p.now > began + LentJobs::trip_apart && p.now < began + s(2 * 7'200));
    p.run(began + s(2 * 7'200 + 700) - p.now);
    ck_assert_text(p.where("lab", job), "s8:n1");
}
END_TEST

UNIT_SUITE_LONG(site_gains, 240, a_gain_is_what_a_reference_with_fractions_says,
                no_numbers_make_a_gain_that_is_none,
                a_running_job_goes_where_it_ends_earlier_and_stays_there,
                a_job_moves_for_no_gain_that_is_less_than_the_move_costs_or_not_wanted,
                a_frozen_job_goes_on_at_a_site_that_has_a_place,
                a_site_that_took_a_job_and_gave_it_no_place_is_asked_again_after_pauses,
                a_late_no_ends_no_newer_question,
                a_job_comes_again_to_a_new_account_and_both_sites_charge_the_same,
                a_job_that_comes_home_for_a_gain_displaces_nobody_who_bids_more,
                a_peer_that_does_not_let_a_job_go_has_few_others_make_room_for_it,
                a_site_that_was_left_lately_must_gain_twice_as_much_and_trips_have_a_bound,
                trips_to_ever_other_sites_have_a_bound);
