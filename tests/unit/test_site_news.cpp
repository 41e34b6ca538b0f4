// SPDX-License-Identifier: GPL-2.0-or-later
// SiteNews (market/core/site_news.hpp): words of sites spread over random graphs of peers, fade
// when their sites are gone, and what a hostile peer tells stays within bounds.
#include "market/core/site_news.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>

#include "tests/unit/unit.hpp"

using namespace souk;
using market::SiteNews;

namespace {

constexpr Nanos began = Nanos::from_s(1'700'000'000);

std::string name_of(size_t i) { return "s" + std::to_string(i); }

SiteWord word_of(const std::string& site, Nanos at, const std::string& root = "") {
    SiteWord word;
    word.site = site;
    word.root = root.empty() ? "root of " + site : root;
    word.at = at;
    word.nodes = 1;
    word.some.push_back({"n1", 4, 100, 1'000, 500, 0, Money::units(1)});
    return word;
}

// Sites that tell each other once a second, each as its desk does.
struct Net {
    Nanos unix = began;
    std::vector<std::unique_ptr<SiteNews>> sites;
    std::vector<std::set<size_t>> peers;
    std::vector<Nanos> said;  // when each made its word
    std::set<size_t> dead;
    std::mt19937_64 draw;

    Net(size_t count, uint64_t seed) : peers(count), said(count), draw(seed) {
        for (size_t i = 0; i < count; ++i)
            sites.push_back(std::make_unique<SiteNews>(name_of(i), seed * 1'000 + i));
        // Each has two of its own choice, so that all are connected by some way.
        for (size_t i = 1; i < count; ++i)
            for (int n = 0; n < 2; ++n) connect(i, draw() % i);
    }
    void connect(size_t a, size_t b) {
        peers[a].insert(b);
        peers[b].insert(a);
    }
    void round() {
        unix += Nanos::from_s(1);
        for (size_t i = 0; i < sites.size(); ++i) {
            if (dead.contains(i)) continue;
            sites[i]->fade(unix);
            if (unix >= said[i] + sites[i]->word_every()) {
                sites[i]->say(word_of(name_of(i), unix));
                said[i] = unix;
            }
            std::vector<std::string> up;
            for (const size_t peer : peers[i])
                if (!dead.contains(peer)) up.push_back(name_of(peer));
            for (const std::string& to : sites[i]->whom(up))
                sites[std::stoul(to.substr(1))]->heard(name_of(i), "root of " + name_of(i),
                                                       sites[i]->tell(to, unix), unix);
        }
    }
    bool all_know_all() const {
        return std::ranges::all_of(
            sites, [&](const auto& one) { return one->all().size() + 1 == sites.size(); });
    }
};

}  // namespace

START_TEST(all_hear_of_all_in_rounds_that_grow_with_the_logarithm) {
    for (const size_t count : {20, 80, 320}) {
        Net net(count, 7 + count);
        int rounds = 0;
        while (!net.all_know_all() && rounds < 1'000) net.round(), ++rounds;
        ck_assert_msg(rounds <= 3 * std::log2(static_cast<double>(count)), "%zu sites: %d rounds",
                      count, rounds);
    }
}
END_TEST

START_TEST(words_are_young_and_those_of_sites_that_are_gone_fade) {
    Net net(30, 3);
    for (int i = 0; i < 120; ++i) net.round();
    for (const auto& one : net.sites)
        for (const auto& [site, known] : one->all())
            ck_assert_msg(known.age(net.unix) < Nanos::from_s(45), "%s is %.0f s old", site.c_str(),
                          known.age(net.unix).seconds());
    net.dead = {4, 9};
    for (int i = 0; i < 300; ++i) net.round();
    ck_assert(net.sites[0]->all().contains(name_of(4)));
    ck_assert(net.sites[0]->all().at(name_of(4)).age(net.unix) > Nanos::from_s(250));
    for (int i = 0; i < 320; ++i) net.round();
    for (size_t i = 0; i < net.sites.size(); ++i) {
        if (net.dead.contains(i)) continue;
        ck_assert(!net.sites[i]->all().contains(name_of(4)));
        ck_assert(!net.sites[i]->all().contains(name_of(9)));
        ck_assert_uint_eq(net.sites[i]->all().size(), 27);
    }
}
END_TEST

START_TEST(what_a_site_says_of_itself_is_not_replaced_by_hearsay) {
    SiteNews news("own", 1);
    const auto said = [&](const char* from, SiteWord word, Nanos at) {
        return news.heard(from, std::string("root of ") + from, {{std::move(word)}}, at);
    };
    ck_assert_uint_eq(said("uni", word_of("uni", began), began), 1);
    SiteWord lie = word_of("uni", began + Nanos::from_s(20));
    lie.nodes = 1'000;
    ck_assert_uint_eq(said("evil", lie, began + Nanos::from_s(20)), 0);
    // Once uni has said nothing for long, others may know more.
    ck_assert_uint_eq(said("far", lie, began + Nanos::from_s(70)), 1);
    ck_assert_text(news.all().at("uni").from, "far");
    // Its own word counts at once again, though the lie was of a later time.
    ck_assert_uint_eq(
        said("uni", word_of("uni", began + Nanos::from_s(10)), began + Nanos::from_s(71)), 1);
    ck_assert(news.all().at("uni").is_direct());
    // Nobody tells of this site, or as a peer that he is not.
    ck_assert_uint_eq(said("evil", word_of("own", began), began), 0);
    ck_assert_uint_eq(said("evil", word_of("evil", began, "another root"), began), 0);
    // Another site of the same name does not take its place.
    ck_assert_uint_eq(said("far", word_of("lab", began), began), 1);
    ck_assert_uint_eq(said("evil", word_of("lab", began + Nanos::from_s(1), "another root"), began),
                      0);
}
END_TEST

START_TEST(words_that_cannot_be_are_passed_over) {
    SiteNews news("own", 1);
    const auto took = [&](const SiteWord& word) {
        return news.heard("evil", "root of evil", {{word}}, began) == 1;
    };
    ck_assert(took(word_of("a", began)));
    ck_assert(!took(word_of("a", began)));  // the same again
    ck_assert(!took(word_of("a", began - Nanos::from_s(1))));
    ck_assert(!took(word_of("b", began + Nanos::from_s(61))));
    ck_assert(!took(word_of("b", began - Nanos::from_s(601))));
    ck_assert(!took(word_of("B/../c", began)));
    ck_assert(!took(word_of("", began)));
    SiteWord word = word_of("b", began);
    word.some[0].node = "x y";
    ck_assert(!took(word));
    word = word_of("b", began);
    word.some.resize(SiteWord::nodes_max + 1, word.some[0]);
    ck_assert(!took(word));
    // A clock that goes ahead makes no word younger than when it was heard.
    ck_assert(took(word_of("c", began + Nanos::from_s(50))));
    ck_assert(news.all().at("c").age(began + Nanos::from_s(5)) == Nanos::from_s(5));
}
END_TEST

START_TEST(a_peer_that_tells_of_very_many_sites_pushes_out_nobody) {
    SiteNews news("own", 1);
    ck_assert_uint_eq(news.heard("uni", "root of uni", {{word_of("uni", began)}}, began), 1);
    ck_assert_uint_eq(news.heard("uni", "root of uni", {{word_of("far", began)}}, began), 1);
    size_t taken = 0;
    for (const char* teller : {"evil", "worse", "worst"})
        for (size_t i = 0; i < 2'000; ++i)
            taken += news.heard(teller, "", {{word_of(teller + std::to_string(i), began)}}, began);
    ck_assert_uint_eq(news.all().size(), SiteNews::sites_max);
    ck_assert_uint_eq(taken, SiteNews::sites_max - 2);
    ck_assert(news.all().contains("uni") && news.all().contains("far"));
    // A site that says its own word has its place.
    ck_assert_uint_eq(news.heard("new", "root of new", {{word_of("new", began)}}, began), 1);
    ck_assert_uint_eq(news.all().size(), SiteNews::sites_max);
    ck_assert(news.all().contains("uni") && news.all().contains("new"));
    // A frame has room for what is told, whatever is known.
    for (int i = 0; i < 100; ++i)
        ck_assert(news.tell("uni", began).words.size() <= SiteWords::words_max);
    news.fade(began + Nanos::from_s(601));
    ck_assert(news.all().empty());
}
END_TEST

UNIT_SUITE(site_news, all_hear_of_all_in_rounds_that_grow_with_the_logarithm,
           words_are_young_and_those_of_sites_that_are_gone_fade,
           what_a_site_says_of_itself_is_not_replaced_by_hearsay,
           words_that_cannot_be_are_passed_over,
           a_peer_that_tells_of_very_many_sites_pushes_out_nobody);
