// SPDX-License-Identifier: GPL-2.0-or-later
// Market::offer: what a job of another site is offered is what a job of this one would get, within
// the terms; what is kept for it is sold to nobody until that is over; and a peer that asks for all
// gets no more than its terms.
#include "tests/unit/market_chaos.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
constexpr int32_t noon = 12 * 60;

SiteAsk asked(uint64_t job, int64_t price, int32_t cpus = 1, Nanos hold = {}) {
    SiteAsk ask;
    ask.number = job;
    ask.job = {"n1", job};
    ask.user = "ada";
    ask.terms.max_price = Money::units(price);
    ask.terms.cpus = cpus;
    ask.terms.memory_mb = 100;
    ask.hold = hold;
    return ask;
}

SiteTerms terms(int32_t most_cpus, int64_t least = 0) {
    SiteTerms t;
    t.most_cpus = most_cpus;
    t.least = Money::units(least);
    return t;
}

SiteOffer offer(World& w, const SiteAsk& ask, const SiteTerms& t, const std::string& site = "lab") {
    return w.market->offer({site, market::site_account(1), &t, noon}, ask, w.now);
}

JobId book(World& w, int64_t price, int32_t cpus, Nanos span) {
    const JobId id = w.submit("n1", price, Nanos::never(), cpus);
    Booking b;
    b.span = span;
    w.jobs[id].report.terms.booking = b;
    w.tell(w.jobs[id]);
    return id;
}

bool is_sold(World& w, const JobId& id) { return w.market->find(id)->record.contract->is_sold(); }

}  // namespace

START_TEST(an_offer_has_the_place_and_the_price_of_a_job_of_this_site) {
    World w;
    w.add_node("n1", 200, 20);
    w.add_node("n2", 100, 10);
    w.run_for(s(4));
    SiteOffer o = offer(w, asked(1, 50), terms(4));
    ck_assert(o.why.empty() && o.number == 1 && o.speed == 200 && o.starts_in.ns == 0);
    ck_assert_text(format_money(o.price), "20");
    ck_assert_int_eq(o.held_for.ns, 0);
    ck_assert_text(format_money(offer(w, asked(1, 50), terms(4, 35)).price), "35");
    ck_assert(offer(w, asked(1, 30), terms(4, 35)).why.code == CauseCode::not_allowed);
    w.submit("n1", 60);
    w.submit("n1", 40);
    w.run_for(s(4));
    // Somebody has to leave for it.
    o = offer(w, asked(1, 50), terms(4));
    ck_assert(o.why.empty() && o.speed == 100 && o.starts_in >= s(2));
    o = offer(w, asked(1, 30), terms(4));
    ck_assert_text(o.why, "outbid; 41 would win a place");
    ck_assert(o.why.code == CauseCode::not_possible);
    ck_assert(offer(w, asked(1, 50), terms(0)).why.code == CauseCode::not_allowed);
}
END_TEST

START_TEST(offers_in_drawn_markets_are_quotes_within_the_terms) {
    size_t offers = 0, refusals = 0;
    for (uint64_t seed = 1; seed <= 120; ++seed) {
        Chaos c(seed);
        for (int n = 0; n < 60; ++n) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
            SiteAsk ask =
                asked(seed, c.rng.between(1, 80), static_cast<int32_t>(c.rng.between(1, 3)));
            ask.terms.memory_mb = c.rng.between(0, 4) * 200;
            ask.terms.budget = Money::units(1);  // its own site's business
            ask.terms.project = "atlas";
            const SiteTerms t = terms(4, c.rng.between(0, 40));
            QuoteRequest same;
            same.home = c.any_node();
            same.uid = 4'000'000;
            same.terms = asked(seed, 1, ask.terms.cpus).terms;
            same.terms.max_price = ask.terms.max_price;
            same.terms.memory_mb = ask.terms.memory_mb;
            const auto quote = c.w.market->quote(same, c.w.now);
            if (!quote) continue;
            const SiteOffer o = offer(c.w, ask, t);
            if (!quote->runs || ask.terms.max_price < t.least) {
                ck_assert(!o.why.empty());
                ++refusals;
                continue;
            }
            ++offers;
            ck_assert_msg(o.why.empty(), "seed %d: %s", static_cast<int>(seed), o.why.c_str());
            ck_assert_int_eq(o.speed, quote->places[0].speed);
            ck_assert(o.price == std::max(quote->places[0].price, t.least));
            ck_assert(o.price <= ask.terms.max_price);
            ck_assert((o.starts_in.ns > 0) == quote->others_first);
        }
    }
    ck_assert_msg(offers > 200 && refusals > 200, "%zu offers, %zu refusals", offers, refusals);
}
END_TEST

