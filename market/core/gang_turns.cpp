// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/gang_turns.hpp"

#include <algorithm>
#include <set>

#include "kernel/base/check.hpp"

namespace souk::market {

std::vector<NetworkPacking::Need> GangTurns::Turn::needs(const Occupancy& all) const {
    std::vector<NetworkPacking::Need> needs;
    needs.reserve(free.size());
    for (const uint32_t j : free)
        needs.push_back({all.jobs()[j].cpus, all.jobs()[j].memory_mb, all.details(j).only.n});
    return needs;
}

bool GangTurns::Turn::bars(ProviderKey provider) const {
    return std::binary_search(barred.begin(), barred.end(), provider);
}

GangTurns::Turn GangTurns::turn_of(const Gang& g) const {
    Turn turn;
    for (const uint32_t j : g.required) {
        const Occupancy::Job& job = jobs_[j];
        if (all_.details(j).barred)
            turn.barred.insert(turn.barred.end(), all_.details(j).barred->begin(),
                               all_.details(j).barred->end());
        if (job.competing) {
            turn.free.push_back(j);
        } else if (job.slot == none) {
            turn.able = false;
        } else {
            turn.cap = std::min(turn.cap, machines_[job.slot].spec.speed);
        }
    }
    count_siblings(g, turn);
    turn.all_stay = stay_jointly(g, turn);
    turn.slowest = turn.cap;
    for (const uint32_t m : turn.stays)
        if (m != none) turn.slowest = std::min(turn.slowest, machines_[m].spec.speed);
    std::sort(turn.barred.begin(), turn.barred.end());
    turn.barred.erase(std::unique(turn.barred.begin(), turn.barred.end()), turn.barred.end());
    return turn;
}

// Counts the components that have a place and are not `free`.
void GangTurns::count_siblings(const Gang& g, Turn& turn) const {
    turn.siblings.clear();
    turn.network = 0;
    if (g.layout == GangLayout{}) return;
    auto free = turn.free.begin();  // in the order of the required ones
    for (const uint32_t j : g.required) {
        if (free != turn.free.end() && *free == j)
            ++free;
        else if (jobs_[j].slot != none)
            ++turn.siblings[jobs_[j].slot];
    }
    if (!turn.siblings.empty())
        turn.network = all_.network_of(turn.siblings.begin()->first, g.layout);
}

// A component that has a place stays there; one that lost its place may stay where it is if that
// has room beside the others.
bool GangTurns::stay_jointly(const Gang& g, Turn& turn) const {
    std::map<uint32_t, Room> rooms;
    std::map<uint32_t, uint32_t> there = turn.siblings;
    bool all = true;
    for (const uint32_t j : turn.free)
        if (jobs_[j].slot != none) ++there[jobs_[j].slot];
    const uint32_t most = g.layout.most_on_one;
    uint64_t network = turn.network;
    for (const uint32_t j : turn.free) {
        const Occupancy::Job& job = jobs_[j];
        if (const uint32_t m = job.slot != none ? job.slot : job.at; g.layout.near && m != none) {
            if (network == 0) network = all_.network_of(m, g.layout);
            if (all_.network_of(m, g.layout) != network) {  // its machine has another network now
                turn.stays.push_back(none);
                all = false;
                continue;
            }
        }
        if (most > 0 && job.slot != none && there[job.slot] > most) {  // told to run there
            --there[job.slot];
            turn.stays.push_back(none);
            all = false;
            continue;
        }
        turn.stays.push_back(job.slot);
        if (job.slot != none || job.at == none || !all_.eligible(machines_[job.at], j)) {
            all = all && job.slot != none;
            continue;
        }
        // Siblings that have a place there are not of this room: they have the gang's rank.
        Room& room =
            rooms.try_emplace(job.at, all_.room_at(machines_[job.at], g.rank)).first->second;
        if (room.first < job.cpus || room.second < job.memory_mb ||
            (most > 0 && there[job.at] >= most)) {
            all = false;
            continue;
        }
        ++there[job.at];
        room.first -= job.cpus;
        room.second -= job.memory_mb;
        turn.stays.back() = job.at;
    }
    return all;
}

// Whether the machines of classes before `below` hold the components, beside those that rank up to
// `before`, or beside everybody (free_only).
bool GangTurns::pack(Turn& turn, NetworkPacking& packing, Money value, const Rank& before,
                     ClassKey below, bool free_only) {
    packing.begin(turn.network);
    turn.machines.clear();
    const auto least = packing.least();
    ClassKey last = class_none;  // `few`: what lies in it, or before, may be of use
    order_.each_room(below, least.cpus, least.memory_mb, free_only ? rank_last : before,
                     [&](const MachineOrder::Entry& e) {
                         if (reserve_of(e.cls) > value || turn.bars(ProviderKey{e.key}))
                             return true;
                         const Room room = free_only ? Room{e.free_cpus, e.free_mb}
                                                     : all_.room_at(machines_[e.machine], before);
                         if (room.first < least.cpus || room.second < least.memory_mb) return true;
                         if (e.cls > last) return false;
                         const auto there = turn.siblings.find(e.machine);
                         turn.machines.push_back(e.machine);
                         if (packing.add(room.first, room.second, e.key,
                                         there == turn.siblings.end() ? 0 : there->second,
                                         all_.network_of(e.machine, packing.layout())))
                             last = e.cls;
                         return !packing.packed() || packing.layout().few;
                     });
    return packing.packed();
}

// From which class on it would leave the places where it may stay.
ClassKey GangTurns::bound_of(const Turn& turn) const {
    __int128 lost = 0, gained = 0;
    if (seats_.rules().horizon.ns > 0) {
        for (size_t i = 0; i < turn.free.size(); ++i) {
            const Occupancy::Job& job = jobs_[turn.free[i]];
            lost += seats_.lost_by_move(turn.free[i], machines_[turn.stays[i]]);
            gained += static_cast<__int128>(job.value.micro) * job.cpus *
                      std::max<int64_t>(1, seats_.rules().horizon.ns / 1'000'000);
        }
        if (lost > 0 && gained == 0) return 0;
    }
    const __int128 step = lost == 0 ? 1 : std::max<__int128>(1, (lost + gained - 1) / gained);
    return step > speed_max ? 0 : bound_of_speed(turn.slowest + static_cast<int64_t>(step));
}

void GangTurns::process(const Gang& g) {
    const Rank before = all_.rank_before(g);
    order_.close_until(before);
    Turn turn = turn_of(g);
    if (turn.free.empty()) return;
    NetworkPacking packing(turn.needs(all_), g.layout);
    seats_.note_alike(g, packing.alike());
    const Money value = jobs_[turn.free.front()].value;
    const bool stays = turn.able && turn.all_stay;
    const ClassKey below = stays ? bound_of(turn) : class_none;
    int32_t speed = 0;  // none that is worth it
    if (turn.able && pack(turn, packing, value, before, below, false)) {
        speed = std::min(turn.cap, machines_[turn.machines.back()].spec.speed);
        if (stays && class_of(speed, Money{}) >= below) speed = 0;
    }
    const bool placed = stays || speed > 0;
    seats_.note_waiting(g, !placed);
    if (!placed)
        release(g, turn);
    else if (speed > 0)
        settle(g, turn, packing, speed);
    else
        for (size_t i = 0; i < turn.free.size(); ++i)
            if (jobs_[turn.free[i]].slot == none) seats_.seat(turn.free[i], turn.stays[i]);
    ClassKey bound = class_none;
    if (placed) {
        turn.stays.clear();
        for (const uint32_t j : turn.free) turn.stays.push_back(jobs_[j].slot);
        turn.slowest = all_.speed_of(g);
        bound = bound_of(turn);
    }
    for (const uint32_t j : turn.free) seats_.set_bound(j, bound);
    for (const uint32_t j : g.optional) {
        if (!jobs_[j].competing) continue;
        if (jobs_[j].slot == none) seats_.set_bound(j, placed ? class_none : 0);
        seats_.touch(j);  // a pass may end before its turn
        seats_.agenda().queue(jobs_[j].rank, j);
    }
    seats_.note_turn(g, true);
}

// Gives every component a place on a machine of at least this speed, which the packing has found to
// be possible.
void GangTurns::settle(const Gang& g, Turn& turn, NetworkPacking& packing, int32_t speed) {
    const ClassKey below = bound_of_speed(speed);
    const Money value = jobs_[turn.free.front()].value;
    std::vector<uint32_t> all_at;
    if (!packing.alike())
        for (const uint32_t place : packing.places()) all_at.push_back(turn.machines[place]);
    Turn movers;
    movers.barred = turn.barred;
    for (size_t i = 0; i < turn.free.size(); ++i) {
        const uint32_t j = turn.free[i], m = turn.stays[i];
        if (m != none && machines_[m].spec.speed >= speed) continue;
        movers.free.push_back(j);
        if (jobs_[j].slot != none) seats_.unseat(j);
        const bool voluntary = m != none && jobs_[j].at != none;
        seats_.set_voluntary(j, voluntary);
        if (voluntary) seats_.explain(j, Cause::faster);
    }
    for (size_t i = 0; i < turn.free.size(); ++i) {
        const uint32_t j = turn.free[i], m = turn.stays[i];
        if (m != none && machines_[m].spec.speed >= speed && jobs_[j].slot == none)
            seats_.seat(j, m);
    }
    if (packing.alike()) {
        for (const uint32_t j : movers.free) seat_alike(j, turn, g, below);
        return;
    }
    if (const std::vector<uint32_t> at = places_beside(g, movers, value, below); !at.empty()) {
        for (size_t i = 0; i < at.size(); ++i) seats_.seat(movers.free[i], at[i]);
        return;
    }
    for (const uint32_t j : turn.free)
        if (jobs_[j].slot != none) seats_.unseat(j);
    for (size_t i = 0; i < all_at.size(); ++i) seats_.seat(turn.free[i], all_at[i]);
}

// Machines for those that move, beside the siblings that stay: of free room, else of any. Empty:
// there are none as the others stand.
std::vector<uint32_t> GangTurns::places_beside(const Gang& g, Turn& movers, Money value,
                                               ClassKey below) {
    count_siblings(g, movers);
    NetworkPacking packing(movers.needs(all_), g.layout);
    std::vector<uint32_t> best;
    size_t fewest = SIZE_MAX;
    for (const bool free_only : {true, false}) {
        if (!pack(movers, packing, value, g.rank, below, free_only)) continue;
        std::vector<uint32_t> at;
        std::set<uint32_t> fresh;
        for (const uint32_t place : packing.places()) {
            at.push_back(movers.machines[place]);
            if (!movers.siblings.contains(at.back())) fresh.insert(at.back());
        }
        if (fresh.size() < fewest) best = std::move(at);
        fewest = std::min(fewest, fresh.size());
        if (!g.layout.few) break;
    }
    return best;
}

// Seats the component where its checkpoint is, else on the first machine with free room, else where
// the strongest guest that must go is the weakest.
void GangTurns::seat_alike(uint32_t j, const Turn& turn, const Gang& g, ClassKey below) {
    const Occupancy::Job& job = jobs_[j];
    const auto may = [&](const MachineOrder::Entry& e) {
        return e.cls < below && reserve_of(e.cls) <= job.value && !turn.bars(ProviderKey{e.key});
    };
    const auto free_here = [&](const MachineOrder::Entry& e) {
        return e.free_cpus >= job.cpus && e.free_mb >= job.memory_mb && may(e);
    };
    if (job.state == JobState::frozen) {
        const uint32_t m = all_.find_machine(all_.details(j).place);
        if (m != none && machines_[m].cls < below) {
            const auto place = order_.find({machines_[m].cls, machines_[m].key.n});
            if (free_here(order_[place])) return seats_.seat(j, m, place);
        }
    }
    if (const auto place = order_.first(0, below, job.cpus, job.memory_mb, rank_last, 0, free_here))
        return seats_.seat(j, order_[place].machine, place);
    Rank bar = g.rank;
    uint32_t best = none;
    order_.each_weaker(0, below, bar, [&](const MachineOrder::Entry& e) {
        if (!may(e)) return;
        const auto [strongest, fits] =
            all_.displaced(machines_[e.machine], job.cpus, job.memory_mb, bar);
        if (!fits) return;
        bar = strongest;
        best = e.machine;
    });
    MUST(best != none);
    seats_.seat(j, best);
}

// All of them leave. Those that nobody displaced do so for what happened to the one that was.
void GangTurns::release(const Gang& g, const Turn& turn) {
    uint32_t first = none;
    for (size_t i = 0; first == none && i < turn.free.size(); ++i)
        if (jobs_[turn.free[i]].slot == none && turn.stays[i] == none) first = turn.free[i];
    const Cause cause = !turn.able      ? Cause::pinned
                        : first != none ? jobs_[first].cause
                                        : Cause::no_room;
    for (const auto* part : {&g.required, &g.optional})
        for (const uint32_t j : *part) {
            if (jobs_[j].slot == none || !jobs_[j].competing) continue;
            seats_.unseat(j);
            if (first == none)
                seats_.explain(j, cause, {}, {});
            else
                seats_.explain(j, cause, all_.details(first).by, all_.details(first).by_value);
        }
}

bool GangTurns::unlike_want(const Machine& m, const Rank& after, const Rank& before) const {
    return std::any_of(m.guests.begin(), m.guests.end(), [&](const Occupancy::Guest& guest) {
        if (guest.rank <= after || guest.rank >= before || !all_.required(guest.job)) return false;
        const Gang& g = all_.gang_of(guest.job);
        return !g.alike && all_.speed_of(g) < m.spec.speed;
    });
}

bool GangTurns::without_gang(uint32_t j) {
    const Occupancy::Job& job = jobs_[j];
    const Gang& g = all_.gang_of(j);
    if (all_.runs(g)) {
        if (job.slot == none) seats_.set_bound(j, class_none);
        return false;
    }
    if (job.slot != none) {
        seats_.unseat(j);
        const uint32_t first = g.required.front();
        seats_.explain(j, jobs_[first].cause, all_.details(first).by, all_.details(first).by_value);
    }
    seats_.set_bound(j, 0);
    return true;
}

bool GangTurns::would_run(const Gang& g, Money value) {
    Turn turn = turn_of(g);
    if (!turn.able || turn.free.empty()) return turn.able;
    NetworkPacking packing(turn.needs(all_), g.layout);
    order_.begin_pass();
    const Money counts = weighed(value, seats_.ranks().weight_of(all_, turn.free.front()));
    return pack(turn, packing, value, {-counts.micro, g.rank.second, g.rank.key - 1}, class_none,
                false);
}

}  // namespace souk::market
