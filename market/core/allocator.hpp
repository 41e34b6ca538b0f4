// SPDX-License-Identifier: GPL-2.0-or-later
// Allocator: who runs where. Jobs choose in rank order (value, then arrival, then key): each takes
// a place on the fastest machine (at equal speed: of the lowest reserve) where it fits beside those
// that rank above it. That is the greedy migration of Amar, Mu'alem and Stoesser ("On the
// importance of migration for fairness in online grid markets", Grid 2008), with CPUs and memory as
// hard constraints. Owned by the Solver.
//
// It is put together from objects that own their data. Occupancy knows jobs and machines and who
// has which room, Gangs which components belong together, JobRanks who competes in which order.
// Seating changes places and puts on the Agenda who may have a use for what that leaves.
// ClassLimits says who may enter a class of machines, MoveBudget how many moves are left. A
// decision is an object of one life: Turns, with GangTurns and RoomMaker for gangs.
//
// Properties, plain rules (tests/unit/test_allocator.cpp checks each on random markets):
//  1. No justified envy: a job that runs slower than another, lower-ranked one (or not at all)
//     would not fit on that one's machine even if everything ranked below it were taken off. So no
//     job fares worse than one of lower value whose needs are at least its own. (A bar is the job's
//     own exception.)
//  2. No provider below its reserve: a job runs only where reserve <= value. So no job pays above
//     its value.
//  3. No two decisions cancel: at most one change a job; nobody moves between machines of one class
//     (equal speed and reserve) unless the own one has no room left beside those ranked above.
//  4. Fewest moved bytes: of all allocations that give each job the same class, none moves fewer
//     bytes of running jobs. Exact where every job needs one CPU and memory does not bind. With
//     mixed needs the choice inside a class is first fit for free room, else the machine whose
//     strongest displaced guest is the weakest; at the end jobs that moved inside their class take
//     their place back from guests whose staying saves fewer bytes. After them thawed jobs take the
//     place where their checkpoint is, from those who gain less by it or nothing, but from nobody
//     who runs there: so of the allocations above none carries fewer bytes of frozen jobs. Packing
//     for fewest bytes is NP-hard, so there it is a heuristic; rules 1 to 3 hold all the same.
//  5. Bid-monotone: raising a value never slows its job, if the others are placed from nothing.
//
// Migration-aware rules (Rules below):
//  - horizon H > 0: a running job leaves a place where it may stay only for a gain over H of at
//    least the cost: value x cpus x (s' - s)/s_1 x H >= value x cpus x s/s_1 x pause + bytes x byte
//    cost. So envy is bounded: a job that envies another forgoes less than the cost of one move in
//    any H. Displaced jobs move in any case. With H > 0 a job that reads its files over the network
//    (JobDemand::files) pays for that too wherever it is but at home: move_costs.hpp.
//  - min_stay S > 0: whoever was placed at t is neither moved nor displaced before t + S, unless
//    its provider leaves or shrinks or its bars or pin change. So a job is placed at most once in
//    any S, and justified envy lasts at most S after a placement.
//  - moves_max N: at most N voluntary moves in any window W. Displaced jobs use up the same tokens
//    but are not refused.
//
// Gangs are jobs of several components that run together, or not at all: gang_turns.hpp, and
// room_maker.hpp for moves of others that make room for them.
//
// Incremental: what happened is kept as dirty jobs and opened machines (more room than before, for
// jobs after a cursor). solve() takes them up in rank order; every job not taken up would have
// stayed, because nothing that it could use changed. So the result is that of one pass over all
// jobs (solve_all, the definition), at the cost of the change. The change itself may be large.
// Where each machine has a speed of its own, property 1 leaves a single allocation: the job of rank
// i on machine i. An arrival at rank r then moves everybody below it who runs, one machine down,
// whatever algorithm finds that out (10,000 machines, 100,000 jobs: 637 changes an event on
// average, up to 10,000, about 0.5 us each). Who would rather move less sets a horizon, a minimum
// stay or moves_max, and accepts the envy stated above.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "market/core/class_limits.hpp"
#include "market/core/move_budget.hpp"
#include "market/core/seating.hpp"

