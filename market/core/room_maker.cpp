// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/room_maker.hpp"

#include <algorithm>
#include <tuple>

#include "kernel/base/check.hpp"

namespace souk::market {

namespace {
using RoomCost = __int128;

constexpr size_t machines_looked_at = 64;  // and one for each component
constexpr size_t jobs_moved_most = 8;      // for one gang
constexpr size_t gangs_looked_at = 8;      // in one decision
constexpr int64_t steps_most = 1'500;      // in one decision

bool holds(const Occupancy::Room& room, int64_t cpus, int64_t memory_mb) {
    return room.first >= cpus && room.second >= memory_mb;
}

// The search for such moves for one gang. Found: `moves`.
class RoomSearch {
    using Room = Occupancy::Room;
    using Job = Occupancy::Job;
    using Guest = Occupancy::Guest;
    using Machine = Occupancy::Machine;
    using Gang = Occupancy::Gang;

  public:
    // `steps` counts down over all searches of a decision.
    RoomSearch(const Seating& seats, const Turns& turns, const Gang& g, const GangTurns::Turn& turn,
               int64_t& steps)
        : seats_(seats),
          turns_(turns),
          all_(seats.occupancy()),
          jobs_(all_.jobs()),
          machines_(all_.machines()),
          gang_(g),
          turn_(turn),
          packing_(turn.needs(all_), g.layout),
          steps_(steps) {}

    bool find(size_t moves_most);
    std::vector<RoomMaker::JobMove> found() const;

  private:
    struct Mover {
        uint32_t job;
        int32_t cpus;
        int64_t memory_mb;
        RoomCost cost;
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

    const Mover& mover(const Move& m) const { return slots_[m.from].movers[m.mover]; }
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

