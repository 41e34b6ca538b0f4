// SPDX-License-Identifier: GPL-2.0-or-later
// Allocator: who runs where. Jobs choose in rank order (value, then arrival, then key): each takes
// a place on the fastest machine (at equal speed: of the lowest reserve) where it fits beside those
// that rank above it. That is the greedy migration of Amar, Mu'alem and Stoesser ("On the
// importance of migration for fairness in online grid markets", Grid 2008), with CPUs and memory as
// hard constraints. Owned by the Solver.
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
// Gangs (jobs of several components that run together, or not at all): allocator_gangs.cpp, and
// allocator_room.cpp for moves of others that make room for them.
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

#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kernel/base/rare.hpp"
#include "market/core/chunks.hpp"
#include "market/core/job_order.hpp"
#include "market/core/key_map.hpp"
#include "market/core/licences.hpp"
#include "market/core/machine_order.hpp"
#include "market/core/move_costs.hpp"
#include "market/core/network_packing.hpp"
#include "market/core/rank.hpp"
#include "market/core/types.hpp"

namespace souk::market {

// A class of machines takes only jobs up to this rank (the welfare algorithm says which). Who is
// there already goes when the limit falls; with a horizon, when that is worth the move.
struct ClassLimit {
    ClassKey cls = 0;
    Rank last;
    bool operator==(const ClassLimit&) const = default;
};
// The cost of a place of a class, in micro-units x fastest speed. A horizon reckons the gain of
// leaving with it.
struct ClassLevel {
    ClassKey cls = 0;
    __int128 level = 0;
};

class Allocator {
  public:
    static constexpr uint32_t none = UINT32_MAX;

    // A turn reads this: one cache line, so that a pass over all jobs is a miss each, fetched
    // ahead.
    struct alignas(64) Job {
        Rank rank;                    // its key is 0: this index is not in use
        ClassKey bound = class_none;  // it would leave for any machine of a class before this
        int64_t memory_mb = 0;
        Money value;
        int32_t cpus = 1;
        uint32_t at = none;    // the machine it physically runs on
        uint32_t slot = none;  // the machine it is to be on
        JobState state : 4 = JobState::waiting;
        Pin pin : 4 = Pin::free;
        bool named = false;  // JobDetails::named is there
        Cause cause = Cause::placed;
        bool held : 1 = false;       // protected by min_stay: its guest entry ranks on top
        bool competing : 1 = false;  // in the order
        bool staged : 1 = false;     // will be in the order at the next flush
        bool touched : 1 = false;
        bool voluntary : 1 = false;
        // JobDetails::barred is not empty, or `only` or `named` is there
        bool bars : 1 = false;
        bool files : 1 = false;      // JobDetails::files is there
        bool component : 1 = false;  // JobDetails::gang is one

        JobKey key() const { return JobKey{rank.key}; }
        Nanos arrival() const { return Nanos{rank.second}; }
    };
    static_assert(sizeof(Job) == 64);
    struct Files {
        FileTraffic traffic;
        ClassKey bound = class_none;  // it would leave for its home, if of a class before this
    };
    // Named resources: those of the market are held wherever the job runs.
    struct Named {
        NamedAmounts here, licences;
        bool kept = false;  // they are no part of what is offered
    };
    // The rest, by the same index.
    struct JobDetails {
        // while `at` is none: where it is frozen, or runs on a provider that is not known
        ProviderKey place;
        int64_t move_bytes = -1;
        int64_t dirty_bytes_per_s = -1;
        Nanos stay_until{INT64_MIN};
        Rare<std::vector<ProviderKey>> barred;
        Rare<Files> files;
        Rare<Named> named;
        ProviderKey only;  // of a component: it may be nowhere but there
        JobKey by;         // who displaced it since the last solve
        Money by_value;    // as it counts in ranks
        int32_t weight = weight_plain;
        uint32_t user = 0;
        uint32_t gang = none;   // of gangs()
        bool optional = false;  // of the gang
    };
    // Its components have the keys from `first` to `last`, the optional ones behind the others, so
    // that their ranks follow each other. Those that have left are in no list.
    struct Gang {
        uint64_t first = 0, last = 0;  // 0: this index is not in use
        std::vector<uint32_t> required, optional;
        Rank rank;  // as guests, of all required ones: none displaces another
        GangLayout layout;
        bool alike = true;   // the required ones need the same, and lie as they come
        bool clean = false;  // has had its turn since one of them lost its place
    };
    struct Guest {
        Rank rank;  // top: pinned or held
        int64_t memory_mb = 0;
        uint32_t job = 0;
        int32_t cpus = 0;
    };
    struct Machine {
        ProviderKey key;  // 0: this index is not in use
        ProviderSpec spec;
        ClassKey cls = class_none;
        int64_t free_mb = 0;
        int32_t free_cpus = 0;
        bool open = false;
        Rank cursor;                // open: jobs after this may find room here
        Rank wake;                  // open: its place in the heap
        std::vector<Guest> guests;  // by rank
    };