namespace souk::market {

class Allocator {
  public:
    static constexpr uint32_t none = UINT32_MAX;
    using Job = Occupancy::Job;
    using JobDetails = Occupancy::JobDetails;
    using Gang = Occupancy::Gang;
    using Guest = Occupancy::Guest;
    using Machine = Occupancy::Machine;

    // Events. These take indexes; the caller has checked the keys and ranges.
    void set_rules(const Rules& rules) { seats_.set_rules(rules); }
    void add_job(JobKey key, const JobDemand& spec) { seats_.add_job(key, spec); }
    void change_job(uint32_t j, const JobDemand& spec) { seats_.change_job(j, spec); }
    void change_value(uint32_t j, Money value) { change_value(j, value, details(j).weight); }
    void change_value(uint32_t j, Money value, int32_t weight) {
        seats_.change_value(j, value, weight);
    }
    void remove_job(uint32_t j) { seats_.remove_job(j); }
    // Components with the keys from `first` on, the optional ones last, all of one value and
    // arrival and weight. change_value() of one changes that of all.
    void add_gang(JobKey first, std::span<const JobDemand> components, size_t required,
                  const GangLayout& layout = {}) {
        seats_.add_gang(first, components, required, layout);
    }
    void add_provider(ProviderKey key, const ProviderSpec& spec) { seats_.add_provider(key, spec); }
    void change_provider(uint32_t m, const ProviderSpec& spec) { seats_.change_provider(m, spec); }
    void remove_provider(uint32_t m) { seats_.remove_provider(m); }
    // The named resources of the whole market.
    void set_licences(const NamedOffers& all) { seats_.set_licences(all); }

    // Takes up what time alone has changed; solve() does it too. For who sets limits by the jobs
    // that compete now.
    void begin(Nanos now);
    // After begin(), for the next solve: ClassLimits::set. None: every class takes who can pay its
    // reserve.
    void set_limits(std::vector<ClassLimit> limits, const Rank& last,
                    std::vector<ClassLevel> levels);
    void lift_limits();
    const std::vector<ClassLimit>& limits() const { return limits_.all(); }
    Money least_bid_at(const Machine& m) const { return limits_.least_bid_at(m); }

    // Repairs the allocation and leaves the changes in changes(). solve_all takes up every job,
    // whatever changed.
    void solve(Nanos now);
    void solve_all(Nanos now);
    // The same with the jobs in this order instead of by value (every competing job once), and
    // nobody moves of its own will. Until rank_by_value() new jobs rank last.
    void solve_in_order(const std::vector<uint32_t>& jobs, Nanos now);
    // `weights`: times weight; else weights say nothing.
    void rank_by_value(bool weights = false) { seats_.rank_by_value(weights); }
    // Makes the allocation exactly this: slots[j] for every job that is not pinned. The caller has
    // checked it. `cause`: why somebody gets a place, or moves.
    void adopt(const std::vector<uint32_t>& slots, Nanos now, Cause cause = Cause::adopted);
    const std::vector<Change>& changes() const { return changes_; }
    Nanos next_wake() const { return std::min(seats_.next_wake(), budget_.next_wake(rules())); }

