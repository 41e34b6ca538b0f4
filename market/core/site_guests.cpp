// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_guests.hpp"

#include <algorithm>

#include "market/core/needs.hpp"
#include "market/core/site_offer.hpp"

namespace souk::market {

int64_t SiteGuests::cpus_of(const std::string& site) const {
    const std::string prefix = site + ":";
    int64_t cpus = 0;
    for (auto it = book_.jobs().lower_bound({prefix, 0});
         it != book_.jobs().end() && it->first.home.starts_with(prefix); ++it)
        if (it->second.phase() != JobPhase::finished) cpus += it->second.record.report.terms.cpus;
    return cpus;
}

// A market of before counts no stays, and gives a job to each site once.
const Job* SiteGuests::comes_again(const SiteJob& word) const {
    const Job* const job = book_.find(word.report.id);
    const bool is_new = job && job->phase() == JobPhase::finished &&
                        word.report.phase != JobPhase::finished &&
                        word.number > job->record.loan->number;
    return is_new ? job : nullptr;
}

std::vector<NodeName> SiteGuests::nodes_of(const std::string& site) const {
    const std::string prefix = site + ":";
    std::vector<NodeName> nodes;
    for (auto it = book_.nodes().lower_bound(prefix);
         it != book_.nodes().end() && it->first.starts_with(prefix); ++it)
        nodes.push_back(it->first);
    return nodes;
}

// Half of the nodes of the market are its own.
Status SiteGuests::has_room_for_node(const std::string& site) const {
    if (nodes_of(site).size() >= nodes_max)
        return fail(CauseCode::too_many, "too many nodes of site " + site);
    const auto of_sites = std::ranges::count_if(
        book_.nodes(), [](const auto& one) { return !of_site(one.first).site.empty(); });
    if (static_cast<size_t>(of_sites) >= book_.limits().nodes_max / 2)
        return fail(CauseCode::too_many, "too many nodes of other sites");
    return {};
}

Status SiteGuests::lets_in(const Site& site, const std::string& user, const JobTerms& t,
                           int64_t kept) const {
    if (const souk::Cause why = why_not_by(*site.terms, {user, *t.project, t.cpus, t.max_price},
                                           kept + cpus_of(site.name), site.second_of_week);
        !why.empty())
        return fail(why.code, why);
    if (t.max_price < site.leave.least)
        return fail(CauseCode::not_allowed,
                    "at least " + format_money(site.leave.least) + " per CPU-hour");
    if (!(t.booking == Booking{}))
        return fail(CauseCode::not_possible, "places are sold to jobs of this site alone");
    if ((!t.needs->empty() && !Needs::parse(*t.needs)) ||
        (!t.resources.empty() && !parse_resources(*t.resources)))
        return fail(CauseCode::invalid, "what it needs cannot be read");
    return {};
}

Status SiteGuests::may_come(const Site& site, const JobReport& r, int64_t kept) const {
    if (r.phase == JobPhase::finished)  // it has never come, or is forgotten
        return fail(CauseCode::not_found, "it is not here any more");
    TRY(lets_in(site, r.user, r.terms, kept));
    const bool waits = r.phase == JobPhase::waiting && r.where.empty();
    // It runs on a node of its own site until it is ordered here, and is frozen so long as to this
    // one.
    const bool runs =
        r.phase == JobPhase::frozen && !r.in_place && of_site(r.where).site == site.name;
    if ((!waits && !runs) || !r.gang.empty() || r.address)
        return fail(CauseCode::not_possible,
                    "only single jobs come from another site, and without "
                    "an address of their own");
    if (!r.only_node->empty() && !book_.find_node(*r.only_node))
        return fail(CauseCode::not_found, "it has no node " + *r.only_node);
    if (runs && !book_.find_node(r.where)) TRY(has_room_for_node(site.name));
    return book_.find_node(r.id.home) ? Status{} : has_room_for_node(site.name);
}

Result<JobReport> SiteGuests::heard(const Site& site, const JobReport& report, int64_t kept,
                                    bool comes) const {
    if (of_site(report.id.home).site != site.name)
        return fail(CauseCode::not_allowed, "that is no job of site " + site.name);
    const Job* const known = comes ? nullptr : book_.find(report.id);
    if (!known) TRY(may_come(site, report, kept));
    JobReport r = report;
    r.uid_there = report.uid;
    r.uid = site.account;
    r.user = site.name + "/" + report.user;
    r.terms = told_to_sites(report.terms);
    r.terms.project.clear();
    r.name.clear();
    r.command.clear();
    r.array = std::string();
    r.gang = std::string();
    r.component = r.components = 0;
    r.address = {};
    if (!known) return r;
    r.only_node = NodeName();
    // The room that it takes is as it was when it came.
    const JobReport& before = known->record.report;
    const Money price = r.terms.max_price;
    r.terms = before.terms;
    if (price.micro > 0) r.terms.max_price = price;
    r.user = before.user;
    r.uid_there = before.uid_there;
    return r;
}

}  // namespace souk::market