    void set_rules(const Rules& rules);
    // These take indexes; the caller has checked the keys and ranges.
    void add_job(JobKey key, const JobDemand& spec);
    void change_job(uint32_t j, const JobDemand& spec);
    void change_value(uint32_t j, Money value) { change_value(j, value, details_[j].weight); }
    void change_value(uint32_t j, Money value, int32_t weight);
    void remove_job(uint32_t j);
    // Components with the keys from `first` on, the optional ones last, all of one value and
    // arrival and weight. change_value() of one changes that of all.
    void add_gang(JobKey first, std::span<const JobDemand> components, size_t required,
                  const GangLayout& layout = {});
    // The gang whose keys include this one; none: there is none.
    uint32_t gang_with(uint64_t key) const;
    uint64_t network_of(uint32_t m, const GangLayout& layout) const {
        return layout.near ? market::network_of(machines_[m].spec, machines_[m].key, layout) : 0;
    }
    void add_provider(ProviderKey key, const ProviderSpec& spec);
    void change_provider(uint32_t m, const ProviderSpec& spec);
    void remove_provider(uint32_t m);
    // The named resources of the whole market.
    void set_licences(const NamedOffers& all);
    const Licences& licences() const { return licences_; }

    // Takes up what time alone has changed; solve() does it too. For who sets limits by the jobs
    // that compete now.
    void begin(Nanos now);
    // After begin(), for the next solve: limits by class (sorted, of those that have one), the last
    // rank that any class takes, and what the classes cost. None: every class takes who can pay its
    // reserve.
    void set_limits(std::vector<ClassLimit> limits, const Rank& last,
                    std::vector<ClassLevel> levels);
    void lift_limits();
    const std::vector<ClassLimit>& limits() const { return limits_; }
    // The least bid per CPU-hour that the machine takes: its reserve, or by its class's limit.
    Money least_bid_at(const Machine& m) const;
    // Counts up with everything that changes what the competing jobs find before the first of them
    // is placed.
    uint64_t room_version() const { return room_version_; }

    // Repairs the allocation and leaves the changes in changes(). solve_all takes up every job,
    // whatever changed.
    void solve(Nanos now);
    void solve_all(Nanos now);
    // The same with the jobs in this order instead of by value (every competing job once), and
    // nobody moves of its own will. Until rank_by_value() new jobs rank last.
    void solve_in_order(const std::vector<uint32_t>& jobs, Nanos now);
    // `weights`: times weight; else weights say nothing.
    void rank_by_value(bool weights = false);
    // Makes the allocation exactly this: slots[j] for every job that is not pinned. The caller has
    // checked it. `cause`: why somebody gets a place, or moves.
    void adopt(const std::vector<uint32_t>& slots, Nanos now, Cause cause = Cause::adopted);
    const std::vector<Change>& changes() const { return changes_; }
    Nanos next_wake() const;

