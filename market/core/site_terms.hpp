// SPDX-License-Identifier: GPL-2.0-or-later
// SiteTerms: what an operator lets the jobs of a peer's users do at this site (docs/sites.md). They
// are part of the record of the peer, and are asked before anything is offered to it. The same
// words are told to the peer, for which they are a claim. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"

namespace souk {

struct SiteTerms {
    static constexpr size_t names_max = 64, name_bytes_max = 64, hours_bytes_max = 1024;

    int32_t most_cpus = 0;  // of all its jobs together; 0: nothing may come
    // Only jobs of these users and of these projects may come; empty: of any.
    std::vector<std::string> users, projects;
    std::string hours = {};  // in these (TimeFrames) of the local time of this site; empty: always
    Money least;             // per CPU-hour; nothing is offered below it
    // That site may owe so much (SiteCredit); nullopt: without a bound.
    std::optional<Money> credit = {};
    bool operator==(const SiteTerms&) const = default;

    bool let_any() const { return most_cpus > 0; }
    bool are_open(int32_t second_of_week) const;
};

// A job of the peer that would come.
struct SiteGuest {
    std::string user, project;
    int32_t cpus = 1;
    Money max_price;
};

// Reads KEY=VALUE of most-cpus, users, projects, hours and least. Errors: one line that names the
// word that is wrong, or no number of CPUs beside other words.
Result<SiteTerms> parse_site_terms(const std::vector<std::string>& words);
// Says why the terms do not let that job come now; an empty text: they do. `had`: CPUs that the
// peer has here already.
Cause why_not_by(const SiteTerms& terms, const SiteGuest& guest, int64_t had,
                 int32_t second_of_week);

}  // namespace souk
