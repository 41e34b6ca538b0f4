// SPDX-License-Identifier: GPL-2.0-or-later
// Allocator: gangs, that is jobs of several components. The required components all have a place or
// none has one; nothing is held for a gang while it waits.
//
// A gang has its turn at its rank, as a single job has. Its speed is that of its slowest required
// component, and it gets the greatest speed s at which all of them can be packed into the machines
// of at least that speed, beside who ranks before it (gang_packing.hpp: the more room, the greater
// s, so a higher bid never makes it slower, and the critical price is defined as for a single job).
// It moves only for a greater speed: then, and when somebody displaced a component, the components
// that have a machine of at least that speed stay. A component that moves takes free room first,
// then the machine whose strongest displaced guest is the weakest; unlike ones are packed into free
// room, then into any. If the gang fits nowhere, all leave at that instant, and who ranks after it
// has their room.
//
// How a gang wants to lie (GangLayout, JobDemand::only) is a matter of what packs: no bound and no
// name makes more room worse, so all of the above holds. `few` chooses among the machines up to the
// class of the last one that it needs: neither its speed nor its price depends on it.
//
// An optional component is a job of its own, ranked right behind the required ones, which has a
// place only while they have theirs.
//
// A horizon holds for a gang as a whole: a greater speed must pay for moving all its components.
// min_stay, moves_max and the traffic of files are not looked at for components. A provider that is
// barred to one required component is barred to all.
#include <algorithm>
#include <map>
#include <set>

#include "kernel/base/check.hpp"
#include "market/core/allocator_turn.hpp"