    const std::vector<Gang>& gangs() const { return gangs_; }
    size_t gang_count() const { return gang_keys_.size(); }
    // One that the gang cannot be without.
    bool required(uint32_t j) const { return jobs_[j].component && !details_[j].optional; }
    // The first of its required components that competes; none: none does.
    uint32_t leader(const Gang& g) const;
    // All required components have a place.
    bool runs(const Gang& g) const;
    // The speed of the slowest required component that has a place: how fast the gang runs.
    int32_t speed_of(const Gang& g) const;
    // The job's own speed: its machine's, or its gang's.
    int32_t speed_at_slot(uint32_t j) const;
    // Whether the gang would get a place at this bid, the others as they are.
    bool would_run(const Gang& g, Money value);

    uint32_t find_job(JobKey key) const { return job_index_.find(key.n); }
    uint32_t find_machine(ProviderKey key) const { return machine_index_.find(key.n); }
    const Chunks<Job>& jobs() const { return jobs_; }
    const JobDetails& details(uint32_t j) const { return details_[j]; }
    // The place where the job runs or is frozen, as told or decided.
    ProviderKey place_of(uint32_t j) const {
        return jobs_[j].at != none ? machines_[jobs_[j].at].key : details_[j].place;
    }
    const Chunks<Machine>& machines() const { return machines_; }
    size_t job_count() const { return jobs_.size() - free_jobs_.size(); }
    size_t machine_count() const { return machines_.size() - free_machines_.size(); }
    const JobOrder& order() {
        flush();
        return order_;
    }
    // The most CPUs and the most memory that a competing job needs; how many of them have bars.
    std::pair<int32_t, int64_t> most_needed() {
        flush();
        return order_.most_needed();
    }
    size_t competing_with_bars() const { return competing_with_bars_; }
    // Ranks say who bids more: no job has another weight than weight_plain, or it says nothing.
    bool ranks_by_value() const { return !weights_ || weighed_ == 0; }
    // One walk over ranks prices single jobs: no gang takes several places at once, and ranks say
    // who can pay a reserve.
    // Named resources are no part of them either.
    size_t named_jobs() const { return named_jobs_; }
    bool ranks_price() const { return gang_count() == 0 && ranks_by_value() && named_jobs_ == 0; }
    // As it counts in ranks.
    int32_t weight_of(uint32_t j) const { return weights_ ? details_[j].weight : weight_plain; }
    const MachineOrder& machine_order() const { return machine_order_; }
    // The speed of the fastest accepting machine; 0 if there is none.
    int32_t speed_top() const;
    // Counts up with everything that could change an allocation or a price.
    uint64_t version() const { return version_; }
    bool plain() const {
        return rules().horizon.ns == 0 && rules().min_stay.ns == 0 && rules().moves_max == 0;
    }

    // As `eligible`, of a machine in the order.
    bool suits(const MachineOrder::Entry& e, uint32_t j) const {
        return reserve_of(e.cls) <= jobs_[j].value &&
               (!jobs_[j].bars || !barred(ProviderKey{e.key}, j));
    }
    // Could run there if the machine were empty of all but those that cannot be displaced (reserve,
    // bars, acceptance).
    bool eligible(const Machine& m, uint32_t j) const {
        const Job& job = jobs_[j];
        return m.spec.accepting && m.spec.reserve <= job.value && (!job.bars || !barred(m.key, j));
    }
    bool barred(ProviderKey provider, uint32_t j) const;
    int64_t bytes_of(uint32_t j) const {
        return details_[j].move_bytes >= 0 ? details_[j].move_bytes
                                           : jobs_[j].memory_mb * 1'000'000;
    }
    // The rank of the strongest guest that must go for this need, all guests after `rank` being
    // displaceable; top: none need go (fits) when free room suffices; the second is false if it
    // cannot fit.
    std::pair<Rank, bool> displaced(const Machine& m, int32_t cpus, int64_t memory_mb,
                                    const Rank& rank) const;
    // The same for all that the job needs of the machine.
    std::pair<Rank, bool> displaced(const Machine& m, uint32_t j, const Rank& rank) const {
        return jobs_[j].named ? displaced_named(m, j, rank)
                              : displaced(m, jobs_[j].cpus, jobs_[j].memory_mb, rank);
    }
    // The job must bid so much at least there: the machine's reserve, and those of the named
    // resources that it needs, for each of its CPUs.
    Money reserve_at(const Machine& m, uint32_t j) const;
    // The machine, and the market, have as much at all as the job needs of named resources.
    bool has_named(const Machine& m, uint32_t j) const;
    // It takes these named resources of a machine on which it is a guest, and these of the market.
    const NamedAmounts& takes_named(uint32_t j) const;
    const NamedAmounts& takes_licences(uint32_t j) const;

