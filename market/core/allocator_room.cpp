// SPDX-License-Identifier: GPL-2.0-or-later
// Allocator: moves of others that make room for a gang. A gang may fit into the room that all
// machines together have at its rank and still wait, because no machine has enough of it. Then
// running jobs that rank before it move to other machines of their class, where they run as fast
// and as cheaply as before, at most 8 of them, if that makes room for all required components.
//
//  - A job moves into room that is there before any of these moves, beside those that rank before
//    the gang. Who ranks after the gang makes place, as for any job.
//  - With a horizon, what the gang gains by running for that long must be worth all the moves.
//    With moves_max they use up its tokens. Nobody moves whom min_stay or a pin protects, who reads
//    files over the network, or whose own gang minds how it lies.
//  - No move gives room to somebody who ranks before the gang and has a use for it: else the gang
//    would lose it at once. A component of another gang counts as one who has a use for it.
//
// solve() does this when everybody has had his turn, for the waiting gangs that fit in sum, in the
// order of their ranks. It depends on the allocation alone, so repairing is still the same as
// deciding about everything. The search is exact as far as its steps go, which is every set of
// moves in small markets. In large ones: the machines with the most room, and single moves first.
#include <algorithm>

#include "kernel/base/check.hpp"
#include "market/core/allocator_turn.hpp"

namespace souk::market {

namespace {
using Wide = __int128;
using Room = std::pair<int64_t, int64_t>;  // CPUs, memory

constexpr size_t machines_looked_at = 64;  // and one for each component
constexpr size_t jobs_moved_most = 8;      // for one gang
constexpr size_t gangs_looked_at = 8;      // in one decision
constexpr int64_t steps_most = 1'500;      // in one decision

bool holds(const Room& room, int64_t cpus, int64_t memory_mb) {
    return room.first >= cpus && room.second >= memory_mb;
}
}  // namespace

struct Allocator::RoomSearch {
    struct Mover {
        uint32_t job;
        int32_t cpus;
        int64_t memory_mb;
        Wide cost;
    };
    struct Slot {
        uint32_t machine;
        ClassKey cls;
        Room room;           // beside those that rank before the gang
        Room arrived, left;  // by the moves
        bool open = false;   // a component may go there
        uint32_t siblings = 0;
        std::vector<Mover> movers;  // who may leave

        Room now() const {
            return {room.first - arrived.first + left.first,
                    room.second - arrived.second + left.second};
        }
        Room for_arrivals() const {
            return {room.first - arrived.first, room.second - arrived.second};
        }
    };
    struct Move {
        size_t from, mover, to;
    };
    Allocator& all;
    const Gang& gang;
    const GangTurn& turn;
    NetworkPacking packing;
    std::vector<Slot> slots;
    std::vector<Move> moves;
    Wide cost = 0;
    size_t moves_most = 0;
    int64_t& steps;

