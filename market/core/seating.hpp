// SPDX-License-Identifier: GPL-2.0-or-later
// Seating: the places of jobs, and what follows when one changes. It owns the Occupancy, how jobs
// rank, what moves cost and the agenda of what a solver has still to look at. Jobs, gangs and
// providers come, change and go here; a job gets a place (at the cost of the weakest guests there),
// loses it, or is held in it. Each such step puts on the agenda whoever may have a use for it, and
// notes whose place has changed and why. It chooses no place: Turns and GangTurns do.
// Owned by the Allocator. Indexes and ranges are checked by the caller. Pure.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "market/core/agenda.hpp"
#include "market/core/job_ranks.hpp"
#include "market/core/move_costs.hpp"
#include "market/core/occupancy.hpp"

namespace souk::market {

class Seating {
  public:
    static constexpr uint32_t none = UINT32_MAX;
    using Job = Occupancy::Job;
    using JobDetails = Occupancy::JobDetails;
    using Gang = Occupancy::Gang;
    using Guest = Occupancy::Guest;
    using Machine = Occupancy::Machine;

    const Occupancy& occupancy() const { return all_; }
    const JobRanks& ranks() const { return ranks_; }
    const Rules& rules() const { return costs_.rules(); }
    const MoveCosts& costs() const { return costs_; }
    // Moves cost nothing, and nobody is held back from one.
    bool plain() const {
        return rules().horizon.ns == 0 && rules().min_stay.ns == 0 && rules().moves_max == 0;
    }
    Agenda& agenda() { return agenda_; }
    MachineOrder& machine_order() { return all_.machine_order(); }
    // Jobs that have just come are in the order, too.
    void flush() { ranks_.flush(all_); }
    JobOrder& order() {
        flush();
        return ranks_.order();
    }
    // Counts up with everything that could change an allocation or a price.
    uint64_t version() const { return version_; }
    void note_change() { ++version_; }

    void set_rules(const Rules& rules);
    // Takes up what time alone has changed: stays that are over; gains are shares of the fastest
    // speed.
    void begin(Nanos now);
    // The end of the first stay that somebody is held by.
    Nanos next_wake() const;

    // Events.
    void add_job(JobKey key, const JobDemand& spec) { enter(all_.new_job(), key, spec); }
    void change_job(uint32_t j, const JobDemand& spec);
    void change_value(uint32_t j, Money value, int32_t weight);
    void remove_job(uint32_t j);
    void add_gang(JobKey first, std::span<const JobDemand> components, size_t required,
                  const GangLayout& layout);
    void add_provider(ProviderKey key, const ProviderSpec& spec);
    void change_provider(uint32_t m, const ProviderSpec& spec);
    void remove_provider(uint32_t m);
    void set_licences(const NamedOffers& all);
    // JobRanks::assign and rank_by_value.
    void rank_in_order(const std::vector<uint32_t>& jobs);
    void rank_by_value(bool weights);

    // Places. seat: `place`: where the machine order has the machine, if that is known. evict: of
    // one that may be displaced, which has a turn again. `by`: who displaced it, or none.
    void seat(uint32_t j, uint32_t m, MachineOrder::Place place = {});
    void unseat(uint32_t j);
    void evict(uint32_t j, Cause cause, uint32_t by);
    // The job stays where it is until this moment, whatever others bid; it competes again.
    void hold(uint32_t j, Nanos until);
    void unhold(uint32_t j);
    // Jobs after `cursor` may find more room on this machine than they knew of.
    void open(uint32_t m, const Rank& cursor);
    // It would leave for any machine of a class before this.
    void set_bound(uint32_t j, ClassKey bound);
    void note_waiting(const Gang& g, bool waits) { all_.gangs().note_waiting(g, waits); }
    void note_alike(const Gang& g, bool alike) { all_.gangs().note_alike(g, alike); }
    void note_turn(const Gang& g, bool had_it) { all_.gangs().note_turn(g, had_it); }

    // Why a job's place changes: moves of its own will, a cause, and who took the place.
    void set_voluntary(uint32_t j, bool voluntary) { all_.job(j).voluntary = voluntary; }
    void explain(uint32_t j, Cause cause) { all_.job(j).cause = cause; }
    void explain(uint32_t j, Cause cause, JobKey by, Money by_value);

    // The jobs whose place may have changed since the last solve, and whether any
    // of them ran or was frozen then.
    const std::vector<uint32_t>& touched() const { return touched_; }
    bool carried() const { return carried_; }
    void touch(uint32_t j);
    // Says what became of a job, which makes its new state. False: nothing did.
    bool take_change(uint32_t j, Change& c);
    // All changes have been taken; `any`: there were some.
    void finish(bool any);
    void forget_touched();

    // The cost of a move. The job as its moves cost (move_costs.hpp):
    MovedJob moved(uint32_t j) const {
        const JobDetails& d = all_.details(j);
        const Job& job = all_.jobs()[j];
        return {job.value, job.cpus, all_.bytes_of(j), d.dirty_bytes_per_s,
                job.files ? &d.files->traffic : nullptr};
    }
    // Its files have a place that counts.
    bool minds_files(uint32_t j) const {
        return all_.jobs()[j].files && rules().horizon.ns > 0 && !ranks_.assigned();
    }
    bool is_home(uint32_t j, const Machine& m) const {
        return all_.details(j).files->traffic.home == m.key;
    }
    // On this machine it would leave for classes before the first of these, and for its home if
    // that is of a class before the second.
    ClassKey bound_at(uint32_t j, const Machine& m) const {
        if (ranks_.assigned()) return 0;
        if (rules().horizon.ns == 0) return m.cls;
        return costs_.bound(moved(j), {m.key, m.spec.speed, m.cls}, all_.speed_top());
    }
    ClassKey home_bound_at(uint32_t j, const Machine& m) const {
        return costs_.home_bound(moved(j), {m.key, m.spec.speed, m.cls}, all_.speed_top());
    }
    MoveCosts::Wide lost_by_move(uint32_t j, const Machine& from) const {
        return costs_.of_move(moved(j), from.spec.speed, all_.speed_top());
    }

  private:
    struct Expiry {
        Nanos at;
        JobKey job;
    };

    void enter(uint32_t j, JobKey key, const JobDemand& spec);
    void describe(uint32_t j, JobKey key, const JobDemand& spec);
    void compete(uint32_t j);
    void attach(uint32_t j);
    void detach(uint32_t j);
    void look_from(uint32_t j, const Machine& m);
    void look_from_all();
    void make_named_room(uint32_t j, uint32_t m);
    void wake_for_licences(uint32_t j, const Rank& rank);
    void trim(uint32_t m);
    void trim_licences();
    void expel(uint32_t m, bool pinned_too, Cause cause);
    void leave_gang(uint32_t j);
    void change_gang_value(uint32_t gang, Money value, int32_t weight);
    void reconsider_near();
    void reconsider_unlike(const Machine& m, const Rank& cursor);
    void reconsider_guests(uint32_t m, bool speed_changed, const std::vector<Guest>& guests);

    Occupancy all_;
    JobRanks ranks_;
    MoveCosts costs_;  // and the rules
    Agenda agenda_;
    std::vector<uint32_t> touched_;
    bool carried_ = false;
    std::vector<uint32_t> orphans_;  // running or pinned on a provider that is not known
    std::deque<Expiry> stays_;
    Nanos now_{INT64_MIN};
    ClassKey fastest_ = class_none;  // at the last solve
    uint64_t version_ = 0;
};

}  // namespace souk::market
