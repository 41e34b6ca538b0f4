// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/room_claims.hpp"

#include <array>

#include "market/core/claims.hpp"
#include "market/core/orders.hpp"

namespace souk::market {

void RoomClaims::claim(Job& job) {
    const JobReport& r = job.record.report;
    const bool finished = r.phase == JobPhase::finished;
    const bool backed = !job.record.unbacked;
    std::array<NodeName, 2> places;
    const bool in_place =
        (r.phase == JobPhase::frozen || r.phase == JobPhase::freezing) && r.in_place;
    if (backed && claims::relation_of(r).room_where) places[0] = r.where;
    // An order needs no backing, because the market gave it.
    const bool goes = !finished && Orders::in_transit(job) && (backed || Orders::is_sent(job));
    const NodeName to = goes ? Orders::heading_for(job) : NodeName{};
    if (to != places[0]) places[1] = to;
    // A job that is stopped in memory takes no CPU until it is told to go on.
    // The job inside whose place it runs has that room.
    const bool inside =
        job.booked == Booked::inside && (r.where.empty() || r.where == job.booked_on);
    const int32_t cpus = inside || (in_place && to.empty()) ? 0 : r.terms.cpus;
    const int64_t mb = inside ? 0 : r.terms.memory_mb;
    const NodeName lies_on = finished || !backed ? NodeName{} : r.where;
    root(job);
    if (places == job.claims && lies_on == job.lies_on && job.claim_cpus == cpus &&
        job.claim_mb == mb)
        return places_.resources().claim(job);
    User& user = *job.user;
    days_.changed(user.record.uid);
    admission_.changed(user.record.uid);
    if (user.claiming.erase(job.id()) > 0) user.cpus -= job.claim_cpus;
    for (const NodeName& name : job.claims) {
        if (name.empty()) continue;
        book_.node(name).used_cpus -= job.claim_cpus;
        book_.node(name).used_mb -= job.claim_mb;
        list_at(job, name, false);
    }
    list_at(job, job.lies_on, false);
    job.claims = places;
    places_.resources().claim(job);
    job.lies_on = lies_on;
    job.claim_cpus = cpus;
    job.claim_mb = mb;
    if (cpus > 0 && places != std::array<NodeName, 2>{}) {
        user.claiming.insert(job.id());
        user.cpus += job.claim_cpus;
    }
    for (const NodeName& name : job.claims) {
        if (name.empty()) continue;
        book_.node(name).used_cpus += job.claim_cpus;
        book_.node(name).used_mb += job.claim_mb;
        list_at(job, name, true);
    }
    list_at(job, job.lies_on, true);
}

void RoomClaims::root(Job& job) {
    const JobReport& r = job.record.report;
    const auto note = [&](bool holds, Sparse<NodeName>& on, int64_t& mb, int64_t Node::*sum) {
        const NodeName now_on = holds ? r.where : NodeName{};
        const int64_t now_mb = holds ? r.terms.memory_mb : 0;
        if (on == now_on && mb == now_mb) return false;
        for (const bool add : {false, true}) {
            if (!on.empty()) {
                Node& node = book_.node(on);
                node.*sum += add ? mb : -mb;
                work_.touch(node);
            }
            if (add) break;
            on = now_on;
            mb = now_mb;
        }
        return true;
    };
    const bool fast = Places::stands_fast(job);
    note(Places::stands(job) && !fast, job.standing_on, job.standing_mb, &Node::standing_mb);
    if (!note(Places::is_rooted(job) || fast, job.rooted_on, job.rooted_mb, &Node::rooted_mb))
        return;
    places_.note_rooted(job);
    if (r.terms.resources.empty()) return;
    // An order by hand, or on the way to a place, may ask for what this job keeps now.
    for (auto& [id, other] : book_.jobs())
        if (!other.record.report.terms.resources.empty() && other.phase() != JobPhase::finished &&
            (other.once || !other.via.empty() || other.record.hold == Hold::at_node))
            work_.touch(other);
}

void RoomClaims::list_at(Job& job, const NodeName& name, bool add) {
    if (name.empty()) return;
    Node& node = book_.node(name);
    if (add)
        node.jobs.emplace(job.id(), &job);
    else
        node.jobs.erase(job.id());
    work_.touch(node);
}

}  // namespace souk::market