    const Mover& mover(const Move& m) const { return slots[m.from].movers[m.mover]; }
    void collect();
    void note_movers(Slot& slot) const;
    void step(const Move& m, int sign);
    int32_t packed_at();
    bool pays(int32_t speed) const;
    static Room room_left(const Machine& m, const Rank& rank);
    bool more_fit(const Gang& g, const Room& now, const Room& then) const;
    bool gives_nobody_room() const;
    bool is_enough();
    bool may_go(const Move& m) const;
    bool singly();
    bool best_single(Move& best) const;
    bool any(size_t more, size_t slot, size_t first);
    bool find();
};

void Allocator::RoomSearch::note_movers(Slot& slot) const {
    for (const Guest& g : all.machines_[slot.machine].guests) {
        if (g.rank.is_top()) continue;
        if (g.rank >= gang.rank) break;
        const Job& job = all.jobs_[g.job];
        if (job.at != slot.machine || job.named || all.lies_apart(g.job) || all.minds_files(g.job))
            continue;
        const bool free = all.rules().horizon.ns == 0;
        slot.movers.push_back({g.job, g.cpus, g.memory_mb,
                               free ? 0 : all.lost_by_move(g.job, all.machines_[slot.machine])});
    }
}

// The machines that those of the gang's bid may use; of many those with the most room.
void Allocator::RoomSearch::collect() {
    const Money value = all.jobs_[turn.free.front()].value;
    const Rank before = all.rank_before(gang);
    all.machine_order_.each([&](const MachineOrder::Entry& e) {
        if (reserve_of(e.cls) > value) return true;
        Slot slot{e.machine, e.cls, all.room_at(all.machines_[e.machine], before), {}, {}, false,
                  0,         {}};
        slot.open = !all.gang_barred(turn, ProviderKey{e.key});
        const auto there = turn.siblings.find(e.machine);
        slot.siblings = there == turn.siblings.end() ? 0 : there->second;
        slots.push_back(std::move(slot));
        return true;
    });
    const size_t most = machines_looked_at + turn.free.size();
    if (slots.size() > most) {
        const auto key = [&](const Slot& s) {
            return std::tuple(-s.room.first, -s.room.second, s.cls, all.machines_[s.machine].key.n);
        };
        std::nth_element(slots.begin(), slots.begin() + static_cast<ptrdiff_t>(most), slots.end(),
                         [&](const Slot& a, const Slot& b) { return key(a) < key(b); });
        slots.resize(most);
        std::sort(slots.begin(), slots.end(), [&](const Slot& a, const Slot& b) {
            return std::pair(a.cls, all.machines_[a.machine].key) <
                   std::pair(b.cls, all.machines_[b.machine].key);
        });
    }
    for (Slot& slot : slots)
        if (slot.open) note_movers(slot);
}

void Allocator::RoomSearch::step(const Move& m, int sign) {
    const Mover& who = mover(m);
    slots[m.from].left.first += sign * who.cpus;
    slots[m.from].left.second += sign * who.memory_mb;
    slots[m.to].arrived.first += sign * who.cpus;
    slots[m.to].arrived.second += sign * who.memory_mb;
    cost += sign * who.cost;
    if (sign > 0)
        moves.push_back(m);
    else
        moves.pop_back();
}

// The speed at which the gang fits as the moves leave the machines; 0: it does not.
int32_t Allocator::RoomSearch::packed_at() {
    packing.begin(turn.network);
    const NetworkPacking::Need least = packing.least();
    for (const Slot& slot : slots) {
        const Room room = slot.now();
        if (!slot.open || !holds(room, least.cpus, least.memory_mb)) continue;
        if (packing.add(room.first, room.second, all.machines_[slot.machine].key.n, slot.siblings,
                        all.network_of(slot.machine, gang.layout)))
            return std::min(turn.cap, all.machines_[slot.machine].spec.speed);
    }
    return 0;
}

bool Allocator::RoomSearch::pays(int32_t speed) const {
    if (all.rules().horizon.ns == 0) return true;
    Wide gained = 0;
    for (const uint32_t j : gang.required)
        gained += Wide{all.jobs_[j].value.micro} * all.jobs_[j].cpus;
    return cost <= gained * speed * std::max<int64_t>(1, all.rules().horizon.ns / 1'000'000);
}

// The room that is left on a machine with these guests, beside those of this rank and before it.
Allocator::Room Allocator::RoomSearch::room_left(const Machine& m, const Rank& rank) {
    Room room{m.spec.cpus, m.spec.memory_mb};
    for (const Guest& g : m.guests)
        if (g.rank <= rank) room = {room.first - g.cpus, room.second - g.memory_mb};
    return room;
}

// Whether the second room may be of more use to the gang than the first: of like components it
// holds more, and of unlike ones it is larger.
bool Allocator::RoomSearch::more_fit(const Gang& g, const Room& now, const Room& then) const {
    if (!g.alike) return now != then;
    const Job& one = all.jobs_[g.required.front()];
    const auto held = [&](const Room& room) {
        int64_t most = std::min<int64_t>(std::ssize(g.required), room.first / one.cpus);
        if (one.memory_mb > 0) most = std::min(most, room.second / one.memory_mb);
        return most;
    };
    return held(then) > held(now);
}

// Jobs that rank before the gang find nothing better on a machine that somebody leaves.
bool Allocator::RoomSearch::gives_nobody_room() const {
    for (size_t s = 0; s < slots.size(); ++s) {
        if (slots[s].left == Room{}) continue;
        const Machine& now = all.machines_[slots[s].machine];
        Machine then = now;
        for (const Move& m : moves) {
            const uint32_t j = mover(m).job;
            if (m.from == s) std::erase_if(then.guests, [&](const auto& g) { return g.job == j; });
            if (m.to == s)
                then.guests.push_back({all.guest_rank(j), mover(m).memory_mb, j, mover(m).cpus});
        }
        std::sort(then.guests.begin(), then.guests.end(),
                  [](const auto& a, const auto& b) { return a.rank < b.rank; });
        then.cursor = Rank::top();
        for (uint32_t j = all.next_candidate(then); j != none; j = all.next_candidate(then)) {
            const Job& job = all.jobs_[j];
            if (job.rank >= gang.rank) break;
            if (!holds(all.room_at(now, job.rank), job.cpus, job.memory_mb)) return false;
            // A gang of which a part fits there also before may now fit with more.
            if (all.required(j) &&
                more_fit(all.gang_of(j), all.room_at(now, job.rank), room_left(then, job.rank)))
                return false;
            then.cursor = job.rank;
        }
    }
    return true;
}

bool Allocator::RoomSearch::is_enough() {
    steps -= 1 + static_cast<int64_t>(slots.size()) / (packing.alike() ? 8 : 2);
    const int32_t speed = packed_at();
    return speed > 0 && pays(speed) && gives_nobody_room();
}

bool Allocator::RoomSearch::may_go(const Move& m) const {
    const Slot &from = slots[m.from], &to = slots[m.to];
    const Mover& who = mover(m);
    return m.from != m.to && from.cls == to.cls &&
           holds(to.for_arrivals(), who.cpus, who.memory_mb) &&
           (!all.jobs_[who.job].bars || !all.barred(all.machines_[to.machine].key, who.job));
}

// The cheapest move after which one machine holds one more component and none holds fewer; into
// the least room of these.
bool Allocator::RoomSearch::best_single(Move& best) const {
    const NetworkPacking::Need need = packing.least();
    const auto held = [&](const Room& r) {
        const int64_t by_memory =
            need.memory_mb > 0 ? r.second / need.memory_mb : int64_t{INT32_MAX};
        return std::max<int64_t>(0, std::min(r.first / need.cpus, by_memory));
    };
    const Wide none_yet = -1;
    Wide least = none_yet;
    for (size_t s = 0; s < slots.size(); ++s)
        for (size_t i = 0; i < slots[s].movers.size(); ++i) {
            const Mover& who = slots[s].movers[i];
            const bool moved = std::any_of(moves.begin(), moves.end(), [&](const Move& m) {
                return m.from == s && m.mover == i;
            });
            if (moved || (least != none_yet && who.cost >= least)) continue;
            Room after = slots[s].now();
            after = {after.first + who.cpus, after.second + who.memory_mb};
            if (held(after) <= held(slots[s].now())) continue;
            size_t to = slots.size();
            for (size_t t = 0; t < slots.size(); ++t) {
                if (!may_go({s, i, t})) continue;
                const Room now = slots[t].now();
                const Room then{now.first - who.cpus, now.second - who.memory_mb};
                if (slots[t].open && held(then) < held(now)) continue;
                if (to == slots.size() || slots[t].for_arrivals() < slots[to].for_arrivals())
                    to = t;
            }
            if (to == slots.size()) continue;
            least = who.cost;
            best = {s, i, to};
        }
    return least != none_yet;
}

bool Allocator::RoomSearch::singly() {
    Move best{};
    while (moves.size() < moves_most && best_single(best)) {
        step(best, 1);
        if (is_enough()) return true;
    }
    while (!moves.empty()) step(moves.back(), -1);
    return false;
}

// Some set of so many more moves, of who comes from this one on.
bool Allocator::RoomSearch::any(size_t more, size_t slot, size_t first) {
    if (more == 0) return is_enough();
    for (size_t s = slot; s < slots.size(); ++s)
        for (size_t i = s == slot ? first : 0; i < slots[s].movers.size(); ++i) {
            steps -= static_cast<int64_t>(slots.size()) / 32;  // to look at all of them
            for (size_t t = 0; t < slots.size(); ++t) {
                if (steps <= 0) return false;
                if (!may_go({s, i, t})) continue;
                step({s, i, t}, 1);
                if (pays(speed_max) && any(more - 1, s, i + 1)) return true;
                step(moves.back(), -1);
            }
        }
    return false;
}

bool Allocator::RoomSearch::find() {
    collect();
    size_t movers = 0;
    for (const Slot& slot : slots) movers += slot.movers.size();
    moves_most = std::min(moves_most, movers);
    if (packing.alike() && singly()) return true;
    for (size_t n = 1; n <= moves_most && steps > 0; ++n)
        if (any(n, 0, 0)) return true;
    return false;
}

// Whether all machines together have the room for it, and each component would fit into one.
bool Allocator::fits_in_sum(const Gang& g, const GangTurn& turn) {
    const Rank before = rank_before(g);
    const Money value = jobs_[turn.free.front()].value;
    Room needed, largest;
    for (const uint32_t j : turn.free) {
        const Job& job = jobs_[j];
        needed = {needed.first + job.cpus, needed.second + job.memory_mb};
        largest = {std::max<int64_t>(largest.first, job.cpus),
                   std::max(largest.second, job.memory_mb)};
    }
    int64_t cpus = 0;  // first these alone: most markets have none to spare, which is soon seen
    machine_order_.each_room(class_none, 1, 0, before, [&](const MachineOrder::Entry& e) {
        if (reserve_of(e.cls) <= value) cpus += room_at(machines_[e.machine], before).first;
        return cpus < needed.first;
    });
    if (cpus < needed.first) return false;
    int64_t memory_mb = 0;
    bool holds_largest = false;
    machine_order_.each([&](const MachineOrder::Entry& e) {
        if (reserve_of(e.cls) > value) return true;
        const Machine& m = machines_[e.machine];
        memory_mb += room_at(m, before).second;
        holds_largest |= holds({m.spec.cpus, m.spec.memory_mb}, largest.first, largest.second);
        return memory_mb < needed.second || !holds_largest;
    });
    return memory_mb >= needed.second && holds_largest;
}

void Allocator::note_waiting(const Gang& g, bool waits) {
    const std::pair entry{g.rank, static_cast<uint32_t>(&g - gangs_.data())};
    if (waits)
        waiting_gangs_.insert(entry);
    else
        waiting_gangs_.erase(entry);
}

// The moves, the gang's turn, and the turns of those who lose their place by it.
void Allocator::carry_out(Gang& g, const RoomSearch& found) {
    for (const auto& m : found.moves) {
        const uint32_t j = found.mover(m).job;
        const bool clean = !required(j) || gang_of(j).clean;
        in_pass_ = true;  // nobody who ranks before the gang has a use for this room
        unseat(j);
        in_pass_ = false;
        if (required(j)) gang_of(j).clean = clean;
    }
    for (const auto& m : found.moves) {
        const uint32_t j = found.mover(m).job;
        seat(j, found.slots[m.to].machine);
        jobs_[j].voluntary = false;
        jobs_[j].cause = Cause::displaced;
        details_[j].by = JobKey{g.first};
        details_[j].by_value = Money{-g.rank.first};
    }
    if (rules().moves_max > 0) tokens_ -= static_cast<int32_t>(found.moves.size());
    g.clean = false;
    process_gang(g);
    MUST(runs(g));
    for (const auto& m : found.moves) open(found.slots[m.from].machine, last_required(g));
    run();
}

void Allocator::make_room() {
    if (waiting_gangs_.empty() || assigned_ || !limits_.empty()) return;
    int64_t steps = steps_most;
    size_t looked_at = 0;
    // In the order of rank, with those that lose their place by the moves made here.
    std::pair<Rank, uint32_t> one;
    for (auto next = waiting_gangs_.begin(); next != waiting_gangs_.end();
         next = waiting_gangs_.upper_bound(one)) {
        one = *next;
        Gang& g = gangs_[one.second];
        machine_order_.begin_pass();
        const GangTurn turn = turn_of(g);
        if (runs(g)) note_waiting(g, false);
        if (!turn.able || turn.free.empty() || runs(g) || !fits_in_sum(g, turn)) continue;
        RoomSearch search{*this, g,  turn, NetworkPacking(turn.needs(jobs_, details_), g.layout),
                          {},    {}, 0,    jobs_moved_most,
                          steps};
        if (rules().moves_max > 0 && tokens_ < static_cast<int32_t>(jobs_moved_most)) {
            suppressed_ = true;
            search.moves_most = static_cast<size_t>(std::max(0, tokens_));
        }
        if (search.find()) carry_out(g, search);
        if (++looked_at == gangs_looked_at || steps <= 0) return;
    }
}

}  // namespace souk::market