  private:
    struct Due {
        Rank rank;
        uint32_t index;
        bool operator>(const Due& o) const {
            return rank != o.rank ? rank > o.rank : index > o.index;
        }
    };
    using Heap = std::priority_queue<Due, std::vector<Due>, std::greater<>>;
    struct Expiry {
        Nanos at;
        JobKey job;
    };

    // allocator.cpp: the pass
    void run();
    void pass();
    void process(uint32_t j);
    MachineOrder::Place choose(uint32_t j, const MachineOrder::Place& better, size_t start);
    void settle();
    uint32_t home_of(uint32_t j) const;
    void take_back(uint32_t d);
    void swap_places(uint32_t x, uint32_t y);
    uint32_t next_candidate(Machine& m);
    void seat(uint32_t j, uint32_t m, MachineOrder::Place place = {});
    void unseat(uint32_t j);
    void evict(uint32_t j, Cause cause, uint32_t by);
    void refresh(uint32_t m, MachineOrder::Place place = {});

    // allocator_named.cpp: named resources
    std::pair<Rank, bool> displaced_named(const Machine& m, uint32_t j, const Rank& rank) const;
    NamedRoom named_room(const Machine& m, uint32_t j) const;
    bool named_free(const Machine& m, uint32_t j) const { return named_room(m, j).holds(); }
    uint32_t holder_in_the_way(const Machine& m, uint32_t j) const;
    bool holds_too_much(const Machine& m, uint32_t j) const;
    uint32_t named_beyond(const Machine& m) const;
    void make_named_room(uint32_t j, uint32_t m);
    void hold_licences(uint32_t j, bool holds);
    void want_licences(uint32_t j, bool wants);
    bool has_licences(uint32_t j) const {
        return !jobs_[j].named || licences_.left(takes_licences(j), jobs_[j].rank);
    }
    // All that it needs is free there.
    bool is_free(const MachineOrder::Entry& e, uint32_t j) const {
        const Job& job = jobs_[j];
        return e.free_cpus >= job.cpus && e.free_mb >= job.memory_mb &&
               (!job.named || named_free(machines_[e.machine], j));
    }
    void open(uint32_t m, const Rank& cursor);
    void set_bound(uint32_t j, ClassKey bound);
    void look_from(uint32_t j, const Machine& m);
    // The job as its moves cost (move_costs.hpp).
    MovedJob moved(uint32_t j) const {
        const JobDetails& d = details_[j];
        return {jobs_[j].value, jobs_[j].cpus, bytes_of(j), d.dirty_bytes_per_s,
                jobs_[j].files ? &d.files->traffic : nullptr};
    }
    ClassKey bound_at(uint32_t j, const Machine& m) const {
        if (assigned_) return 0;
        if (rules().horizon.ns == 0) return m.cls;
        return costs_.bound(moved(j), {m.key, m.spec.speed, m.cls}, speed_top());
    }
    ClassKey home_bound_at(uint32_t j, const Machine& m) const {
        return costs_.home_bound(moved(j), {m.key, m.spec.speed, m.cls}, speed_top());
    }
    __int128 lost_by_move(uint32_t j, const Machine& from) const {
        return costs_.of_move(moved(j), from.spec.speed, speed_top());
    }
    const Rules& rules() const { return costs_.rules(); }
    void touch(uint32_t j);

