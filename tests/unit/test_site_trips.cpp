// SPDX-License-Identifier: GPL-2.0-or-later
// A job's trips to another site where not all goes well (market/core/lent_jobs.hpp,
// offer_rounds.hpp): the other one is silent, has too much to do, or speaks late; terms change
// meanwhile; the job comes back.
#include "agentd/wire/codec.hpp"
#include "agentd/wire/messages.hpp"
#include "tests/unit/site_net.hpp"
#include "tests/unit/site_pair.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

// lab's job runs on its n1, and uni has room.
struct Two : SitePair {
    JobId job, guest;
    Two() {
        open(1, 2);
        job = lab.submit("n1", 20);
        guest = {"lab:n1", job.seq};
        run(s(20));
        ck_assert_text(lab.where(job), "n1");
    }
    Result<std::string> to_uni_by_hand() { return lab.market->move(job, "uni:", false, 0); }
    bool is_owed() { return LentJobs::is_unsettled(*lab.market->find(job), "uni"); }
};

}  // namespace

START_TEST(a_silent_peer_that_had_a_job_holds_it_up_for_a_minute_and_hears_the_end_later) {
    Two p;
    ck_assert(p.to_uni_by_hand().has_value());
    p.run(s(30));
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    const uint64_t number = p.loan(p.job).number;
    p.set_link(false);
    ck_assert(p.lab.market->freeze(p.job, false, 0).has_value());
    p.run(s(20));
    ck_assert_text(p.loan(p.job).site, "uni");
    ck_assert(p.loan(p.job).over && !p.is_owed());
    p.run(s(60));
    ck_assert_text(p.loan(p.job).site, "");
    ck_assert(p.is_owed());
    ck_assert_text(p.lab.where(p.job), "n1");
    // It may go anywhere but there, also after a restart.
    SitePair::restart(p.lab);
    p.run(s(5));
    const LentJobs& lent = p.lab.market->lent();
    const Job& job = *p.lab.market->find(p.job);
    ck_assert(p.is_owed() && !lent.may_go(job, "uni", p.lab.now + s(7'200)));
    ck_assert(lent.may_go(job, "far", p.lab.now));
    const auto refused = p.to_uni_by_hand();
    ck_assert(!refused &&
              refused.error().message.find("not settled with site uni yet") != std::string::npos);
    ck_assert_text(p.at_uni(p.job), "running");
    p.set_link(true);
    p.run(s(2));
    ck_assert_text(p.at_uni(p.job), "finished");
    ck_assert(!p.is_owed());
    // It hears how long the job has run there, and not of its time at home since.
    // It hears how long the job has run there, and not of its time at home since.
    ck_assert(p.uni.market->find(p.guest)->record.report.stats.run_time ==
              job.record.loan->visits[0].run);
    ck_assert(p.to_uni_by_hand().has_value());
    p.run(s(30));
    ck_assert_text(p.lab.where(p.job), "uni:n1");
    ck_assert(p.loan(p.job).number > number);
}
END_TEST

START_TEST(a_peer_to_which_a_job_never_came_does_not_hold_it_up) {
    Two p;
    ck_assert(p.to_uni_by_hand().has_value());
    p.set_link(false);
    p.run(s(32));
    ck_assert_text(p.loan(p.job).site, "");
    ck_assert(p.is_owed() &&
              p.lab.market->lent().may_go(*p.lab.market->find(p.job), "far", p.lab.now));
    p.set_link(true);
    p.run(s(2));
    ck_assert(!p.is_owed());
}
END_TEST

START_TEST(a_site_that_has_too_much_to_do_has_not_failed) {
    for (const CauseCode code : {CauseCode::too_many, CauseCode::not_possible}) {
        Two p;
        const JobId waits = p.lab.submit("n1", 2);
        p.run(s(2));
        ck_assert_text(p.lab.where(waits), "waiting");
        p.set_link(false);
        ck_assert(p.lab.market->lend(waits, "uni", p.lab.now).has_value());
        SiteNote no;
        no.note.id = waits;
        no.number = p.loan(waits).number;
        no.no = souk::Cause(code, "again in a moment");
        p.lab.market->site_note("uni", no, p.lab.now);
        ck_assert_text(p.loan(waits).site, "");
        ck_assert_uint_eq(p.loan(waits).visits.size(), 1);
        ck_assert_uint_eq(p.loan(waits).visits[0].tries, code == CauseCode::too_many ? 0 : 1);
    }
}
END_TEST

START_TEST(a_late_word_of_a_stay_before_changes_nothing) {
    Two p;
    std::vector<std::pair<uint64_t, bool>> notes;  // stay, settled
    p.uni.elsewhere = [&, was = p.uni.elsewhere](const Send& send) {
        if (const auto* note = std::get_if<JobNote>(&send.message))
            notes.emplace_back(send.number, note->settled);
        return was(send);
    };
    ck_assert(p.to_uni_by_hand().has_value());
    p.run(s(30));
    const uint64_t first = p.loan(p.job).number;
    SiteJob late{p.lab.jobs.at(p.job).report, {}, {}, first};
    ck_assert(p.lab.market->move(p.job, "n1", false, 0).has_value());
    p.run(s(20));
    ck_assert(std::ranges::find(notes, std::pair(first, true)) != notes.end());
    ck_assert(p.to_uni_by_hand().has_value());
    p.run(s(30));
    const uint64_t second = p.loan(p.job).number;
    ck_assert(second > first && std::ranges::find(notes, std::pair(second, false)) != notes.end());
    late.report.phase = JobPhase::finished;
    late.report.where.clear();
    p.job_at_uni(late);
    p.run(s(2));
    ck_assert_text(p.at_uni(p.job), "running");
    ck_assert_uint_eq(p.uni.market->find(p.guest)->record.loan->number, second);
}
END_TEST

START_TEST(a_change_of_sites_keeps_what_is_not_said) {
    JobTerms terms;
    terms.sites = SiteWish{"any", true, false, Money::units(7)};
    const auto with = [&](uint32_t fields, const SiteWish& wish) {
        wire::Change change{{"n1", 1}, fields, {}};
        change.terms.max_price = Money::units(1);
        change.terms.sites = wish;
        const auto heard = wire::unpack<wire::Change>(wire::pack(change));
        ck_assert(heard.has_value());
        return *wire::changed(terms, *heard).sites;
    };
    const SiteWish all{"uni", false, true, Money::units(9)};
    using wire::Change;
    ck_assert(with(Change::sites, all) == (SiteWish{"uni", true, false, Money::units(7)}));
    ck_assert(with(Change::sites_prefer, all) == (SiteWish{"any", false, true, Money::units(7)}));
    ck_assert(with(Change::sites_within, all) == (SiteWish{"any", true, false, Money::units(9)}));
    ck_assert(with(Change::max_price, all) == *terms.sites);
    ck_assert(with(Change::all, all) == all);
}
END_TEST

START_TEST(a_lower_price_for_other_sites_holds_during_a_stay) {
    Uneven p;
    p.run(s(60));
    ck_assert_text(p.place(), "uni:n1");
    const Job& job = *p.at("lab").w.market->find(p.job);
    ck_assert(job.record.price == Money::units(5));
    p.set_link("lab", "uni", false);
    JobReport& r = p.at("lab").w.jobs.at(p.job).report;
    r.terms.sites.edit().within = Money::units(3);
    p.at("lab").w.tell(p.at("lab").w.jobs.at(p.job));
    p.run(s(2));
    ck_assert_text(p.place(), "uni:n1");
    ck_assert(job.record.price == Money::units(3));
    // At home it bids its whole price again.
    p.set_link("lab", "uni", true);
    p.run(s(60));
    ck_assert_text(p.place(), "n1");
    ck_assert(job.record.price == Money::units(5) && job.bid == Money::units(20));
}
END_TEST

START_TEST(each_tenth_turn_is_that_of_a_job_that_runs) {
    OfferRounds waiting(1), running(2, OfferRounds::of_running);
    OfferTurns turns;
    JobTerms terms;
    for (uint64_t n = 1; n <= 5'000; ++n) waiting.note({"n1", n}, 1, terms, s(1));
    for (uint64_t n = 1; n <= 50; ++n) running.note({"n2", n}, 1, terms, s(1));
    size_t waits = 0, runs = 0;
    for (Nanos now = s(40); now < s(640); now = now + Nanos::from_ms(100)) {
        waiting.tick(now);
        running.tick(now);
        ck_assert(waiting.has_due(now));
        const auto gains = turns.may_run(waiting, now) ? running.due(now) : std::nullopt;
        if (gains) {
            (void)running.begin(*gains, {"uni"}, {}, now);
            turns.had(true);
            ++runs;
        } else if (const auto id = waiting.due(now)) {
            (void)waiting.begin(*id, {"uni"}, {}, now);
            turns.had(false);
            ++waits;
        }
    }
    ck_assert_msg(runs >= 200 && waits >= 9 * (runs - 1), "%zu and %zu", runs, waits);
}
END_TEST

START_TEST(a_job_that_comes_back_is_asked_about_as_a_new_one) {
    SiteNet p({"far", "lab", "uni"});
    for (const char* name : {"far", "lab", "uni"}) p.at(name).w.add_node("n1", 100, 1);
    p.set_owner("far", "n1", false, 1);
    p.run(s(5));
    p.submit("lab", 50, Nanos::never(), {});
    p.run(s(5));
    SiteWish stays = any_site;
    stays.stays = true;
    const JobId job = p.submit("lab", 20, Nanos::never(), stays);
    p.run(s(90));
    ck_assert_text(p.where("lab", job), "uni:n1");
    p.run(s(3'650));
    p.set_owner("far", "n1", true, 1);
    p.set_owner("uni", "n1", false, 1);
    const Loan* loan = nullptr;
    for (int n = 0; n < 120 && !(loan && loan->site.empty()); ++n) {
        p.step();
        loan = &*p.at("lab").w.market->find(job)->record.loan;
    }
    ck_assert_text(loan->site, "");
    p.run(s(15));
    ck_assert_text(p.where("lab", job), "far:n1");
}
END_TEST

START_TEST(a_job_that_comes_home_takes_the_place_that_its_bid_wins_then) {
    Uneven p;
    p.run(s(60));
    ck_assert_text(p.place(), "uni:n1");
    p.run(s(3'700));
    p.delay = [] { return s(4); };
    // It is slower than the place that is named at first, and the move still pays.
    p.at("lab").w.add_node("n2", 800, 5);
    NodeName named;
    p.decided = [&](SiteNet::Site&, const JobId&, const SiteNet::Gain& g) {
        if (!g.to.empty() || !named.empty()) return;
        named = *p.at("lab").w.market->lent().comes_back(*p.at("lab").w.market->find(p.job));
        p.at("lab").w.add_node("n3", 700, 5);
        p.set_owner("lab", "n2", false, 5);
    };
    for (int n = 0; n < 700 && named.empty(); ++n) p.step();
    ck_assert_text(named, "n2");
    p.run(s(29));
    ck_assert_msg(p.place() == "n3", "%s: %s", p.place().c_str(), p.why().c_str());
}
END_TEST

START_TEST(a_move_that_comes_to_nothing_is_not_said_to_have_been) {
    const auto begins = [](Uneven& p) {
        p.delay = [] { return s(1); };
        bool goes = false;
        p.decided = [&](SiteNet::Site&, const JobId&, const SiteNet::Gain&) { goes = true; };
        for (int n = 0; n < 100 && !goes; ++n) p.step();
        ck_assert(goes && p.says("moved for a gain: uni saves"));
        p.decided = nullptr;
    };
    {  // somebody wishes otherwise
        Uneven p;
        begins(p);
        ck_assert(p.at("lab").w.market->thaw(p.job, "", false, 0).has_value());
        ck_assert_msg(!p.says("moved for a gain") && p.says("came to nothing"), "%s",
                      p.why().c_str());
    }
    {  // its order fails
        Uneven p;
        p.at("lab").w.refuse = [](const Order& o) -> std::optional<OrderFailed> {
            return OrderFailed{o.id, o.seq, o.node, "the image is damaged"};
        };
        begins(p);
        p.run(s(15));
        ck_assert_text(p.place(), "n1");
        ck_assert_msg(!p.says("moved for a gain") && p.says("came to nothing: the image is"), "%s",
                      p.why().c_str());
    }
}
END_TEST

UNIT_SUITE_LONG(
    site_trips, 240, a_silent_peer_that_had_a_job_holds_it_up_for_a_minute_and_hears_the_end_later,
    a_peer_to_which_a_job_never_came_does_not_hold_it_up,
    a_site_that_has_too_much_to_do_has_not_failed, a_late_word_of_a_stay_before_changes_nothing,
    a_change_of_sites_keeps_what_is_not_said, a_lower_price_for_other_sites_holds_during_a_stay,
    each_tenth_turn_is_that_of_a_job_that_runs, a_job_that_comes_back_is_asked_about_as_a_new_one,
    a_job_that_comes_home_takes_the_place_that_its_bid_wins_then,
    a_move_that_comes_to_nothing_is_not_said_to_have_been);