    // The places: see Occupancy.
    const Occupancy& occupancy() const { return seats_.occupancy(); }
    uint32_t find_job(JobKey key) const { return occupancy().find_job(key); }
    uint32_t find_machine(ProviderKey key) const { return occupancy().find_machine(key); }
    const Chunks<Job>& jobs() const { return occupancy().jobs(); }
    const JobDetails& details(uint32_t j) const { return occupancy().details(j); }
    ProviderKey place_of(uint32_t j) const { return occupancy().place_of(j); }
    const Chunks<Machine>& machines() const { return occupancy().machines(); }
    const MachineOrder& machine_order() const { return occupancy().machine_order(); }
    size_t job_count() const { return occupancy().job_count(); }
    size_t machine_count() const { return occupancy().machine_count(); }
    size_t named_jobs() const { return occupancy().named_jobs(); }
    int32_t speed_top() const { return occupancy().speed_top(); }
    uint64_t room_version() const { return occupancy().version(); }
    bool eligible(const Machine& m, uint32_t j) const { return occupancy().eligible(m, j); }
    bool barred(ProviderKey at, uint32_t j) const { return occupancy().barred(at, j); }
    int64_t bytes_of(uint32_t j) const { return occupancy().bytes_of(j); }
    std::pair<Rank, bool> displaced(const Machine& m, int32_t cpus, int64_t memory_mb,
                                    const Rank& rank) const {
        return occupancy().displaced(m, cpus, memory_mb, rank);
    }
    std::pair<Rank, bool> displaced(const Machine& m, uint32_t j, const Rank& rank) const {
        return occupancy().displaced(m, j, rank);
    }
    Money reserve_at(const Machine& m, uint32_t j) const { return occupancy().reserve_at(m, j); }
    bool has_named(const Machine& m, uint32_t j) const { return occupancy().has_named(m, j); }
    const NamedAmounts& takes_named(uint32_t j) const { return occupancy().takes_named(j); }
    const NamedAmounts& takes_licences(uint32_t j) const { return occupancy().takes_licences(j); }
    const Licences& licences() const { return occupancy().licences(); }

    // Gangs, and where their components are.
    const std::vector<Gang>& gangs() const { return occupancy().gangs().all(); }
    size_t gang_count() const { return occupancy().gangs().count(); }
    uint32_t gang_with(uint64_t key) const { return occupancy().gangs().with(key); }
    uint64_t network_of(uint32_t m, const GangLayout& layout) const {
        return occupancy().network_of(m, layout);
    }
    bool required(uint32_t j) const { return occupancy().required(j); }
    uint32_t leader(const Gang& g) const { return occupancy().leader(g); }
    bool runs(const Gang& g) const { return occupancy().runs(g); }
    int32_t speed_of(const Gang& g) const { return occupancy().speed_of(g); }
    int32_t speed_at_slot(uint32_t j) const { return occupancy().speed_at_slot(j); }
    // Whether the gang would get a place at this bid, the others as they are.
    bool would_run(const Gang& g, Money value);

    // How jobs rank: see JobRanks.
    const JobOrder& order() { return seats_.order(); }
    // The most CPUs and the most memory that a competing job needs; how many of them have bars.
    std::pair<int32_t, int64_t> most_needed() { return seats_.order().most_needed(); }
    size_t competing_with_bars() const { return seats_.ranks().competing_with_bars(); }
    bool ranks_by_value() const { return seats_.ranks().by_value(); }
    // One walk over ranks prices single jobs: no gang takes several places at once, ranks say who
    // can pay a reserve, and nobody needs named resources.
    bool ranks_price() const { return gang_count() == 0 && ranks_by_value() && named_jobs() == 0; }
    // As it counts in ranks.
    int32_t weight_of(uint32_t j) const { return seats_.ranks().weight_of(occupancy(), j); }
    bool plain() const { return seats_.plain(); }
    // Counts up with everything that could change an allocation or a price.
    uint64_t version() const { return seats_.version(); }

  private:
    struct Place;
    const Rules& rules() const { return seats_.rules(); }
    void let_in(const ClassLimits::Raise& raise);
    void let_go(const ClassLimit& limit);
    Place place_in_order(uint32_t change) const;
    void sort_changes();
    void emit(Nanos now);
    void hold_placed(Nanos now);

    Seating seats_;
    ClassLimits limits_;
    MoveBudget budget_;
    std::vector<Change> changes_;
    std::vector<uint32_t> changed_;  // the job of each change
};

}  // namespace souk::market
