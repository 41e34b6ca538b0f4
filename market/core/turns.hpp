// SPDX-License-Identifier: GPL-2.0-or-later
// Turns: one decision about who runs where. Jobs have their turns in the order of their ranks, each
// beside those that rank before it (the rules: allocator.hpp): all of them (pass), or those that
// something has happened to and those that a change gives room (run). Then jobs that have moved
// inside their class take back the machine that has their data (settle). It works on the Seating,
// by the limits of classes and the budget of moves, and lives as long as the decision.
#pragma once

#include <vector>

#include "market/core/class_limits.hpp"
#include "market/core/gang_turns.hpp"
#include "market/core/move_budget.hpp"
#include "market/core/seating.hpp"

namespace souk::market {

class Turns {
  public:
    static constexpr uint32_t none = UINT32_MAX;
    using Job = Occupancy::Job;
    using Machine = Occupancy::Machine;

    Turns(Seating& seats, const ClassLimits& limits, MoveBudget& budget)
        : seats_(seats),
          limits_(limits),
          budget_(budget),
          gangs_(seats),
          all_(seats.occupancy()),
          jobs_(all_.jobs()),
          machines_(all_.machines()),
          order_(seats.machine_order()) {}

    // The definition: every job in rank order.
    void pass();
    // Takes up the dirty jobs of the agenda, then what is on it, in rank order until nothing is.
    void repair();
    void run();
    void settle();

    GangTurns& gangs() { return gangs_; }
    // The first job after the cursor that would come to this machine if it knew of the room; none:
    // there is none.
    uint32_t next_candidate(const Machine& m, const Rank& cursor) const;

  private:
    // In a pass the room for jobs of a rank only shrinks: where a need was once too much, no later
    // need of as many CPUs and at least its memory has to look again (no machine at a position
    // before `from` has that). By CPUs (31 at most) and quarter octaves of memory.
    struct TooSmall {
        int64_t memory_mb = 0;
        size_t from = 0;
    };
    static constexpr size_t octaves = 4 * 42;

    void process(uint32_t j);
    MachineOrder::Place find_place(uint32_t j, ClassKey below, size_t start);
    MachineOrder::Place find_free(uint32_t j);
    MachineOrder::Place better_home(uint32_t j, const MachineOrder::Place& better, ClassKey below);
    MachineOrder::Place choose(uint32_t j, const MachineOrder::Place& better, size_t start);
    bool can_stay_at(uint32_t j, const Machine& m) const;
    bool worth_reserve(const Machine& m, uint32_t j) const;
    uint32_t next_native(const Machine& m, const Rank& cursor) const;
    void swap_places(uint32_t x, uint32_t y);
    uint32_t exchange_for(uint32_t d) const;
    void take_back(uint32_t d);
    size_t position_to_start(int32_t cpus, int64_t memory_mb) const;
    void start_later(int32_t cpus, int64_t memory_mb, size_t position);

    Seating& seats_;
    const ClassLimits& limits_;
    MoveBudget& budget_;
    GangTurns gangs_;
    const Occupancy& all_;
    const Chunks<Job>& jobs_;
    const Chunks<Machine>& machines_;
    MachineOrder& order_;
    // In a pass:
    bool passing_ = false;
    std::vector<TooSmall> too_small_;
    Money dearest_;  // where ranks do not say who bids more: the highest reserve
};

}  // namespace souk::market
