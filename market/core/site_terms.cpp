// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_terms.hpp"

#include <algorithm>

#include "kernel/base/fields.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/setting.hpp"
#include "kernel/base/text.hpp"
#include "kernel/base/time_frames.hpp"

namespace souk {
namespace {

Result<std::vector<std::string>> names_of(const std::string& key, std::string_view text) {
    std::vector<std::string> names;
    for (std::string& name : comma_parts(text)) {
        if (!check_label(name, SiteTerms::name_bytes_max) || name.find(' ') != name.npos)
            return fail(key + ": '" + blank_controls(name.substr(0, SiteTerms::name_bytes_max)) +
                        "' is no name (names are parted by commas, of 64 characters at most)");
        if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
        if (names.size() > SiteTerms::names_max)
            return fail(key + ": more than " + std::to_string(SiteTerms::names_max) + " names");
    }
    return names;
}

bool is_named(const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::ranges::find(names, name) != names.end();
}

}  // namespace

bool SiteTerms::are_open(int32_t second_of_week) const {
    if (hours.empty()) return true;
    const auto frames = TimeFrames::parse(hours);
    return frames && frames->contains(second_of_week);
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
            const auto frames = TimeFrames::parse_apart(value);
            if (!frames) return wrap("hours", frames.error());
            terms.hours = frames->always() ? "" : frames->text();
        } else if (key == "least") {
            TRY_ASSIGN(terms.least, parse_money(value));
            if (terms.least < Money{} || terms.least > money_max)
                return fail("least: no price per CPU-hour");
        } else if (key == "credit") {
            TRY_ASSIGN(terms.credit, parse_money(value));
            if (*terms.credit < Money{} || *terms.credit > money_max)
                return fail("credit: no amount that a site may owe");
        } else {
            return fail("'" + word +
                        "' is none of most-cpus, users, projects, hours, least and credit");
        }
    }
    if (!terms.let_any() && terms != SiteTerms{})
        return fail("most-cpus is missing: how many CPUs all its jobs may have together");
    return terms;
}

Cause why_not_by(const SiteTerms& terms, const SiteGuest& guest, int64_t had,
                 int32_t second_of_week) {
    const auto no = [](std::string why) { return Cause(CauseCode::not_allowed, std::move(why)); };
    if (!terms.let_any()) return no("nothing may come from your site (souk peer terms, there)");
    if (!is_named(terms.users, guest.user)) return no("not of this user");
    if (!is_named(terms.projects, guest.project)) return no("not of this project");
    if (!terms.are_open(second_of_week)) return no("only " + terms.hours + ", by its clock");
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