    // allocator_gangs.cpp: jobs of several components
    struct GangTurn;
    using Room = std::pair<int64_t, int64_t>;  // CPUs, memory
    Rank guest_rank(uint32_t j) const;
    Rank rank_before(const Gang& g) const { return {g.rank.first, g.rank.second, g.rank.key - 1}; }
    Rank last_required(const Gang& g) const;
    // The place of the job decides where its siblings may be.
    bool lies_apart(uint32_t j) const { return required(j) && gang_of(j).layout != GangLayout{}; }
    bool follows(uint32_t j) const { return required(j) && leader(gang_of(j)) != j; }
    Gang& gang_of(uint32_t j) { return gangs_[details_[j].gang]; }
    const Gang& gang_of(uint32_t j) const { return gangs_[details_[j].gang]; }
    void leave_gang(uint32_t j);
    void reconsider_near();
    void change_gang_value(Gang& g, Money value, int32_t weight);
    Room room_at(const Machine& m, const Rank& rank) const;
    void process_gang(Gang& g);
    GangTurn turn_of(const Gang& g);
    bool stay_jointly(const Gang& g, GangTurn& turn) const;
    void count_siblings(const Gang& g, GangTurn& turn) const;
    bool pack(GangTurn& turn, NetworkPacking& packing, Money value, const Rank& before,
              ClassKey below, bool free_only);
    bool gang_barred(const GangTurn& turn, ProviderKey provider) const;
    void settle_gang(Gang& g, GangTurn& turn, NetworkPacking& packing, int32_t speed);
    std::vector<uint32_t> places_beside(const Gang& g, GangTurn& movers, Money value,
                                        ClassKey below);
    void seat_alike(uint32_t j, const GangTurn& turn, const Gang& g, ClassKey below);
    void release_gang(const Gang& g, const GangTurn& turn);
    ClassKey gang_bound(const GangTurn& turn) const;
    void reconsider_unlike(const Machine& m, const Rank& cursor);
    bool unlike_want(const Machine& m, const Rank& after, const Rank& before);
    bool without_gang(uint32_t j);

    // allocator_room.cpp: moves of others that make room for a gang
    struct RoomSearch;
    void make_room();
    bool fits_in_sum(const Gang& g, const GangTurn& turn);
    void note_waiting(const Gang& g, bool waits);
    void carry_out(Gang& g, const RoomSearch& found);

    // jobs whose files have a place
    bool minds_files(uint32_t j) const {
        return jobs_[j].files && rules().horizon.ns > 0 && !assigned_;
    }
    bool is_home(uint32_t j, const Machine& m) const {
        return details_[j].files->traffic.home == m.key;
    }
    bool gains_with_files(uint32_t j, const Machine& m) const;
    MachineOrder::Place better_home(uint32_t j, const MachineOrder::Place& better, ClassKey below);
    uint32_t next_native(const Machine& m) const;

    // allocator_limits.cpp: who may enter a class
    bool admits(ClassKey cls, const Rank& rank) const;
    // The room is free, or the job may displace who is in it. (Here, as each search asks it of many
    // machines.)
    bool has_place(const MachineOrder::Entry& e, uint32_t j) const {
        return suits(e, j) &&
               (is_free(e, j) || displaced(machines_[e.machine], j, jobs_[j].rank).second);
    }
    MachineOrder::Place search_limited(uint32_t j, ClassKey below, size_t start);
    MachineOrder::Place search_free(uint32_t j);
    bool worth_reserve(const Machine& m, uint32_t j) const;
    bool gains_by_leaving(uint32_t j, const Machine& m) const;
    void let_in(ClassKey cls, const Rank& after, const Rank& last);
    void let_go(ClassKey cls, const Rank& last);