    const Seating& seats_;
    const Turns& turns_;
    const Occupancy& all_;
    const Chunks<Job>& jobs_;
    const Chunks<Machine>& machines_;
    const Gang& gang_;
    const GangTurns::Turn& turn_;
    NetworkPacking packing_;
    std::vector<Slot> slots_;
    std::vector<Move> moves_;
    RoomCost cost_ = 0;
    size_t moves_most_ = 0;
    int64_t& steps_;
};

std::vector<RoomMaker::JobMove> RoomSearch::found() const {
    std::vector<RoomMaker::JobMove> all;
    for (const Move& m : moves_)
        all.push_back({mover(m).job, slots_[m.from].machine, slots_[m.to].machine});
    return all;
}

void RoomSearch::note_movers(Slot& slot) const {
    for (const Guest& g : machines_[slot.machine].guests) {
        if (g.rank.is_top()) continue;
        if (g.rank >= gang_.rank) break;
        const Job& job = jobs_[g.job];
        if (job.at != slot.machine || job.named || all_.lies_apart(g.job) ||
            seats_.minds_files(g.job))
            continue;
        const bool free = seats_.rules().horizon.ns == 0;
        slot.movers.push_back({g.job, g.cpus, g.memory_mb,
                               free ? 0 : seats_.lost_by_move(g.job, machines_[slot.machine])});
    }
}

// The machines that those of the gang's bid may use; of many those with the most room.
void RoomSearch::collect() {
    const Money value = jobs_[turn_.free.front()].value;
    const Rank before = all_.rank_before(gang_);
    all_.machine_order().each([&](const MachineOrder::Entry& e) {
        if (reserve_of(e.cls) > value) return true;
        Slot slot{e.machine, e.cls, all_.room_at(machines_[e.machine], before), {}, {}, false,
                  0,         {}};
        slot.open = !turn_.bars(ProviderKey{e.key});
        const auto there = turn_.siblings.find(e.machine);
        slot.siblings = there == turn_.siblings.end() ? 0 : there->second;
        slots_.push_back(std::move(slot));
        return true;
    });
    const size_t most = machines_looked_at + turn_.free.size();
    if (slots_.size() > most) {
        const auto key = [&](const Slot& s) {
            return std::tuple(-s.room.first, -s.room.second, s.cls, machines_[s.machine].key.n);
        };
        std::nth_element(slots_.begin(), slots_.begin() + static_cast<ptrdiff_t>(most),
                         slots_.end(),
                         [&](const Slot& a, const Slot& b) { return key(a) < key(b); });
        slots_.resize(most);
        std::sort(slots_.begin(), slots_.end(), [&](const Slot& a, const Slot& b) {
            return std::pair(a.cls, machines_[a.machine].key) <
                   std::pair(b.cls, machines_[b.machine].key);
        });
    }
    for (Slot& slot : slots_)
        if (slot.open) note_movers(slot);
}

void RoomSearch::step(const Move& m, int sign) {
    const Mover& who = mover(m);
    slots_[m.from].left.first += sign * who.cpus;
    slots_[m.from].left.second += sign * who.memory_mb;
    slots_[m.to].arrived.first += sign * who.cpus;
    slots_[m.to].arrived.second += sign * who.memory_mb;
    cost_ += sign * who.cost;
    if (sign > 0)
        moves_.push_back(m);
    else
        moves_.pop_back();
}

// The speed at which the gang fits as the moves leave the machines; 0: it does not.
int32_t RoomSearch::packed_at() {
    packing_.begin(turn_.network);
    const NetworkPacking::Need least = packing_.least();
    for (const Slot& slot : slots_) {
        const Room room = slot.now();
        if (!slot.open || !holds(room, least.cpus, least.memory_mb)) continue;
        if (packing_.add(room.first, room.second, machines_[slot.machine].key.n, slot.siblings,
                         all_.network_of(slot.machine, gang_.layout)))
            return std::min(turn_.cap, machines_[slot.machine].spec.speed);
    }
    return 0;
}

bool RoomSearch::pays(int32_t speed) const {
    if (seats_.rules().horizon.ns == 0) return true;
    RoomCost gained = 0;
    for (const uint32_t j : gang_.required)
        gained += RoomCost{jobs_[j].value.micro} * jobs_[j].cpus;
    return cost_ <= gained * speed * std::max<int64_t>(1, seats_.rules().horizon.ns / 1'000'000);
}

// The room that is left on a machine with these guests, beside those of this rank and before it.
Occupancy::Room RoomSearch::room_left(const Machine& m, const Rank& rank) {
    Room room{m.spec.cpus, m.spec.memory_mb};
    for (const Guest& g : m.guests)
        if (g.rank <= rank) room = {room.first - g.cpus, room.second - g.memory_mb};
    return room;
}

// Whether the second room may be of more use to the gang than the first: of like components it
// holds more, and of unlike ones it is larger.
bool RoomSearch::more_fit(const Gang& g, const Room& now, const Room& then) const {
    if (!g.alike) return now != then;
    const Job& one = jobs_[g.required.front()];
    const auto held = [&](const Room& room) {
        int64_t most = std::min<int64_t>(std::ssize(g.required), room.first / one.cpus);
        if (one.memory_mb > 0) most = std::min(most, room.second / one.memory_mb);
        return most;
    };
    return held(then) > held(now);
}

// Jobs that rank before the gang find nothing better on a machine that somebody leaves.
bool RoomSearch::gives_nobody_room() const {
    for (size_t s = 0; s < slots_.size(); ++s) {
        if (slots_[s].left == Room{}) continue;
        const Machine& now = machines_[slots_[s].machine];
        Machine then = now;
        for (const Move& m : moves_) {
            const uint32_t j = mover(m).job;
            if (m.from == s) std::erase_if(then.guests, [&](const auto& g) { return g.job == j; });
            if (m.to == s)
                then.guests.push_back({all_.guest_rank(j), mover(m).memory_mb, j, mover(m).cpus});
        }
        std::sort(then.guests.begin(), then.guests.end(),
                  [](const auto& a, const auto& b) { return a.rank < b.rank; });
        Rank cursor = Rank::top();
        for (uint32_t j = turns_.next_candidate(then, cursor); j != Occupancy::none;
             j = turns_.next_candidate(then, cursor)) {
            const Job& job = jobs_[j];
            if (job.rank >= gang_.rank) break;
            if (!holds(all_.room_at(now, job.rank), job.cpus, job.memory_mb)) return false;
            // A gang of which a part fits there also before may now fit with more.
            if (all_.required(j) &&
                more_fit(all_.gang_of(j), all_.room_at(now, job.rank), room_left(then, job.rank)))
                return false;
            cursor = job.rank;
        }
    }
    return true;
}

bool RoomSearch::is_enough() {
    steps_ -= 1 + static_cast<int64_t>(slots_.size()) / (packing_.alike() ? 8 : 2);
    const int32_t speed = packed_at();
    return speed > 0 && pays(speed) && gives_nobody_room();
}

bool RoomSearch::may_go(const Move& m) const {
    const Slot &from = slots_[m.from], &to = slots_[m.to];
    const Mover& who = mover(m);
    return m.from != m.to && from.cls == to.cls &&
           holds(to.for_arrivals(), who.cpus, who.memory_mb) &&
           (!jobs_[who.job].bars || !all_.barred(machines_[to.machine].key, who.job));
}

// The cheapest move after which one machine holds one more component and none holds fewer; into
// the least room of these.
bool RoomSearch::best_single(Move& best) const {
    const NetworkPacking::Need need = packing_.least();
    const auto held = [&](const Room& r) {
        const int64_t by_memory =
            need.memory_mb > 0 ? r.second / need.memory_mb : int64_t{INT32_MAX};
        return std::max<int64_t>(0, std::min(r.first / need.cpus, by_memory));
    };
    const RoomCost none_yet = -1;
    RoomCost least = none_yet;
    for (size_t s = 0; s < slots_.size(); ++s)
        for (size_t i = 0; i < slots_[s].movers.size(); ++i) {
            const Mover& who = slots_[s].movers[i];
            const bool moved = std::any_of(moves_.begin(), moves_.end(), [&](const Move& m) {
                return m.from == s && m.mover == i;
            });
            if (moved || (least != none_yet && who.cost >= least)) continue;
            Room after = slots_[s].now();
            after = {after.first + who.cpus, after.second + who.memory_mb};
            if (held(after) <= held(slots_[s].now())) continue;
            size_t to = slots_.size();
            for (size_t t = 0; t < slots_.size(); ++t) {
                if (!may_go({s, i, t})) continue;
                const Room now = slots_[t].now();
                const Room then{now.first - who.cpus, now.second - who.memory_mb};
                if (slots_[t].open && held(then) < held(now)) continue;
                if (to == slots_.size() || slots_[t].for_arrivals() < slots_[to].for_arrivals())
                    to = t;
            }
            if (to == slots_.size()) continue;
            least = who.cost;
            best = {s, i, to};
        }
    return least != none_yet;
}

bool RoomSearch::singly() {
    Move best{};
    while (moves_.size() < moves_most_ && best_single(best)) {
        step(best, 1);
        if (is_enough()) return true;
    }
    while (!moves_.empty()) step(moves_.back(), -1);
    return false;
}

// Some set of so many more moves, of who comes from this one on.
bool RoomSearch::any(size_t more, size_t slot, size_t first) {
    if (more == 0) return is_enough();
    for (size_t s = slot; s < slots_.size(); ++s)
        for (size_t i = s == slot ? first : 0; i < slots_[s].movers.size(); ++i) {
            steps_ -= static_cast<int64_t>(slots_.size()) / 32;  // to look at all of them
            for (size_t t = 0; t < slots_.size(); ++t) {
                if (steps_ <= 0) return false;
                if (!may_go({s, i, t})) continue;
                step({s, i, t}, 1);
                if (pays(speed_max) && any(more - 1, s, i + 1)) return true;
                step(moves_.back(), -1);
            }
        }
    return false;
}

bool RoomSearch::find(size_t moves_most) {
    collect();
    size_t movers = 0;
    for (const Slot& slot : slots_) movers += slot.movers.size();
    moves_most_ = std::min(moves_most, movers);
    if (packing_.alike() && singly()) return true;
    for (size_t n = 1; n <= moves_most_ && steps_ > 0; ++n)
        if (any(n, 0, 0)) return true;
    return false;
}

}  // namespace

// Whether all machines together have the room for it, and each component would fit into one.
bool RoomMaker::fits_in_sum(const Gang& g, const GangTurns::Turn& turn) const {
    const Rank before = all_.rank_before(g);
    const Money value = all_.jobs()[turn.free.front()].value;
    Occupancy::Room needed, largest;
    for (const uint32_t j : turn.free) {
        const Occupancy::Job& job = all_.jobs()[j];
        needed = {needed.first + job.cpus, needed.second + job.memory_mb};
        largest = {std::max<int64_t>(largest.first, job.cpus),
                   std::max(largest.second, job.memory_mb)};
    }
    int64_t cpus = 0;  // first these alone: most markets have none to spare, which is soon seen
    seats_.machine_order().each_room(class_none, 1, 0, before, [&](const MachineOrder::Entry& e) {
        if (reserve_of(e.cls) <= value)
            cpus += all_.room_at(all_.machines()[e.machine], before).first;
        return cpus < needed.first;
    });
    if (cpus < needed.first) return false;
    int64_t memory_mb = 0;
    bool holds_largest = false;
    all_.machine_order().each([&](const MachineOrder::Entry& e) {
        if (reserve_of(e.cls) > value) return true;
        const Occupancy::Machine& m = all_.machines()[e.machine];
        memory_mb += all_.room_at(m, before).second;
        holds_largest |= holds({m.spec.cpus, m.spec.memory_mb}, largest.first, largest.second);
        return memory_mb < needed.second || !holds_largest;
    });
    return memory_mb >= needed.second && holds_largest;
}

// The moves, the gang's turn, and the turns of those who lose their place by it.
void RoomMaker::carry_out(const Gang& g, const std::vector<JobMove>& moves) {
    for (const JobMove& m : moves) {
        const bool had_its_turn = all_.required(m.job) && all_.gang_of(m.job).clean;
        seats_.agenda().pause(true);  // nobody who ranks before the gang has a use for this room
        seats_.unseat(m.job);
        seats_.agenda().pause(false);
        if (all_.required(m.job)) seats_.note_turn(all_.gang_of(m.job), had_its_turn);
    }
    for (const JobMove& m : moves) {
        seats_.seat(m.job, m.to);
        seats_.set_voluntary(m.job, false);
        seats_.explain(m.job, Cause::displaced, JobKey{g.first}, Money{-g.rank.first});
    }
    budget_.spend(static_cast<int32_t>(moves.size()));
    seats_.note_turn(g, false);
    turns_.gangs().process(g);
    MUST(all_.runs(g));
    for (const JobMove& m : moves) seats_.open(m.from, all_.last_required(g));
    turns_.run();
}

void RoomMaker::make_room() {
    const Gangs& gangs = all_.gangs();
    int64_t steps = steps_most;
    size_t looked_at = 0;
    // In the order of rank, with those that lose their place by the moves made here.
    Gangs::Ranked one;
    for (auto next = gangs.waiting().begin(); next != gangs.waiting().end();
         next = gangs.waiting().upper_bound(one)) {
        one = *next;
        const Gang& g = gangs[one.second];
        seats_.machine_order().begin_pass();
        const GangTurns::Turn turn = turns_.gangs().turn_of(g);
        if (all_.runs(g)) seats_.note_waiting(g, false);
        if (!turn.able || turn.free.empty() || all_.runs(g) || !fits_in_sum(g, turn)) continue;
        size_t moves_most = jobs_moved_most;
        budget_.limit(moves_most);
        RoomSearch search(seats_, turns_, g, turn, steps);
        if (search.find(moves_most)) carry_out(g, search.found());
        if (++looked_at == gangs_looked_at || steps <= 0) return;
    }
}

}  // namespace souk::market
