// SPDX-License-Identifier: GPL-2.0-or-later
// Occupancy: who has which room. It knows the jobs, the machines and the gangs of a market, each
// under an index that does not change while it is known; who has a place on which machine, and what
// is free there. It may be asked whether a job may be on a machine, whether it has the room, and
// who would have to go. Named resources (named_resources.hpp) of a machine are one more kind of
// room there; those of the market are Licences.
//
// It changes by single steps (put, take_off, a job or a machine that comes, changes or goes), after
// each of which the order of the machines and the licences are true again. What follows from a step
// is decided by Seating, which owns it. Pure.
#pragma once

#include <utility>
#include <vector>

#include "kernel/base/rare.hpp"
#include "market/core/chunks.hpp"
#include "market/core/gangs.hpp"
#include "market/core/key_map.hpp"
#include "market/core/licences.hpp"
#include "market/core/machine_order.hpp"
#include "market/core/network_packing.hpp"
#include "market/core/rank.hpp"
#include "market/core/types.hpp"

namespace souk::market {

class Occupancy {
  public:
    static constexpr uint32_t none = UINT32_MAX;
    using Gang = Gangs::Gang;

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
        Rare<JobAhead> ahead;
        ProviderKey only;  // of a component: it may be nowhere but there
        JobKey by;         // who displaced it since the last solve
        Money by_value;    // as it counts in ranks
        int32_t weight = weight_plain;
        uint32_t user = 0;
        uint32_t gang = none;   // of gangs()
        bool optional = false;  // of the gang
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
        std::vector<Guest> guests;  // by rank

        bool crowded() const { return free_cpus < 0 || free_mb < 0; }
    };
    using Room = std::pair<int64_t, int64_t>;  // CPUs, memory

    // Jobs and machines.
    uint32_t find_job(JobKey key) const { return job_index_.find(key.n); }
    uint32_t find_machine(ProviderKey key) const { return machine_index_.find(key.n); }
    const Chunks<Job>& jobs() const { return jobs_; }
    const Chunks<Machine>& machines() const { return machines_; }
    const JobDetails& details(uint32_t j) const { return details_[j]; }
    size_t job_count() const { return jobs_.size() - free_jobs_.size(); }
    size_t machine_count() const { return machines_.size() - free_machines_.size(); }
    size_t named_jobs() const { return named_jobs_; }  // that ask for named resources
    const Licences& licences() const { return licences_; }
    // The place where the job runs or is frozen, as told or decided.
    ProviderKey place_of(uint32_t j) const {
        return jobs_[j].at != none ? machines_[jobs_[j].at].key : details_[j].place;
    }
    // The machine where the data of the job lie that a move must carry: the job runs or its
    // checkpoint is there. none: neither, or it is not known.
    uint32_t data_of(uint32_t j) const {
        return jobs_[j].state == JobState::frozen ? find_machine(details_[j].place) : jobs_[j].at;
    }
    int64_t bytes_of(uint32_t j) const {
        return details_[j].move_bytes >= 0 ? details_[j].move_bytes
                                           : jobs_[j].memory_mb * 1'000'000;
    }
    // Told to be on a provider that nobody has told of (any more).
    bool orphan(uint32_t j) const;
    // The speed of the fastest accepting machine; 0 if there is none.
    int32_t speed_top() const;
    uint64_t network_of(uint32_t m, const GangLayout& layout) const {
        return layout.near ? market::network_of(machines_[m].spec, machines_[m].key, layout) : 0;
    }
    // Counts up with everything that changes what the competing jobs find before the first of them
    // is placed.
    uint64_t version() const { return version_; }

    // Gangs, by where their components are.
    const Gangs& gangs() const { return gangs_; }
    // One that the gang cannot be without.
    bool required(uint32_t j) const { return jobs_[j].component && !details_[j].optional; }
    const Gang& gang_of(uint32_t j) const { return gangs_[details_[j].gang]; }
    // The first of its required components that competes; none: none does.
    uint32_t leader(const Gang& g) const;
    // All required components have a place.
    bool runs(const Gang& g) const;
    // The speed of the slowest required component that has a place: how fast the gang runs.
    int32_t speed_of(const Gang& g) const;
    // The job's own speed: its machine's, or its gang's.
    int32_t speed_at_slot(uint32_t j) const;
    // As it counts on its machine.
    Rank guest_rank(uint32_t j) const;
    Rank last_required(const Gang& g) const;
    static Rank rank_before(const Gang& g) { return {g.rank.first, g.rank.second, g.rank.key - 1}; }
    // The place of the job decides where its siblings may be.
    bool lies_apart(uint32_t j) const { return required(j) && gang_of(j).layout != GangLayout{}; }
    // It has no turn of its own: its gang's leader has it.
    bool follows(uint32_t j) const { return required(j) && leader(gang_of(j)) != j; }

