// SPDX-License-Identifier: GPL-2.0-or-later
// Offers between sites: the choice among drawn offers beside a reference with fractions, and rounds
// of questions (market/core/offer_rounds.hpp) under drawn jobs, answers, silence and lies.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "kernel/base/fields.hpp"
#include "kernel/base/rng.hpp"
#include "market/core/offer_rounds.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

Nanos s(int64_t n) { return Nanos::from_s(n); }

struct Fraction {
    int64_t over, under;
    bool operator<(const Fraction& o) const { return over * o.under < o.over * under; }
    bool operator==(const Fraction& o) const { return over * o.under == o.over * under; }
};

// Small numbers, so that equals are frequent and no product is large.
SiteAndOffer draw_offer(Rng& rng, size_t number) {
    SiteAndOffer one;
    one.site = "s" + std::to_string(number);
    one.offer.price = Money{rng.between(0, 2)};
    one.offer.speed = rng.chance(0.05) ? 0 : 50 * rng.between(1, 2);
    one.offer.starts_in = Nanos{rng.between(0, 1) * 60};
    if (rng.chance(0.2)) one.offer.why = "no";
    return one;
}

std::set<std::string> best_by_hand(const std::vector<SiteAndOffer>& offers, const OfferWish& wish) {
    const int64_t work = wish.work.ns > 0 ? wish.work.ns : s(3'600).ns;
    std::map<std::string, std::pair<Fraction, Fraction>> good;
    for (const auto& [site, offer] : offers) {
        if (!offer.why.empty() || offer.speed == 0 || offer.price.micro > wish.most.micro) continue;
        const Fraction end{offer.starts_in.ns * offer.speed + work * 100, offer.speed},
            cost{offer.price.micro, offer.speed};
        good.insert({site, wish.cheapest ? std::pair(cost, end) : std::pair(end, cost)});
    }
    std::set<std::string> best;
    for (const auto& [site, key] : good) {
        const bool beaten = std::ranges::any_of(good, [&, mine = key](const auto& other) {
            const auto& theirs = other.second;
            return theirs.first < mine.first ||
                   (theirs.first == mine.first && theirs.second < mine.second);
        });
        if (!beaten) best.insert(site);
    }
    return best;
}

START_TEST(the_best_offer_is_one_that_no_other_beats) {
    Rng rng(11);
    size_t ties = 0, none = 0;
    for (uint64_t round = 0; round < 20'000; ++round) {
        std::vector<SiteAndOffer> offers;
        for (int64_t n = rng.between(0, 6); n > 0; --n)
            offers.push_back(draw_offer(rng, offers.size()));
        const OfferWish wish{rng.chance(0.5), Money{rng.between(0, 4)},
                             Nanos{rng.chance(0.3) ? 0 : rng.between(1, 600)}};
        const auto best = best_by_hand(offers, wish);
        const auto chosen = best_offer(offers, wish, round);
        ck_assert(chosen.has_value() == !best.empty());
        ties += best.size() > 1;
        none += best.empty();
        if (!chosen) continue;
        const std::string site = offers[*chosen].site;
        ck_assert_msg(best.contains(site), "round %d: %s", static_cast<int>(round), site.c_str());
        // The order in which they came says nothing.
        for (size_t i = offers.size(); i > 1; --i) std::swap(offers[i - 1], offers[rng.below(i)]);
        ck_assert_text(offers[*best_offer(offers, wish, round)].site, site);
    }
    ck_assert(ties > 500 && none > 500);
}
END_TEST

START_TEST(equal_offers_are_as_likely_as_each_other) {
    std::vector<SiteAndOffer> offers(4);
    for (size_t i = 0; i < offers.size(); ++i)
        offers[i] = {std::string(1, static_cast<char>('a' + i)),
                     {0, {}, Money{5}, 100, Nanos{10}, {}}};
    offers[2].offer.price = Money{6};
    std::map<std::string, int> times;
    for (uint64_t seed = 0; seed < 30'000; ++seed)
        ++times[offers[*best_offer(offers, {false, Money{9}, s(60)}, seed)].site];
    ck_assert(times.size() == 3);
    for (const auto& [site, n] : times) ck_assert_msg(n > 9'500 && n < 10'500, "%d", n);
}
END_TEST

START_TEST(no_numbers_of_a_peer_are_too_large_to_compare) {
    std::vector<SiteAndOffer> offers(2);
    offers[0] = {"a", {0, {}, money_max, 16'383, Nanos{rule::span_ns_max}, {}}};
    offers[1] = {"b", {0, {}, money_max, 1, Nanos{}, {}}};
    const OfferWish longest{false, money_max, Nanos{rule::span_ns_max}};
    ck_assert_uint_eq(*best_offer(offers, longest, 1), 0);
    offers[0].offer.starts_in = Nanos{-1};
    ck_assert_uint_eq(*best_offer(offers, longest, 1), 1);
}
END_TEST

START_TEST(a_wish_names_sites_or_is_refused) {
    for (const char* good : {"", "any", "uni", "uni,far"}) ck_assert(check_site_wish(good));
    for (const char* bad : {"own", "all", "uni,", ",uni", "uni,any", "u ni", "uni:n1", "\x1b"})
        ck_assert_msg(!check_site_wish(bad), "%s", bad);
    std::string many = "s0";
    for (int n = 1; n < 16; ++n) many += ",s" + std::to_string(n);
    ck_assert(check_site_wish(many) && !check_site_wish(many + ",x"));
    ck_assert(is_wished({"any"}, "uni") && is_wished({"far,uni"}, "uni"));
    ck_assert(!is_wished({}, "uni") && !is_wished({"unix"}, "uni") && !is_wished({"uni"}, ""));
}
END_TEST

// The rounds, with peers that answer when they like, or never, and say what they like.
struct Hall {
    explicit Hall(uint64_t seed) : rng(seed), rounds(seed) {}
    Rng rng;
    OfferRounds rounds;
    Nanos now = s(1), last_begun = Nanos{-1'000'000'000'000};
    struct Open {
        JobId job;
        Nanos began;
        OfferWish wish;
        std::map<std::string, std::optional<SiteOffer>> said;
    };
    std::map<uint64_t, Open> open;
    std::map<JobId, JobTerms> wanted;
    std::map<JobId, Nanos> ended;  // its last round, with these terms
    std::map<JobId, int> asked;

    void check_closed() {
        for (auto it = open.begin(); it != open.end();) {
            const auto& [number, o] = *it;
            const OfferRounds::Round* const round = rounds.of(o.job);
            if (round && round->number == number && round->is_open) {
                ck_assert(now < o.began + OfferRounds::answer_limit);
                ++it;
                continue;
            }
            if (round && round->number == number) {
                std::vector<SiteAndOffer> offers;
                for (const auto& [site, offer] : o.said)
                    if (offer) offers.push_back({site, *offer});
                const bool whole = offers.size() == o.said.size();
                ck_assert(whole || now >= o.began + OfferRounds::answer_limit);
                const auto best = best_by_hand(offers, o.wish);
                ck_assert(round->chosen.has_value() == !best.empty());
                if (round->chosen) ck_assert(best.contains(round->answers[*round->chosen].site));
                ended[o.job] = now;
            }
            it = open.erase(it);
        }
    }

    void begin_due() {
        while (const auto id = rounds.due(now)) {
            ck_assert(wanted.contains(*id));
            ck_assert(now >= last_begun + OfferRounds::apart);
            if (const auto before = ended.find(*id); before != ended.end())
                ck_assert(now >= before->second + OfferRounds::pause_least);
            std::vector<std::string> sites;
            for (const char* site : {"c", "a", "b"})
                if (rng.chance(0.6)) sites.emplace_back(site);
            if (sites.empty()) {
                rounds.later(*id, now);
                continue;
            }
            last_begun = now;
            ++asked[*id];
            Open o{*id, now, {rng.chance(0.5), Money{3}, Nanos{}}, {}};
            for (const std::string& site : sites) o.said[site];
            open[rounds.begin(*id, sites, o.wish, now)] = o;
        }
    }

    void say() {
        const std::string site(1, "abcx"[rng.below(4)]);
        SiteOffer offer = draw_offer(rng, 0).offer;
        offer.number = rng.chance(0.2) || open.empty() ? rng.below(50) : [&] {
            auto it = open.begin();
            std::advance(it, rng.below(open.size()));
            return it->first;
        }();
        const auto of = open.find(offer.number);
        const bool counts = of != open.end() && rounds.of(of->second.job) &&
                            of->second.said.contains(site) && !of->second.said[site];
        ck_assert(rounds.answer(site, offer, now) == counts);
        if (counts) of->second.said[site] = offer;
    }

    void step() {
        const JobId id{"n1", 1 + rng.below(12)};
        const double what = rng.unit();
        if (what < 0.15) {
            JobTerms terms;
            terms.max_price = Money{rng.between(1, 2)};
            if (!wanted.contains(id) || !(wanted[id] == terms)) ended.erase(id);
            wanted[id] = terms;
            rounds.note(id, static_cast<uint32_t>(id.seq % 3), terms, now);
        } else if (what < 0.18) {
            rounds.forget(id);
            wanted.erase(id);
            ended.erase(id);
            ck_assert(!rounds.of(id));
            std::erase_if(open, [&](const auto& one) { return one.second.job == id; });
        } else if (what < 0.7) {
            say();
        } else {
            now = now + Nanos::from_ms(rng.between(0, 2'000));
        }
        rounds.tick(now);
        check_closed();
        begin_due();
        ck_assert(rounds.size() == wanted.size());
        ck_assert(rounds.next() > now || rounds.due(now));
    }
};

START_TEST(rounds_end_are_apart_and_count_each_answer_once) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        Hall hall(seed);
        for (int n = 0; n < 3'000; ++n) hall.step();
        ck_assert(hall.asked.size() == 12);
    }
}
END_TEST

START_TEST(each_of_many_jobs_is_asked_about_in_its_turn) {
    OfferRounds rounds(1);
    JobTerms terms;
    for (uint64_t n = 1; n <= 300; ++n) rounds.note({"n1", n}, 1, terms, s(0));
    std::map<JobId, int> asked;
    Nanos now{};
    while (asked.size() < 300) {
        now = rounds.next();
        ck_assert(now < s(120));
        rounds.tick(now);
        while (const auto id = rounds.due(now)) {
            rounds.begin(*id, {"uni"}, {}, now);
            ++asked[*id];
        }
    }
    for (const auto& [id, n] : asked) ck_assert_int_eq(n, 1);
    // A peer that comes and goes does not have all asked again each time.
    for (int n = 0; n < 1'000; ++n) rounds.hurry(now);
    size_t again = 0;
    for (const Nanos end = now + s(20); now < end; now = rounds.next()) {
        rounds.tick(now);
        if (const auto id = rounds.due(now)) {
            rounds.begin(*id, {"uni"}, {}, now);
            ++again;
        }
    }
    ck_assert(again > 0 && again <= 68);
}
END_TEST

// The jobs in whose rounds nobody offers anything, in the order in which they are asked about.
std::vector<JobId> asked_until(OfferRounds& rounds, Nanos from, Nanos to) {
    std::vector<JobId> asked;
    for (Nanos now = from; now < to; now = std::max(rounds.next(), now + Nanos{1})) {
        rounds.tick(now);
        if (const auto id = rounds.due(now)) {
            rounds.begin(*id, {"uni"}, {}, now);
            asked.push_back(*id);
        }
    }
    return asked;
}

START_TEST(a_user_with_many_jobs_takes_no_turns_of_others) {
    OfferRounds rounds(1);
    JobTerms terms;
    for (uint64_t n = 1; n <= 20'000; ++n) rounds.note({"n1", n}, 7, terms, s(0));
    std::vector<JobId> asked = asked_until(rounds, s(0), s(60));
    ck_assert(asked.size() > 150);
    // Another user has his turn at once, and then every second one.
    for (uint64_t n = 1; n <= 50; ++n) rounds.note({"n2", n}, 8, terms, s(60));
    asked = asked_until(rounds, s(60), s(92));
    const auto of_other = [&](size_t to) {
        return std::count_if(asked.begin(), asked.begin() + static_cast<ptrdiff_t>(to),
                             [](const JobId& id) { return id.home == "n2"; });
    };
    ck_assert_int_eq(of_other(asked.size()), 50);
    // Nor has a user more turns whose jobs come and go, so that he is new each time.
    for (uint64_t n = 1; n <= 50; ++n) rounds.forget({"n2", n});
    rounds.note({"n3", 1}, 9, terms, s(92));
    size_t new_ones = 0, rest = 0;
    for (uint64_t n = 1; n <= 100; ++n) {
        const Nanos now = s(100 + static_cast<int64_t>(n));
        rounds.note({"n2", 1'000 + n}, 8, terms, Nanos{now.ns - s(2).ns});
        for (const JobId& id : asked_until(rounds, now, now + Nanos::from_ms(700))) {
            ++(id.home == "n2" ? new_ones : rest);
            if (id.home == "n2") rounds.forget(id);
        }
    }
    ck_assert_msg(new_ones <= rest, "%zu %zu", new_ones, rest);
}
END_TEST

// A home says of which users its jobs are.
START_TEST(a_home_with_many_users_takes_no_turns_of_others) {
    OfferRounds rounds(1);
    JobTerms terms;
    for (uint64_t n = 1; n <= 20'000; ++n)
        rounds.note({"n1", n}, static_cast<uint32_t>(n), terms, s(0));
    for (uint64_t n = 1; n <= 40; ++n) rounds.note({"n2", n}, 8, terms, s(0));
    const std::vector<JobId> asked = asked_until(rounds, s(2), s(27));
    ck_assert(std::ranges::count(asked, NodeName("n2"), &JobId::home) == 40);
}
END_TEST

START_TEST(no_job_is_forgotten_however_many_wait) {
    OfferRounds rounds(1);
    JobTerms terms;
    for (uint64_t n = 1; n <= 120'000; ++n) rounds.note({"n1", n}, 7, terms, s(0));
    rounds.note({"n2", 1}, 8, terms, s(0));
    ck_assert_uint_eq(rounds.size(), 120'001);
    ck_assert(std::ranges::count(asked_until(rounds, s(0), s(5)), JobId{"n2", 1}) == 1);
}
END_TEST

}  // namespace

UNIT_SUITE(site_offers, a_home_with_many_users_takes_no_turns_of_others,
           a_user_with_many_jobs_takes_no_turns_of_others, no_job_is_forgotten_however_many_wait,
           the_best_offer_is_one_that_no_other_beats, equal_offers_are_as_likely_as_each_other,
           no_numbers_of_a_peer_are_too_large_to_compare, a_wish_names_sites_or_is_refused,
           rounds_end_are_apart_and_count_each_answer_once,
           each_of_many_jobs_is_asked_about_in_its_turn);