START_TEST(what_is_kept_for_an_offer_is_sold_to_nobody_until_it_is_over) {
    World w;
    w.add_node("n1", 100, 10, 4);
    w.run_for(s(4));
    const SiteOffer o = offer(w, asked(1, 50, 3, s(20)), terms(8));
    ck_assert_int_eq(o.held_for.ns, s(20).ns);
    const JobId large = book(w, 40, 2, s(600)), small = book(w, 40, 1, s(600));
    w.run_for(s(5));
    ck_assert(!is_sold(w, large) && is_sold(w, small));
    // The same job is asked about once more: it keeps one place.
    ck_assert(offer(w, asked(1, 50, 3, s(5)), terms(8)).held_for == s(5));
    ck_assert_int_eq(offer(w, asked(2, 50, 1, s(5)), terms(8)).held_for.ns, 0);
    w.run_for(s(20));
    ck_assert(is_sold(w, large));
    // No longer than half a minute, whatever is asked for; and nothing that is sold already.
    ck_assert_int_eq(offer(w, asked(3, 50, 1, s(100'000)), terms(8)).held_for.ns, s(30).ns);
    ck_assert_int_eq(offer(w, asked(4, 50, 1, s(10)), terms(8)).held_for.ns, 0);
}
END_TEST

START_TEST(a_peer_that_asks_for_all_keeps_no_more_than_its_terms) {
    World w;
    w.add_node("n1", 100, 10, 16, 10'000);
    w.run_for(s(4));
    int64_t kept = 0;
    for (uint64_t job = 1; job <= 1'000; ++job) {
        const SiteOffer o = offer(w, asked(job, 50, 1, s(30)), terms(3));
        kept += o.held_for.ns > 0;
        if (!o.why.empty()) ck_assert(o.why.code == CauseCode::too_many);
    }
    ck_assert_int_eq(kept, 3);
    // Another peer is bounded by its own terms, and so is one whose name begins as that one's.
    ck_assert(offer(w, asked(1, 50, 2, s(30)), terms(2), "la").held_for.ns > 0);
    ck_assert(offer(w, asked(1, 50, 2, s(30)), terms(2), "lab2").held_for.ns > 0);
    const JobId id = book(w, 40, 9, s(600));
    w.run_for(s(2));
    ck_assert(is_sold(w, id));
    const JobId more = book(w, 40, 1, s(600));
    w.run_for(s(2));
    ck_assert(!is_sold(w, more));
    w.run_for(s(40));
    ck_assert(is_sold(w, more) && offer(w, asked(7, 50, 3), terms(3)).why.empty());
}
END_TEST

START_TEST(words_of_a_peer_that_no_home_of_this_site_could_say_are_refused) {
    World w;
    w.add_node("n1", 100, 10, 4);
    w.run_for(s(4));
    SiteAsk ask = asked(1, 50);
    ask.terms.needs = "cpu.avx2 and (";
    ck_assert(offer(w, ask, terms(4)).why.code == CauseCode::invalid);
    ask = asked(1, 50);
    ask.terms.resources = "gpu=";
    ck_assert(offer(w, ask, terms(4)).why.code == CauseCode::invalid);
    ask = asked(1, 50);
    ask.terms.booking.edit().within = "n1.1";
    ck_assert(offer(w, ask, terms(4)).why.code == CauseCode::not_possible);
    ask = asked(1, 50, 65'536, s(30));
    ask.terms.memory_mb = memory_mb_max;
    ck_assert(!offer(w, ask, terms(65'536)).why.empty());
    ck_assert_text(w.market->audit(), "");
}
END_TEST

UNIT_SUITE_LONG(market_offers, 120, an_offer_has_the_place_and_the_price_of_a_job_of_this_site,
                offers_in_drawn_markets_are_quotes_within_the_terms,
                what_is_kept_for_an_offer_is_sold_to_nobody_until_it_is_over,
                a_peer_that_asks_for_all_keeps_no_more_than_its_terms,
                words_of_a_peer_that_no_home_of_this_site_could_say_are_refused);