    // Whether a job may be on a machine. eligible: it could run there if the machine were empty of
    // all but those that cannot be displaced (reserve, bars, acceptance); suits: the same of a
    // machine in the order.
    bool suits(const MachineOrder::Entry& e, uint32_t j) const {
        return reserve_of(e.cls) <= jobs_[j].value &&
               (!jobs_[j].bars || !barred(ProviderKey{e.key}, j));
    }
    bool eligible(const Machine& m, uint32_t j) const {
        const Job& job = jobs_[j];
        return m.spec.accepting && m.spec.reserve <= job.value && (!job.bars || !barred(m.key, j));
    }
    bool barred(ProviderKey provider, uint32_t j) const;
    // The job must bid so much at least there: the machine's reserve, and those of the named
    // resources that it needs, for each of its CPUs.
    Money reserve_at(const Machine& m, uint32_t j) const;
    // The machine, and the market, have as much at all as the job needs of named resources.
    bool has_named(const Machine& m, uint32_t j) const;
    // It takes these named resources of a machine on which it is a guest, and these of the market.
    const NamedAmounts& takes_named(uint32_t j) const;
    const NamedAmounts& takes_licences(uint32_t j) const;

    // Whether it has the room. All that the job needs is free there:
    bool is_free(const MachineOrder::Entry& e, uint32_t j) const {
        const Job& job = jobs_[j];
        return e.free_cpus >= job.cpus && e.free_mb >= job.memory_mb &&
               (!job.named || named_room(machines_[e.machine], j).holds());
    }
    // The licences that it needs are left by those that rank before it.
    bool has_licences(uint32_t j) const {
        return !jobs_[j].named || licences_.left(takes_licences(j), jobs_[j].rank);
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
    // The room is free, or the job may displace who is in it. (Here, as each search asks it of many
    // machines.)
    bool has_place(const MachineOrder::Entry& e, uint32_t j) const {
        return suits(e, j) &&
               (is_free(e, j) || displaced(machines_[e.machine], j, jobs_[j].rank).second);
    }
    // The room that guests of this rank and before it leave, of what a job may displace.
    static Room room_at(const Machine& m, const Rank& rank);
    // Guests that would have to go. The weakest one of those that rank after the job and hold what
    // it lacks of named resources; none: there is none.
    uint32_t holder_in_the_way(const Machine& m, uint32_t j) const;
    // The same of licences, on any machine.
    uint32_t licence_in_the_way(uint32_t j) const {
        return licences_.in_the_way(takes_licences(j), guest_rank(j));
    }
    // The guest has something of which the machine has given more than it has.
    bool holds_too_much(const Machine& m, uint32_t j) const;
    // The weakest such guest that may go; none: there is none.
    uint32_t named_beyond(const Machine& m) const;

    // The machines in the order in which jobs want them. A search tightens what it knows of them.
    MachineOrder& machine_order() { return machine_order_; }
    const MachineOrder& machine_order() const { return machine_order_; }

    // The steps. put: on this machine, where the order has it at `place`, if that is known.
    // take_off: returns the machine that it was on.
    void put(uint32_t j, uint32_t m, MachineOrder::Place place = {});
    uint32_t take_off(uint32_t j);
    Job& job(uint32_t j) { return jobs_[j]; }
    JobDetails& details(uint32_t j) { return details_[j]; }
    Gangs& gangs() { return gangs_; }
    uint32_t new_job();
    // All that a demand says, but for what its rank counts.
    void describe(uint32_t j, JobKey key, const JobDemand& spec);
    void forget_job(uint32_t j);
    // Those that compete are listed with the licences that they ask for.
    void want_licences(uint32_t j, bool wants);
    void set_licences(const NamedOffers& all);
    uint32_t add_machine(ProviderKey key, const ProviderSpec& spec);
    void change_machine(uint32_t m, const ProviderSpec& spec);
    void forget_machine(uint32_t m);
    // The ranks of jobs are new: guests and licences are listed in them.
    void rerank();

  private:
    std::pair<Rank, bool> displaced_named(const Machine& m, uint32_t j, const Rank& rank) const;
    NamedRoom named_room(const Machine& m, uint32_t j) const;
    void hold_licences(uint32_t j, bool holds);
    void refresh(uint32_t m, MachineOrder::Place place = {});
    void offer(uint32_t m);

    Chunks<Job> jobs_;
    Chunks<JobDetails> details_;
    Chunks<Machine> machines_;
    std::vector<uint32_t> free_jobs_, free_machines_;  // indexes
    KeyMap job_index_, machine_index_;
    Gangs gangs_;
    MachineOrder machine_order_;
    Licences licences_;
    size_t named_jobs_ = 0;
    uint64_t version_ = 0;
};

}  // namespace souk::market
