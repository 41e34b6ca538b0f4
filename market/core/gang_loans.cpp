// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/gang_loans.hpp"

#include <algorithm>
#include <utility>

#include "market/core/combined_offers.hpp"

namespace souk::market {
namespace {

bool has_place_or_none_due(const Job& job, const Allocation& allocation) {
    const JobPhase p = job.phase();
    const bool is_still = p == JobPhase::waiting || p == JobPhase::frozen;
    return !is_still || job.record.order || allocation.target_of(job);
}

// Its user lets it go, and nothing of it is bound to a place or an address here.
bool lets_go(const Job& job) {
    const JobReport& r = job.record.report;
    return !r.terms.sites->names.empty() && r.terms.booking == Booking{} && !r.address &&
           r.only_node->empty() && layout_of(r) == GangLayout{} &&
           of_site(job.id().home).site.empty();
}

bool is_still(const Job& job) {
    const JobReport& r = job.record.report;
    return (r.phase == JobPhase::waiting || (r.phase == JobPhase::frozen && !r.in_place)) &&
           of_site(r.where).site.empty();
}

}  // namespace

std::vector<const Job*> GangLoans::required_of(const Job& job) const {
    std::vector<const Job*> all;
    for (const Job* const one : gangs_.of(job))
        if (!is_optional(*one)) all.push_back(one);
    return all;
}

std::vector<SitePart> GangLoans::parts_of(const Job& job) const {
    std::vector<SitePart> parts;
    for (const Job* const one : required_of(job)) {
        const JobTerms& t = one->record.report.terms;
        parts.push_back({t.cpus, t.memory_mb});
    }
    return parts;
}

const Job* GangLoans::leader_of(const Job& job) const {
    const std::vector<const Job*> all = required_of(job);
    return all.empty() ? nullptr : all.front();
}

bool GangLoans::seeks(const Job& leader) const {
    if (!is_component(leader) || !lets_go(leader) || !is_still(leader)) return false;
    const std::vector<const Job*> all = required_of(leader);
    if (all.empty() || all.front() != &leader || all.size() > site_parts_max) return false;
    const JobReport& first = leader.record.report;
    return std::ranges::all_of(all, [&](const Job* one) {
        const JobReport& r = one->record.report;
        return lets_go(*one) && is_still(*one) && r.phase == first.phase &&
               one->record.loan->site.empty() && *r.terms.needs == *first.terms.needs &&
               *r.terms.resources == *first.terms.resources;
    });
}

bool GangLoans::is_whole(const Job& leader) const {
    return std::ranges::all_of(required_of(leader), [](const Job* one) { return one->in_solver; });
}

bool GangLoans::has_gone(const Job& job) const {
    return std::ranges::any_of(gangs_.of(job),
                               [](const Job* one) { return !one->record.loan->site.empty(); });
}

Result<std::vector<GangLoans::Part>> GangLoans::choose(const Job& leader,
                                                       const std::vector<Offer>& offers,
                                                       const std::vector<SiteRoom>& own,
                                                       const OfferWish& wish, uint64_t seed) const {
    constexpr Nanos usual_work = Nanos::from_s(3'600);
    const Money most = std::min(wish.most, most_elsewhere(leader.record.report.terms));
    std::vector<CombinedRoom> rooms;
    const auto add = [&](const SiteRoom& room, size_t site) {
        if (room.price >= Money{} && room.cpus > 0 && room.speed >= 1 && room.speed <= speed_max &&
            room.starts_in.ns >= 0 && (site == 0 || room.price <= most))
            rooms.push_back(
                {site, room.cpus, room.memory_mb, room.price, room.speed, room.starts_in});
    };
    for (const SiteRoom& room : own) add(room, 0);
    for (size_t i = 0; i < offers.size(); ++i)
        for (const SiteRoom& room : offers[i].rooms) add(room, i + 1);
    std::vector<CombinedNeed> needs;
    std::vector<const Job*> all = required_of(leader);
    for (const SitePart& part : parts_of(leader)) needs.push_back({part.cpus, part.memory_mb});
    const auto choice = combine_offers(
        needs, rooms, {wish.cheapest, wish.work.ns > 0 ? wish.work : usual_work}, seed);
    if (!choice) return fail(CauseCode::not_possible, "its components find no rooms together");
    std::vector<Part> parts;
    for (size_t i = 0; i < needs.size(); ++i)
        if (const size_t site = rooms[choice->rooms[i]].site; site > 0)
            parts.push_back({all[i]->id(), offers[site - 1].site});
    return parts;
}

Status GangLoans::may_lend(Job& job, const std::string& site, Nanos now) const {
    if (!job.failed->stuck.active && lent_.may_begin(job, site, now)) return {};
    return fail("component " + job.id().text() + " does not go to site " + site + " now");
}

Status GangLoans::lend(Job& leader, const std::vector<Part>& parts, Nanos now) {
    if (!seeks(leader) || !is_whole(leader) || parts.empty())
        return fail("job " + leader.id().text() + " goes to no other site now");
    for (const Part& part : parts) {
        Job* const job = book_.find(part.id);
        if (!job || !is_component(*job) || is_optional(*job) ||
            gang_name(*job) != gang_name(leader))
            return fail("job " + part.id.text() + " is no component of it");
        TRY(may_lend(*job, part.site, now));
    }
    Try gang;
    gang.one = leader.id();
    gang.until = now + all_run_most;
    const bool waits = leader.phase() == JobPhase::waiting;
    std::string sites;
    for (const Part& part : parts) {
        Job& job = *book_.find(part.id);
        const Reason because = Reason(ReasonCode::site_gain)
                                   .with(Figure::cause, part.site + " has room for a component");
        Status goes =
            waits ? lent_.lend(job, part.site, now) : lent_.go(job, part.site, because, now);
        if (!goes) {
            give_up(gangs_.of(leader), souk::Cause(goes.error()));
            return goes;
        }
        gang.away.insert(part.id);
        sites += (sites.empty() ? "" : ", ") + part.id.text() + " to " + part.site;
    }
    leader.site_word = Reason(ReasonCode::site_gain).with(Figure::cause, sites.substr(0, 200));
    tries_[gang_name(leader)] = std::move(gang);
    return {};
}

void GangLoans::note(const Job& job) {
    if (!is_component(job) || !is_away(job)) return;
    const auto [it, is_new] = tries_.try_emplace(gang_name(job));
    if (is_new) it->second.one = job.id();
    it->second.away.insert(job.id());
}

souk::Cause GangLoans::why_give_up(Try& gang, const std::vector<Job*>& all, Nanos now) const {
    if (!gang.released)
        for (const JobId& id : gang.away)
            if (const Job* const job = book_.find(id);
                job && job->phase() != JobPhase::finished && !is_away(*job))
                return souk::Cause("component " + id.text() + " got no place at its site");
    bool all_run = true, all_have_places = true;
    for (const Job* const one : all) {
        if (!is_away(*one)) {
            all_have_places =
                all_have_places && (is_optional(*one) || has_place_or_none_due(*one, allocation_));
            continue;
        }
        const JobPhase p = one->phase();
        const std::string who = "component " + one->id().text();
        if (one->record.loan->recalled) return souk::Cause(who + " is called back");
        if (is_lent(*one) && p == JobPhase::frozen && !one->record.order)
            return souk::Cause(who + " is frozen at site " + one->record.loan->site);
        all_run = all_run && (p == JobPhase::running || p == JobPhase::moving) && is_lent(*one);
    }
    if (all_run) {
        gang.released = true;
        gang.until = gang.no_place_since = Nanos::never();
    }
    if (gang.released) return {};
    if (gang.until == Nanos::never()) gang.until = now + all_run_most;
    if (all_have_places)
        gang.no_place_since = Nanos::never();
    else if (gang.no_place_since == Nanos::never())
        gang.no_place_since = now;
    else if (gang.no_place_since + no_place_most <= now)
        return souk::Cause("its other components have no place at its own site");
    if (gang.until <= now) return souk::Cause("not all of its components run in time");
    return {};
}

void GangLoans::give_up(const std::vector<Job*>& all, const souk::Cause& why) {
    bool is_news = false;
    for (Job* const one : all) {
        if (!is_away(*one)) continue;
        is_news = is_news || !one->record.loan->recalled;
        lent_.give_back(*one, why);
    }
    if (!is_news) return;
    for (Job* const one : all)
        one->site_word = Reason(ReasonCode::site_refused).with(Figure::cause, why);
}

bool GangLoans::look_at(Try& gang, Nanos now) {
    const Job* const known = book_.find(gang.one);
    if (!known) return false;
    const std::vector<Job*> all = gangs_.of(*known);
    if (std::ranges::none_of(all, [](const Job* one) { return is_away(*one); })) return false;
    const souk::Cause why = why_give_up(gang, all, now);
    if (why.empty()) return true;
    give_up(all, why);
    gang.until = gang.no_place_since =
        Nanos::never();  // what is called back has no more to wait for
    return true;
}

void GangLoans::look(Nanos now) {
    now_ = now;
    for (auto it = tries_.begin(); it != tries_.end();)
        it = look_at(it->second, now) ? std::next(it) : tries_.erase(it);
}

Nanos GangLoans::next() const {
    Nanos at = Nanos::never();
    for (const auto& [name, gang] : tries_) {
        at = std::min(at, gang.until);
        if (gang.no_place_since != Nanos::never())
            at = std::min(at, gang.no_place_since + no_place_most);
    }
    return at;
}

}  // namespace souk::market
