// SPDX-License-Identifier: GPL-2.0-or-later
// SiteTerms (market/core/site_terms.hpp): drawn terms and jobs beside a reference that holds them
// as tables of all minutes and names, and words that are no terms.
#include <map>
#include <set>

#include "kernel/base/rng.hpp"
#include "market/core/site_terms.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

using Words = std::vector<std::string>;

SiteTerms terms_of(const Words& words) {
    const auto terms = parse_site_terms(words);
    ck_assert_msg(terms.has_value(), "%s", terms ? "" : terms.error().message.c_str());
    return *terms;
}

std::string refusal(const Words& words) {
    const auto terms = parse_site_terms(words);
    ck_assert(!terms);
    ck_assert(terms.error().message.find('\n') == std::string::npos);
    return terms.error().message;
}

// Drawn terms, as words and as tables.
struct Drawn {
    Words words;
    std::set<std::string> users, projects;
    std::set<int32_t> minutes;
    int64_t most = 0, least = 0;
};

std::string two(int32_t n) { return (n < 10 ? "0" : "") + std::to_string(n); }
std::string clock_of(int32_t minute) { return two(minute / 60) + ":" + two(minute % 60); }

std::set<std::string> draw_names(Rng& rng, Words& words, const std::string& key) {
    std::set<std::string> names;
    if (rng.chance(0.4)) return names;
    std::string list;
    for (int64_t n = rng.between(1, 3); n > 0; --n) {
        const std::string name(1, static_cast<char>('a' + rng.below(4)));
        names.insert(name);
        list += (list.empty() ? "" : ",") + name;
    }
    words.push_back(key + "=" + list);
    return names;
}

Drawn draw(Rng& rng) {
    Drawn d;
    d.most = rng.between(1, 20);
    d.words.push_back("most-cpus=" + std::to_string(d.most));
    d.users = draw_names(rng, d.words, "users");
    d.projects = draw_names(rng, d.words, "projects");
    int32_t from = static_cast<int32_t>(rng.between(0, 1439)), to = from;
    while (to == from) to = static_cast<int32_t>(rng.between(0, 1439));
    if (rng.chance(0.7)) {
        d.words.push_back("hours=" + clock_of(from) + "-" + clock_of(to));
        for (int32_t at = from; at != to; at = (at + 1) % 1440) d.minutes.insert(at);
    } else {
        for (int32_t at = 0; at < 1440; ++at) d.minutes.insert(at);
    }
    if (rng.chance(0.5)) {
        d.least = rng.between(1, 50);
        d.words.push_back("least=" + std::to_string(d.least));
    }
    return d;
}

START_TEST(a_job_may_come_exactly_if_every_term_lets_it) {
    Rng rng(7);
    int64_t came = 0, refused = 0;
    for (int round = 0; round < 3'000; ++round) {
        const Drawn d = draw(rng);
        const SiteTerms terms = terms_of(d.words);
        SiteGuest guest;
        guest.user = std::string(1, static_cast<char>('a' + rng.below(5)));
        guest.project =
            rng.chance(0.3) ? "" : std::string(1, static_cast<char>('a' + rng.below(5)));
        guest.cpus = static_cast<int32_t>(rng.between(1, 12));
        guest.max_price = Money::units(rng.between(1, 60));
        const int64_t had = rng.between(0, 12);
        const int32_t minute = static_cast<int32_t>(rng.between(0, 7 * 1440 - 1));
        const bool may = (d.users.empty() || d.users.contains(guest.user)) &&
                         (d.projects.empty() || d.projects.contains(guest.project)) &&
                         d.minutes.contains(minute % 1440) && had + guest.cpus <= d.most &&
                         guest.max_price.micro >= d.least * 1'000'000;
        const Cause why = why_not_by(terms, guest, had, minute * 60);
        ck_assert_msg(why.empty() == may, "round %d: '%s'", round, why.c_str());
        ck_assert((why.code == CauseCode::none) == may);
        ++(may ? came : refused);
    }
    ck_assert_msg(came > 50 && refused > 500, "%ld came", static_cast<long>(came));
}
END_TEST

START_TEST(nothing_may_come_until_terms_are_set) {
    const SiteTerms none;
    ck_assert(!none.let_any());
    SiteGuest guest;
    guest.max_price = Money::units(1'000);
    for (int32_t minute = 0; minute < 1440; ++minute)
        ck_assert(!why_not_by(none, guest, 0, minute * 60).empty());
    ck_assert(terms_of({"most-cpus=0"}) == none);
    // More CPUs than there are cannot make room by overflow.
    ck_assert(!why_not_by(terms_of({"most-cpus=65536"}), guest, INT64_MAX / 2, 0).empty());
}
END_TEST

START_TEST(words_that_are_no_terms_are_refused_with_a_line) {
    const std::map<std::string, std::string> bad = {{"most-cpus=-1", "whole number"},
                                                    {"most-cpus=65537", "whole number"},
                                                    {"most-cpus=", "whole number"},
                                                    {"most-cpus=2x", "whole number"},
                                                    {"users=", "is no name"},
                                                    {"users=a,,b", "is no name"},
                                                    {"users=a b", "is no name"},
                                                    {"projects=\x1b[2J", "is no name"},
                                                    {"hours=20:00", "no span of time"},
                                                    {"hours=24:00-08:00", "no time of day"},
                                                    {"hours=8-20", "no time of day"},
                                                    {"hours=08:60-09:00", "no time of day"},
                                                    {"hours=08:00-08:00", "ends when it begins"},
                                                    {"hours=-1:00-08:00", "no time of day"},
                                                    {"least=-1", ""},
                                                    {"least=cheap", ""},
                                                    {"most_cpus=4", "none of"},
                                                    {"", "none of"}};
    for (const auto& [word, says] : bad) {
        const std::string why = refusal({"most-cpus=4", word});
        ck_assert_msg(why.find(says) != std::string::npos, "%s: %s", word.c_str(), why.c_str());
    }
    std::string many = "users=u0";
    for (int n = 1; n <= 64; ++n) many += ",u" + std::to_string(n);
    ck_assert(refusal({"most-cpus=4", many}).find("more than 64") != std::string::npos);
    ck_assert(refusal({"users=ada"}).find("most-cpus is missing") != std::string::npos);
    ck_assert_text(terms_of({"most-cpus=1", "hours=8:00-24:00"}).hours, "8:00-24:00");
    ck_assert_text(terms_of({"most-cpus=1", "hours=always"}).hours, "");
    // The frames of owners: of some days alone.
    const SiteTerms nights = terms_of({"most-cpus=1", "hours=mon-fri 18:00-08:00"});
    ck_assert(nights.are_open(7 * 3'600) == false && nights.are_open(19 * 3'600));
    // A word of a peer that is none is never open.
    SiteTerms odd = nights;
    odd.hours = "at night";
    ck_assert(!odd.are_open(0));
}
END_TEST

}  // namespace

UNIT_SUITE(site_terms, a_job_may_come_exactly_if_every_term_lets_it,
           nothing_may_come_until_terms_are_set, words_that_are_no_terms_are_refused_with_a_line);