namespace souk::market {

// The room that guests of this rank and before it leave, of what a job may displace.
Allocator::Room Allocator::room_at(const Machine& m, const Rank& rank) const {
    Room room{m.free_cpus, m.free_mb};
    for (size_t i = m.guests.size(); i > 0 && m.guests[i - 1].rank > rank; --i) {
        room.first += m.guests[i - 1].cpus;
        room.second += m.guests[i - 1].memory_mb;
    }
    return room;
}

bool Allocator::gang_barred(const GangTurn& turn, ProviderKey provider) const {
    return std::binary_search(turn.barred.begin(), turn.barred.end(), provider);
}

Allocator::GangTurn Allocator::turn_of(const Gang& g) {
    GangTurn turn;
    for (const uint32_t j : g.required) {
        const Job& job = jobs_[j];
        if (details_[j].barred)
            turn.barred.insert(turn.barred.end(), details_[j].barred->begin(),
                               details_[j].barred->end());
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
void Allocator::count_siblings(const Gang& g, GangTurn& turn) const {
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
    if (!turn.siblings.empty()) turn.network = network_of(turn.siblings.begin()->first, g.layout);
}

// A component that has a place stays there; one that lost its place may stay where it is if that
// has room beside the others.
bool Allocator::stay_jointly(const Gang& g, GangTurn& turn) const {
    std::map<uint32_t, Room> rooms;
    std::map<uint32_t, uint32_t> there = turn.siblings;
    bool all = true;
    for (const uint32_t j : turn.free)
        if (jobs_[j].slot != none) ++there[jobs_[j].slot];
    const uint32_t most = g.layout.most_on_one;
    uint64_t network = turn.network;
    for (const uint32_t j : turn.free) {
        const Job& job = jobs_[j];
        if (const uint32_t m = job.slot != none ? job.slot : job.at; g.layout.near && m != none) {
            if (network == 0) network = network_of(m, g.layout);
            if (network_of(m, g.layout) != network) {  // its machine has another network now
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
        if (job.slot != none || job.at == none || !eligible(machines_[job.at], j)) {
            all = all && job.slot != none;
            continue;
        }
        // Siblings that have a place there are not of this room: they have the gang's rank.
        Room& room = rooms.try_emplace(job.at, room_at(machines_[job.at], g.rank)).first->second;
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
bool Allocator::pack(GangTurn& turn, NetworkPacking& packing, Money value, const Rank& before,
                     ClassKey below, bool free_only) {
    packing.begin(turn.network);
    turn.machines.clear();
    const auto least = packing.least();
    ClassKey last = class_none;  // `few`: what lies in it, or before, may be of use
    machine_order_.each_room(
        below, least.cpus, least.memory_mb, free_only ? rank_last : before,
        [&](const MachineOrder::Entry& e) {
            if (reserve_of(e.cls) > value || gang_barred(turn, ProviderKey{e.key})) return true;
            const Room room =
                free_only ? Room{e.free_cpus, e.free_mb} : room_at(machines_[e.machine], before);
            if (room.first < least.cpus || room.second < least.memory_mb) return true;
            if (e.cls > last) return false;
            const auto there = turn.siblings.find(e.machine);
            turn.machines.push_back(e.machine);
            if (packing.add(room.first, room.second, e.key,
                            there == turn.siblings.end() ? 0 : there->second,
                            network_of(e.machine, packing.layout())))
                last = e.cls;
            return !packing.packed() || packing.layout().few;
        });
    return packing.packed();
}

// From which class on it would leave the places where it may stay.
ClassKey Allocator::gang_bound(const GangTurn& turn) const {
    __int128 lost = 0, gained = 0;
    if (rules().horizon.ns > 0) {
        for (size_t i = 0; i < turn.free.size(); ++i) {
            const Job& job = jobs_[turn.free[i]];
            lost += lost_by_move(turn.free[i], machines_[turn.stays[i]]);
            gained += static_cast<__int128>(job.value.micro) * job.cpus *
                      std::max<int64_t>(1, rules().horizon.ns / 1'000'000);
        }
        if (lost > 0 && gained == 0) return 0;
    }
    const __int128 step = lost == 0 ? 1 : std::max<__int128>(1, (lost + gained - 1) / gained);
    return step > speed_max ? 0 : bound_of_speed(turn.slowest + static_cast<int64_t>(step));
}

// A gang's turn: everybody ranked above it has its place.
void Allocator::process_gang(Gang& g) {
    const Rank before = rank_before(g);
    machine_order_.close_until(before);
    GangTurn turn = turn_of(g);
    if (turn.free.empty()) return;
    NetworkPacking packing(turn.needs(jobs_, details_), g.layout);
    g.alike = packing.alike();
    const Money value = jobs_[turn.free.front()].value;
    const bool stays = turn.able && turn.all_stay;
    const ClassKey below = stays ? gang_bound(turn) : class_none;
    int32_t speed = 0;  // none that is worth it
    if (turn.able && pack(turn, packing, value, before, below, false)) {
        speed = std::min(turn.cap, machines_[turn.machines.back()].spec.speed);
        if (stays && class_of(speed, Money{}) >= below) speed = 0;
    }
    const bool placed = stays || speed > 0;
    note_waiting(g, !placed);
    if (!placed)
        release_gang(g, turn);
    else if (speed > 0)
        settle_gang(g, turn, packing, speed);
    else
        for (size_t i = 0; i < turn.free.size(); ++i)
            if (jobs_[turn.free[i]].slot == none) seat(turn.free[i], turn.stays[i]);
    ClassKey bound = class_none;
    if (placed) {
        turn.stays.clear();
        for (const uint32_t j : turn.free) turn.stays.push_back(jobs_[j].slot);
        turn.slowest = speed_of(g);
        bound = gang_bound(turn);
    }
    for (const uint32_t j : turn.free) set_bound(j, bound);
    for (const uint32_t j : g.optional) {
        if (!jobs_[j].competing) continue;
        if (jobs_[j].slot == none) set_bound(j, placed ? class_none : 0);
        touch(j);  // a pass may end before its turn
        if (!in_pass_) queue_.push({jobs_[j].rank, j});
    }
    g.clean = true;
}

// Gives every component a place on a machine of at least this speed, which the packing has found to
// be possible.
void Allocator::settle_gang(Gang& g, GangTurn& turn, NetworkPacking& packing, int32_t speed) {
    const ClassKey below = bound_of_speed(speed);
    const Money value = jobs_[turn.free.front()].value;
    std::vector<uint32_t> all_at;
    if (!packing.alike())
        for (const uint32_t place : packing.places()) all_at.push_back(turn.machines[place]);
    GangTurn movers;
    movers.barred = turn.barred;
    for (size_t i = 0; i < turn.free.size(); ++i) {
        const uint32_t j = turn.free[i], m = turn.stays[i];
        if (m != none && machines_[m].spec.speed >= speed) continue;
        movers.free.push_back(j);
        if (jobs_[j].slot != none) unseat(j);
        jobs_[j].voluntary = m != none && jobs_[j].at != none;
        if (jobs_[j].voluntary) jobs_[j].cause = Cause::faster;
    }
    for (size_t i = 0; i < turn.free.size(); ++i) {
        const uint32_t j = turn.free[i], m = turn.stays[i];
        if (m != none && machines_[m].spec.speed >= speed && jobs_[j].slot == none) seat(j, m);
    }
    if (packing.alike()) {
        for (const uint32_t j : movers.free) seat_alike(j, turn, g, below);
        return;
    }
    if (const std::vector<uint32_t> at = places_beside(g, movers, value, below); !at.empty()) {
        for (size_t i = 0; i < at.size(); ++i) seat(movers.free[i], at[i]);
        return;
    }
    for (const uint32_t j : turn.free)
        if (jobs_[j].slot != none) unseat(j);
    for (size_t i = 0; i < all_at.size(); ++i) seat(turn.free[i], all_at[i]);
}

// Machines for those that move, beside the siblings that stay: of free room, else of any. Empty:
// there are none as the others stand.
std::vector<uint32_t> Allocator::places_beside(const Gang& g, GangTurn& movers, Money value,
                                               ClassKey below) {
    count_siblings(g, movers);
    NetworkPacking packing(movers.needs(jobs_, details_), g.layout);
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
void Allocator::seat_alike(uint32_t j, const GangTurn& turn, const Gang& g, ClassKey below) {
    const Job& job = jobs_[j];
    const auto may = [&](const MachineOrder::Entry& e) {
        return e.cls < below && reserve_of(e.cls) <= job.value &&
               !gang_barred(turn, ProviderKey{e.key});
    };
    const auto free_here = [&](const MachineOrder::Entry& e) {
        return e.free_cpus >= job.cpus && e.free_mb >= job.memory_mb && may(e);
    };
    if (job.state == JobState::frozen) {
        const uint32_t m = find_machine(details_[j].place);
        if (m != none && machines_[m].cls < below) {
            const auto place = machine_order_.find({machines_[m].cls, machines_[m].key.n});
            if (free_here(machine_order_[place])) return seat(j, m, place);
        }
    }
    if (const auto place =
            machine_order_.first(0, below, job.cpus, job.memory_mb, rank_last, 0, free_here))
        return seat(j, machine_order_[place].machine, place);
    Rank bar = g.rank;
    uint32_t best = none;
    machine_order_.each_weaker(0, below, bar, [&](const MachineOrder::Entry& e) {
        if (!may(e)) return;
        const auto [strongest, fits] =
            displaced(machines_[e.machine], job.cpus, job.memory_mb, bar);
        if (!fits) return;
        bar = strongest;
        best = e.machine;
    });
    MUST(best != none);
    seat(j, best);
}

// All of them leave. Those that nobody displaced do so for what happened to the one that was.
void Allocator::release_gang(const Gang& g, const GangTurn& turn) {
    uint32_t first = none;
    for (size_t i = 0; first == none && i < turn.free.size(); ++i)
        if (jobs_[turn.free[i]].slot == none && turn.stays[i] == none) first = turn.free[i];
    const Cause cause = !turn.able      ? Cause::pinned
                        : first != none ? jobs_[first].cause
                                        : Cause::no_room;
    for (const auto* part : {&g.required, &g.optional})
        for (const uint32_t j : *part) {
            if (jobs_[j].slot == none || !jobs_[j].competing) continue;
            unseat(j);
            jobs_[j].cause = cause;
            details_[j].by = first != none ? details_[first].by : JobKey{};
            details_[j].by_value = first != none ? details_[first].by_value : Money{};
        }
}

// There is more room on this machine. Unlike components may change places among themselves: one
// that is on it may make way for a larger one.
void Allocator::reconsider_unlike(const Machine& m, const Rank& cursor) {
    for (size_t i = m.guests.size(); i > 0 && m.guests[i - 1].rank > cursor; --i) {
        const uint32_t j = m.guests[i - 1].job;
        if (!required(j)) continue;
        Gang& g = gang_of(j);
        if (g.alike || speed_of(g) >= m.spec.speed) continue;
        g.clean = false;
        queue_.push({jobs_[j].rank, j});
    }
}

// The same of gangs that rank between these two: whether one of them may have a use for it.
bool Allocator::unlike_want(const Machine& m, const Rank& after, const Rank& before) {
    return std::any_of(m.guests.begin(), m.guests.end(), [&](const Guest& guest) {
        if (guest.rank <= after || guest.rank >= before || !required(guest.job)) return false;
        const Gang& g = gang_of(guest.job);
        return !g.alike && speed_of(g) < m.spec.speed;
    });
}

// An optional component whose gang has no place has none either.
bool Allocator::without_gang(uint32_t j) {
    Job& job = jobs_[j];
    const Gang& g = gang_of(j);
    if (runs(g)) {
        if (job.slot == none) set_bound(j, class_none);
        return false;
    }
    if (job.slot != none) {
        unseat(j);
        job.cause = jobs_[g.required.front()].cause;
        details_[j].by = details_[g.required.front()].by;
        details_[j].by_value = details_[g.required.front()].by_value;
    }
    set_bound(j, 0);
    return true;
}

bool Allocator::would_run(const Gang& g, Money value) {
    GangTurn turn = turn_of(g);
    if (!turn.able || turn.free.empty()) return turn.able;
    NetworkPacking packing(turn.needs(jobs_, details_), g.layout);
    machine_order_.begin_pass();
    const Money counts = weighed(value, weight_of(turn.free.front()));
    return pack(turn, packing, value, {-counts.micro, g.rank.second, g.rank.key - 1}, class_none,
                false);
}

}  // namespace souk::market
