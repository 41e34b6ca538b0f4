// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_terms.hpp"

#include <algorithm>

#include "kernel/base/fields.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/setting.hpp"

namespace souk {
namespace {

Result<std::vector<std::string>> names_of(const std::string& key, std::string_view text) {
    std::vector<std::string> names;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(',', at), text.size());
        std::string name(text.substr(at, end - at));
        at = end + 1;
        const bool plain =
            std::ranges::all_of(name, [](unsigned char c) { return c > ' ' && c != 0x7f; });
        if (name.empty() || name.size() > SiteTerms::name_bytes_max || !plain)
            return fail(key + ": '" + name.substr(0, SiteTerms::name_bytes_max) +
                        "' is no name (names are parted by commas, of 64 characters at most)");
        if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
        if (names.size() > SiteTerms::names_max)
            return fail(key + ": more than " + std::to_string(SiteTerms::names_max) + " names");
    }
    return names;
}

std::optional<int32_t> minute_in(std::string_view text) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos || colon == 0 || colon > 2 || text.size() != colon + 3)
        return std::nullopt;
    const auto hour = whole_number<int32_t>(text.substr(0, colon)),
               minute = whole_number<int32_t>(text.substr(colon + 1));
    if (!hour || !minute || *hour < 0 || *minute < 0 || *minute > 59) return std::nullopt;
    const int32_t at = *hour * 60 + *minute;
    return at > SiteTerms::day_minutes ? std::nullopt : std::optional(at);
}

Status read_hours(const std::string& text, SiteTerms& terms) {
    const size_t dash = text.find('-');
    const auto from = minute_in(std::string_view(text).substr(0, dash));
    const auto to = dash == std::string::npos ? std::nullopt
                                              : minute_in(std::string_view(text).substr(dash + 1));
    if (!from || !to || *from == SiteTerms::day_minutes || *from == *to)
        return fail("hours: '" + text + "' is no part of a day; write for example 20:00-08:00");
    terms.from_min = *from;
    terms.to_min = *to;
    return {};
}

std::string two_digits(int32_t n) { return (n < 10 ? "0" : "") + std::to_string(n); }

std::string clock_text(int32_t minute) {
    return two_digits(minute / 60) + ":" + two_digits(minute % 60);
}

bool is_named(const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::ranges::find(names, name) != names.end();
}

}  // namespace

bool SiteTerms::are_open(int32_t minute) const {
    if (from_min == to_min) return true;
    if (from_min < to_min) return from_min <= minute && minute < to_min;
    return from_min <= minute || minute < to_min;
}

std::string SiteTerms::hours() const {
    if (from_min == to_min) return {};
    return clock_text(from_min) + "-" + clock_text(to_min);
}

Result<SiteTerms> parse_site_terms(const std::vector<std::string>& words) {
    SiteTerms terms;
    for (const std::string& word : words) {
        const auto [key, value] = parse_setting(word);
        if (key == "most-cpus") {
            const auto cpus = whole_number<int32_t>(value);
            if (!cpus || *cpus < 0 || *cpus > rule::cpus_max)
                return fail("most-cpus: '" + value + "' is not a whole number from 0 to " +
                            std::to_string(rule::cpus_max));
            terms.most_cpus = *cpus;
        } else if (key == "users") {
            TRY_ASSIGN(terms.users, names_of(key, value));
        } else if (key == "projects") {
            TRY_ASSIGN(terms.projects, names_of(key, value));
        } else if (key == "hours") {
            TRY(read_hours(value, terms));
        } else if (key == "least") {
            TRY_ASSIGN(terms.least, parse_money(value));
            if (terms.least < Money{} || terms.least > money_max)
                return fail("least: no price per CPU-hour");
        } else {
            return fail("'" + word + "' is none of most-cpus, users, projects, hours and least");
        }
    }
    if (!terms.let_any() && terms != SiteTerms{})
        return fail("most-cpus is missing: how many CPUs all its jobs may have together");
    return terms;
}

Cause why_not_by(const SiteTerms& terms, const SiteGuest& guest, int64_t had, int32_t minute) {
    const auto no = [](std::string why) { return Cause(CauseCode::not_allowed, std::move(why)); };
    if (!terms.let_any()) return no("nothing may come from your site (souk peer terms, there)");
    if (!is_named(terms.users, guest.user)) return no("not of this user");
    if (!is_named(terms.projects, guest.project)) return no("not of this project");
    if (!terms.are_open(minute)) return no("only " + terms.hours() + ", by its clock");
    if (guest.cpus > terms.most_cpus)
        return no("at most " + std::to_string(terms.most_cpus) + " CPUs");
    if (guest.max_price < terms.least)
        return no("at least " + format_money(terms.least) + " per CPU-hour");
    if (guest.cpus > terms.most_cpus - had)
        return Cause(CauseCode::too_many, "your site has " + std::to_string(had) + " of " +
                                              std::to_string(terms.most_cpus) + " CPUs already");
    return {};
}

}  // namespace souk