    // allocator_events.cpp: what happened
    Rank rank_of(uint32_t j) const;
    void weigh(uint32_t j, int32_t weight);
    void fill(uint32_t j, JobKey key, const JobDemand& spec);
    void attach(uint32_t j);
    void detach(uint32_t j);
    bool orphan(uint32_t j) const;
    void enter_order(uint32_t j);
    void leave_order(uint32_t j);
    void flush();
    void trim(uint32_t m);
    void hold(uint32_t j);
    void unhold(uint32_t j);
    void expel(uint32_t m, bool pinned_too, Cause cause);

    // allocator_changes.cpp: what came of it
    struct Turn;
    bool change_of(uint32_t j, Change& c);
    Turn turn_of(uint32_t change) const;
    void sort_changes();
    void emit(Nanos now);
    void hold_placed(Nanos now);
    void rebound_all();
    void rerank(const std::vector<uint32_t>& jobs);
    JobOrder::Entry entry_of(uint32_t j) const;

    uint32_t new_job();
    void enter(uint32_t j, JobKey key, const JobDemand& spec);

    std::vector<Gang> gangs_;
    std::vector<uint32_t> free_gangs_;
    std::map<uint64_t, uint32_t> gang_keys_;  // by the first key
    // All that have no place are among them, also those whose turn a pass has not come to.
    std::set<std::pair<Rank, uint32_t>> waiting_gangs_;
    Chunks<Job> jobs_;
    Chunks<JobDetails> details_;
    Chunks<Machine> machines_;
    std::vector<uint32_t> free_jobs_, free_machines_;
    KeyMap job_index_, machine_index_;
    JobOrder order_;
    // The competing jobs that have their files at a provider, by its key; few have any.
    std::map<uint64_t, std::set<std::pair<Rank, uint32_t>>> natives_;
    size_t competing_with_bars_ = 0;
    Licences licences_;
    size_t named_jobs_ = 0;  // that ask for named resources
    bool weights_ = true;
    size_t weighed_ = 0;  // jobs of another weight than weight_plain
    Money dearest_;       // in a pass with such jobs: the highest reserve
    MachineOrder machine_order_;
    std::vector<uint32_t> staged_;
    MoveCosts costs_;        // and the rules
    bool assigned_ = false;  // ranks are places in a turn (solve_in_order)
    int64_t last_turn_ = 0;

    std::vector<uint32_t> dirty_, touched_;
    bool touched_carried_ = false;   // somebody that ran or was frozen is among the touched
    std::vector<uint32_t> orphans_;  // running or pinned on a provider that is not known
    Heap queue_, open_;
    bool all_dirty_ = false;
    bool in_pass_ = false;
    // In a pass the room for jobs of a rank only shrinks: where a need was once too much, no later
    // need of as many CPUs and at least its memory has to look again (no machine at a position
    // before `from` has that). By CPUs (31 at most) and quarter octaves of memory.
    struct TooSmall {
        int64_t memory_mb = 0;
        size_t from = 0;
    };
    static constexpr size_t octaves = 4 * 42;
    std::vector<TooSmall> too_small_;
    size_t position_to_start(int32_t cpus, int64_t memory_mb) const;
    void start_later(int32_t cpus, int64_t memory_mb, size_t position);
    std::vector<ClassLimit> limits_;
    std::vector<ClassLevel> levels_;
    Rank last_admitted_{INT64_MAX, INT64_MAX, UINT64_MAX};
    uint64_t room_version_ = 0;
    bool suppressed_ = false;  // the cap kept somebody from moving
    int32_t tokens_ = 0;
    ClassKey fastest_ = class_none;  // at the last solve
    std::deque<Nanos> moves_;        // times of the moves in the window, oldest first
    std::deque<Expiry> stays_;
    Nanos now_{INT64_MIN};
    uint64_t version_ = 0;
    std::vector<Change> changes_;
    std::vector<uint32_t> changed_;  // the job of each change
};

}  // namespace souk::market
