// SPDX-License-Identifier: GPL-2.0-or-later
// The Allocator's named resources (named_resources.hpp). Those of a machine are one more kind of
// room there; those of the market are Licences. A job with either is never exchanged with another
// of its class for the bytes of moves.
#include <algorithm>

#include "market/core/allocator.hpp"

namespace souk::market {

namespace {
const NamedAmounts no_named;
}  // namespace

const NamedAmounts& Allocator::takes_named(uint32_t j) const {
    const JobDetails& d = details_[j];
    return d.named && !d.named->kept ? d.named->here : no_named;
}

const NamedAmounts& Allocator::takes_licences(uint32_t j) const {
    const JobDetails& d = details_[j];
    return d.named && !d.named->kept ? d.named->licences : no_named;
}

Money Allocator::reserve_at(const Machine& m, uint32_t j) const {
    if (!jobs_[j].named) return m.spec.reserve;
    const Named& named = *details_[j].named;
    __int128 sum = 0;
    for (const auto& [amounts, offers] :
         {std::pair{&named.here, &m.spec.named}, {&named.licences, &licences_.all()}})
        for (const NamedAmount& one : *amounts)
            if (const NamedOffer* const offer = find_named(*offers, one.name))
                sum += static_cast<__int128>(offer->reserve.micro) * one.count;
    const __int128 cpus = jobs_[j].cpus, whole = m.spec.reserve.micro + (sum + cpus - 1) / cpus;
    return Money{static_cast<int64_t>(std::min<__int128>(whole, money_max.micro + 1))};
}

bool Allocator::has_named(const Machine& m, uint32_t j) const {
    const auto has = [](const NamedOffers& all, const NamedAmounts& needs) {
        return std::all_of(needs.begin(), needs.end(), [&](const NamedAmount& one) {
            const NamedOffer* const offer = find_named(all, one.name);
            return offer && offer->count >= one.count;
        });
    };
    return has(m.spec.named, takes_named(j)) && has(licences_.all(), takes_licences(j));
}

NamedRoom Allocator::named_room(const Machine& m, uint32_t j) const {
    NamedRoom room(m.spec.named, takes_named(j));
    for (const Guest& g : m.guests)
        if (jobs_[g.job].named) room.take(takes_named(g.job));
    return room;
}

std::pair<Rank, bool> Allocator::displaced_named(const Machine& m, uint32_t j,
                                                 const Rank& rank) const {
    const Job& job = jobs_[j];
    int32_t cpus = m.free_cpus;
    int64_t mb = m.free_mb;
    NamedRoom room = named_room(m, j);
    Rank strongest = Rank::top();
    for (size_t i = m.guests.size(); cpus < job.cpus || mb < job.memory_mb || !room.holds(); --i) {
        if (i == 0 || m.guests[i - 1].rank <= rank) return {strongest, false};
        const Guest& g = m.guests[i - 1];
        cpus += g.cpus;
        mb += g.memory_mb;
        if (jobs_[g.job].named) room.give(takes_named(g.job));
        strongest = g.rank;
    }
    return {strongest, true};
}

// The weakest guest of those that rank after the job and hold what it lacks; none: there is none.
uint32_t Allocator::holder_in_the_way(const Machine& m, uint32_t j) const {
    const NamedRoom room = named_room(m, j);
    const Rank rank = guest_rank(j);
    for (size_t i = m.guests.size(); i > 0 && m.guests[i - 1].rank > rank; --i)
        if (room.lacks_some_of(takes_named(m.guests[i - 1].job))) return m.guests[i - 1].job;
    return none;
}

// The guest has something of which the machine has given more than it has.
bool Allocator::holds_too_much(const Machine& m, uint32_t j) const {
    if (!jobs_[j].named || takes_named(j).empty()) return false;
    NamedRoom room = named_room(m, j);
    room.give(takes_named(j));
    return !room.holds();
}

// The weakest such guest that may go; none: there is none.
uint32_t Allocator::named_beyond(const Machine& m) const {
    for (size_t i = m.guests.size(); i > 0 && !m.guests[i - 1].rank.is_top(); --i)
        if (holds_too_much(m, m.guests[i - 1].job)) return m.guests[i - 1].job;
    return none;
}

// Others lose what the job is to have of named resources.
void Allocator::make_named_room(uint32_t j, uint32_t m) {
    const Cause cause = assigned_ ? Cause::share : Cause::displaced;
    for (uint32_t g = holder_in_the_way(machines_[m], j); g != none;
         g = holder_in_the_way(machines_[m], j))
        evict(g, cause, j);
    const NamedAmounts& needs = takes_licences(j);
    const Rank rank = guest_rank(j);
    for (uint32_t g = licences_.in_the_way(needs, rank); g != none;
         g = licences_.in_the_way(needs, rank))
        evict(g, cause, j);
}

void Allocator::hold_licences(uint32_t j, bool holds) {
    const NamedAmounts& amounts = takes_licences(j);
    if (amounts.empty()) return;
    const Rank rank = guest_rank(j);
    if (holds) return licences_.hold({rank, j}, amounts);
    licences_.leave({rank, j}, amounts);
    if (in_pass_) return;
    for (const auto& [after, waiting] : licences_.wanting(amounts, rank))
        if (jobs_[waiting].slot == none) queue_.push({after, waiting});
}

void Allocator::want_licences(uint32_t j, bool wants) {
    if (wants)
        licences_.want({jobs_[j].rank, j}, takes_licences(j));
    else
        licences_.unwant({jobs_[j].rank, j}, takes_licences(j));
}

void Allocator::set_licences(const NamedOffers& all) {
    if (licences_.all() == all) return;
    licences_.set(all);
    ++version_;
    ++room_version_;
    // Reserves count for those, too, that keep what they have.
    for (uint32_t j = 0; named_jobs_ > 0 && j < jobs_.size(); ++j) {
        if (!jobs_[j].named || details_[j].named->licences.empty()) continue;
        const bool stays = jobs_[j].pin == Pin::stay || jobs_[j].slot == none ||
                           eligible(machines_[jobs_[j].slot], j);
        if (!stays && jobs_[j].held) unhold(j);
        if (!stays && jobs_[j].slot != none) evict(j, Cause::below_reserve, none);
        dirty_.push_back(j);
    }
    // min_stay does not hold where there are fewer
    for (const uint32_t j : licences_.holders_beyond())
        if (jobs_[j].held) unhold(j);
    for (uint32_t j = licences_.beyond(); j != none; j = licences_.beyond()) {
        evict(j, Cause::no_room, none);
        dirty_.push_back(j);
    }
}

}  // namespace souk::market
