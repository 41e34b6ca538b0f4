// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/occupancy.hpp"

#include <algorithm>

namespace souk::market {

namespace {
const NamedAmounts no_named;

bool guest_before(const Occupancy::Guest& g, const Rank& r) { return g.rank < r; }
}  // namespace

bool Occupancy::orphan(uint32_t j) const {
    const Job& job = jobs_[j];
    return job.key().n != 0 && job.slot == none && job.at == none && job.pin != Pin::frozen &&
           (job.state == JobState::running || job.pin == Pin::stay);
}

int32_t Occupancy::speed_top() const {
    const ClassKey c = machine_order_.fastest();
    return c == class_none ? 0 : speed_max - static_cast<int32_t>(c >> 50);
}

uint32_t Occupancy::leader(const Gang& g) const {
    for (const uint32_t j : g.required)
        if (jobs_[j].competing) return j;
    return none;
}

bool Occupancy::runs(const Gang& g) const {
    return std::all_of(g.required.begin(), g.required.end(),
                       [&](uint32_t j) { return jobs_[j].slot != none; });
}

int32_t Occupancy::speed_of(const Gang& g) const {
    int32_t speed = speed_max;
    for (const uint32_t j : g.required)
        if (jobs_[j].slot != none) speed = std::min(speed, machines_[jobs_[j].slot].spec.speed);
    return speed;
}

int32_t Occupancy::speed_at_slot(uint32_t j) const {
    return required(j) ? speed_of(gang_of(j)) : machines_[jobs_[j].slot].spec.speed;
}

Rank Occupancy::guest_rank(uint32_t j) const {
    const Job& job = jobs_[j];
    if (job.held || job.pin == Pin::stay) return Rank::top();
    return required(j) ? gang_of(j).rank : job.rank;
}

Rank Occupancy::last_required(const Gang& g) const {
    return g.required.empty() ? g.rank : jobs_[g.required.back()].rank;
}

bool Occupancy::barred(ProviderKey provider, uint32_t j) const {
    const JobDetails& d = details_[j];
    if (d.only.n != 0 && d.only != provider) return true;
    if (d.barred && std::binary_search(d.barred->begin(), d.barred->end(), provider)) return true;
    if (!d.named) return false;
    const uint32_t m = find_machine(provider);
    return m != none &&
           !(has_named(machines_[m], j) && reserve_at(machines_[m], j) <= jobs_[j].value);
}

const NamedAmounts& Occupancy::takes_named(uint32_t j) const {
    const JobDetails& d = details_[j];
    return d.named && !d.named->kept ? d.named->here : no_named;
}

const NamedAmounts& Occupancy::takes_licences(uint32_t j) const {
    const JobDetails& d = details_[j];
    return d.named && !d.named->kept ? d.named->licences : no_named;
}

Money Occupancy::reserve_at(const Machine& m, uint32_t j) const {
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

bool Occupancy::has_named(const Machine& m, uint32_t j) const {
    const auto has = [](const NamedOffers& all, const NamedAmounts& needs) {
        return std::all_of(needs.begin(), needs.end(), [&](const NamedAmount& one) {
            const NamedOffer* const offer = find_named(all, one.name);
            return offer && offer->count >= one.count;
        });
    };
    return has(m.spec.named, takes_named(j)) && has(licences_.all(), takes_licences(j));
}

NamedRoom Occupancy::named_room(const Machine& m, uint32_t j) const {
    NamedRoom room(m.spec.named, takes_named(j));
    for (const Guest& g : m.guests)
        if (jobs_[g.job].named) room.take(takes_named(g.job));
    return room;
}

std::pair<Rank, bool> Occupancy::displaced(const Machine& m, int32_t cpus, int64_t memory_mb,
                                           const Rank& rank) const {
    int32_t c = m.free_cpus;
    int64_t mb = m.free_mb;
    Rank strongest = Rank::top();
    for (size_t i = m.guests.size(); c < cpus || mb < memory_mb; --i) {
        if (i == 0 || m.guests[i - 1].rank <= rank) return {strongest, false};
        c += m.guests[i - 1].cpus;
        mb += m.guests[i - 1].memory_mb;
        strongest = m.guests[i - 1].rank;
    }
    return {strongest, true};
}

std::pair<Rank, bool> Occupancy::displaced_named(const Machine& m, uint32_t j,
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

Occupancy::Room Occupancy::room_at(const Machine& m, const Rank& rank) {
    Room room{m.free_cpus, m.free_mb};
    for (size_t i = m.guests.size(); i > 0 && m.guests[i - 1].rank > rank; --i) {
        room.first += m.guests[i - 1].cpus;
        room.second += m.guests[i - 1].memory_mb;
    }
    return room;
}

uint32_t Occupancy::holder_in_the_way(const Machine& m, uint32_t j) const {
    const NamedRoom room = named_room(m, j);
    const Rank rank = guest_rank(j);
    for (size_t i = m.guests.size(); i > 0 && m.guests[i - 1].rank > rank; --i)
        if (room.lacks_some_of(takes_named(m.guests[i - 1].job))) return m.guests[i - 1].job;
    return none;
}

bool Occupancy::holds_too_much(const Machine& m, uint32_t j) const {
    if (!jobs_[j].named || takes_named(j).empty()) return false;
    NamedRoom room = named_room(m, j);
    room.give(takes_named(j));
    return !room.holds();
}

uint32_t Occupancy::named_beyond(const Machine& m) const {
    for (size_t i = m.guests.size(); i > 0 && !m.guests[i - 1].rank.is_top(); --i)
        if (holds_too_much(m, m.guests[i - 1].job)) return m.guests[i - 1].job;
    return none;
}

void Occupancy::refresh(uint32_t m, MachineOrder::Place place) {
    const Machine& mc = machines_[m];
    if (!mc.spec.accepting) return;
    if (!place) place = machine_order_.find({mc.cls, mc.key.n});
    const Rank weakest = mc.guests.empty() ? Rank::top() : mc.guests.back().rank;
    machine_order_.update(place, mc.free_cpus, mc.free_mb, weakest);
}

void Occupancy::put(uint32_t j, uint32_t m, MachineOrder::Place place) {
    Job& job = jobs_[j];
    Machine& mc = machines_[m];
    const Rank rank = guest_rank(j);
    version_ += rank.is_top();
    if (mc.guests.empty()) mc.guests.reserve(static_cast<size_t>(std::min(mc.spec.cpus, 8)));
    auto g = std::upper_bound(mc.guests.begin(), mc.guests.end(), rank,
                              [](const Rank& r, const Guest& x) { return r < x.rank; });
    mc.guests.insert(g, {rank, job.memory_mb, j, job.cpus});
    mc.free_cpus -= job.cpus;
    mc.free_mb -= job.memory_mb;
    job.slot = m;
    if (job.named) hold_licences(j, true);
    refresh(m, place);
}

uint32_t Occupancy::take_off(uint32_t j) {
    Job& job = jobs_[j];
    Machine& mc = machines_[job.slot];
    const Rank rank = guest_rank(j);
    version_ += rank.is_top();
    auto g = std::lower_bound(mc.guests.begin(), mc.guests.end(), rank, guest_before);
    while (g->job != j) ++g;
    mc.free_cpus += g->cpus;
    mc.free_mb += g->memory_mb;
    mc.guests.erase(g);
    if (job.named) hold_licences(j, false);
    refresh(job.slot);
    return std::exchange(job.slot, none);
}

void Occupancy::hold_licences(uint32_t j, bool holds) {
    const NamedAmounts& amounts = takes_licences(j);
    if (amounts.empty()) return;
    if (holds)
        licences_.hold({guest_rank(j), j}, amounts);
    else
        licences_.leave({guest_rank(j), j}, amounts);
}

void Occupancy::want_licences(uint32_t j, bool wants) {
    if (wants)
        licences_.want({jobs_[j].rank, j}, takes_licences(j));
    else
        licences_.unwant({jobs_[j].rank, j}, takes_licences(j));
}

void Occupancy::set_licences(const NamedOffers& all) {
    licences_.set(all);
    ++version_;
}

uint32_t Occupancy::new_job() {
    if (free_jobs_.empty()) {
        jobs_.add();
        details_.add();
        return static_cast<uint32_t>(jobs_.size() - 1);
    }
    const uint32_t j = free_jobs_.back();
    free_jobs_.pop_back();
    // the list of touched jobs may still name this index
    const bool touched = jobs_[j].touched;
    jobs_[j] = Job{};
    jobs_[j].touched = touched;
    details_[j] = JobDetails{};
    return j;
}

void Occupancy::describe(uint32_t j, JobKey key, const JobDemand& spec) {
    Job& job = jobs_[j];
    JobDetails& d = details_[j];
    if (job.key() != key) job_index_.insert(key.n, j);
    job.rank = {0, spec.arrival.ns, key.n};
    job.value = spec.value;
    job.memory_mb = spec.memory_mb;
    job.cpus = spec.cpus;
    job.state = spec.state;
    job.pin = spec.pin;
    d.only = job.component ? spec.only : ProviderKey{};
    named_jobs_ -= job.named;
    job.named = spec.asks_named();
    named_jobs_ += job.named;
    job.bars = !spec.barred.empty() || d.only.n != 0 || job.named;
    job.files = spec.files.any() && !job.component;
    d.place = spec.place;
    d.move_bytes = spec.move_bytes;
    d.dirty_bytes_per_s = spec.dirty_bytes_per_s;
    d.barred = spec.barred.empty() ? Rare<std::vector<ProviderKey>>() : spec.barred;
    if (d.barred) std::sort(d.barred->begin(), d.barred->end());
    d.files = job.files ? Rare<Files>({spec.files, class_none}) : Rare<Files>();
    d.named = job.named ? Rare<Named>({spec.named, spec.licences, spec.named_kept}) : Rare<Named>();
    d.ahead = spec.ahead;
    d.user = spec.user;
}

void Occupancy::forget_job(uint32_t j) {
    Job& job = jobs_[j];
    job_index_.erase(job.rank.key);
    named_jobs_ -= job.named;
    job.named = false;
    job.rank.key = 0;
    job.at = none;
    free_jobs_.push_back(j);
}

// Enters the machine in the order, with the room and the class that it has now.
void Occupancy::offer(uint32_t m) {
    Machine& mc = machines_[m];
    mc.cls = mc.spec.accepting ? class_of(mc.spec.speed, mc.spec.reserve) : class_none;
    if (mc.spec.accepting)
        machine_order_.insert({mc.cls, mc.key.n, Rank::top(), mc.free_mb, mc.free_cpus, m});
}

uint32_t Occupancy::add_machine(ProviderKey key, const ProviderSpec& spec) {
    uint32_t m = static_cast<uint32_t>(machines_.size());
    if (free_machines_.empty()) {
        machines_.add();
    } else {
        m = free_machines_.back();
        free_machines_.pop_back();
        machines_[m] = Machine{};
    }
    machine_index_.insert(key.n, m);
    ++version_;
    Machine& mc = machines_[m];
    mc.key = key;
    mc.spec = spec;
    mc.free_cpus = spec.cpus;
    mc.free_mb = spec.memory_mb;
    offer(m);
    return m;
}

void Occupancy::change_machine(uint32_t m, const ProviderSpec& spec) {
    Machine& mc = machines_[m];
    ++version_;
    if (mc.spec.accepting) machine_order_.erase({mc.cls, mc.key.n});
    mc.free_cpus += spec.cpus - mc.spec.cpus;
    mc.free_mb += spec.memory_mb - mc.spec.memory_mb;
    mc.spec = spec;
    offer(m);
    refresh(m);
}

void Occupancy::forget_machine(uint32_t m) {
    Machine& mc = machines_[m];
    if (mc.spec.accepting) machine_order_.erase({mc.cls, mc.key.n});
    machine_index_.erase(mc.key.n);
    ++version_;
    mc.key = {};
    free_machines_.push_back(m);
}

void Occupancy::rerank() {
    for (uint32_t m = 0; m < machines_.size(); ++m) {
        Machine& mc = machines_[m];
        if (mc.key.n == 0) continue;
        for (Guest& g : mc.guests)
            if (!g.rank.is_top()) g.rank = guest_rank(g.job);
        std::sort(mc.guests.begin(), mc.guests.end(),
                  [](const Guest& a, const Guest& b) { return a.rank < b.rank; });
        refresh(m);
    }
    licences_.forget_ranks();
    for (uint32_t j = 0; named_jobs_ > 0 && j < jobs_.size(); ++j)
        if (jobs_[j].named && jobs_[j].slot != none) hold_licences(j, true);
}

}  // namespace souk::market
