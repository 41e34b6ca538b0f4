// SPDX-License-Identifier: GPL-2.0-or-later
// GangFreeze: a gang is frozen at one cut, and thaws as one (docs/gangs.md). Part of Home.
//
//   asked    each component that runs is one of the cut; its node has CRIU ready beside it
//   dumped   all are ready: all are told to dump at once; a component that is dumped stands, with
//            its network shut
//   decided  all stand: one durable write (CutStep::decided in the record of each), then all are
//            frozen; before it, any failure lets all go on where they were
//
// No component goes on before all are dumped, so nothing that one does after its dump reaches
// another before its own. The data follow from what guests say again, but for the components of a
// cut: a restart of the home gives up a cut that is not decided. Pure.
//
// A component that thaws is restored and held until all are; then one durable write lets all run. A
// component that stands in place waits likewise to go on there.
#pragma once

#include <map>

#include "agentd/core/cut_timing.hpp"
#include "agentd/core/end_confirmations.hpp"
#include "agentd/core/gang_checkpoints.hpp"
#include "agentd/core/home_expels.hpp"
#include "agentd/core/home_gangs.hpp"
#include "agentd/core/home_leases.hpp"
#include "agentd/core/home_moves.hpp"
#include "agentd/core/home_orders.hpp"
#include "agentd/core/home_records.hpp"
#include "agentd/core/home_runs.hpp"
#include "agentd/core/home_wakes.hpp"
#include "agentd/core/job_steps.hpp"

namespace souk {

class GangFreeze {
  public:
    struct Limits {
        Nanos step_patience;      // to have all ready, or held
        Nanos transfer_patience;  // to dump all
    };
    // The machines of a job that a cut reaches into.
    struct Machines {
        HomeRuns& runs;
        HomeMoves& moves;
        HomeOrders& orders;
        HomeExpels& expels;
        HomeLeases& leases;
        HomeCheckpoints& checkpoints;
        const HomeWakes& wakes;
    };
    GangFreeze(Limits limits, HomeRecords& records, const HomeGangs& gangs,
               const EndConfirmations& doubts, GangCheckpoints& sets, Machines machines,
               JobSteps& steps)
        : limits_(limits),
          records_(records),
          gangs_(gangs),
          doubts_(doubts),
          sets_(sets),
          with_(machines),
          steps_(steps) {}

    // Freezes the whole gang of the job. False: there is no other component to freeze it with.
    bool begin(HomeJob& job, const HomeTurn& turn);
    // The job belongs to a cut that is not decided.
    bool has(const HomeJob& job) { return member(job) != nullptr; }
    // If the job runs while its gang is being cut, it belongs to the cut from now on. True: it
    // does.
    bool join(HomeJob& job, const HomeTurn& turn);
    // The job's node tells how it is, while has().
    void hear(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    // Takes the next step if all that it waits for is there.
    void go_on(uint64_t gang, const HomeTurn& turn);
    // The job could not be frozen. All components go on, unless it is an optional one: the others
    // are frozen without that.
    void not_frozen(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // All components go on where they were. `failed`: the one that could not be frozen; null: none
    // failed.
    void give_up(const HomeJob& job, const HomeJob* failed, const Trouble& why,
                 const HomeTurn& turn);
    // The job leaves the cut, because it ended or was frozen by itself.
    void leave(const HomeJob& job);
    // How the decided cut was made by which the job is frozen, once.
    CutTiming take_timing(uint64_t seq);

    // The job stands where it is, and is to go on with the others that thaw.
    void go_on_with_others(HomeJob& job, const HomeTurn& turn);
    // True: it was to go on so.
    bool goes_on_no_more(uint64_t seq) { return go_on_.erase(seq) > 0; }
    // The job is restored and held, or is to go on in place: if that is so of all, all run.
    void thaw_if_all_held(HomeJob& job, const HomeTurn& turn);
    // The job is frozen: no other is held for its sake.
    void take_thaw_back(HomeJob& job, const HomeTurn& turn);
    // The job is held, and others are still on their way; each of them has a limit of its own.
    bool thaw_waits(const HomeJob& job) const;

    // The daemon was started again: a cut or thaw that was not decided is given up.
    static void restarted(HomeJob& job, const HomeTurn& turn);
    Nanos due(const HomeJob& job) const;
    // To be called when that is due.
    void overdue(HomeJob& job, const HomeTurn& turn);
    void forget(uint64_t seq);

  private:
    struct Member {
        Epoch number;           // of this cut, for this component
        bool ready = false;     // CRIU stands ready, or cannot: then the dump says why
        bool dumped = false;    // it stands
        bool in_place = false;  // dumped: it stands where it is, because it cannot be dumped
        Trouble cannot_move;    // that is why
        Nanos stood_at = Nanos::never();
    };
    struct Cut {
        std::map<uint64_t, Member> members;
        bool told = false;  // all were told to dump
        Nanos due;          // by then this step has ended

        bool all(bool Member::*done) const;
    };
    static GuestCommand command(const HomeJob& job, const Member& m, GuestVerb verb);
    Cut* of_gang(uint64_t gang);
    Member* member(const HomeJob& job);
    Cut take(uint64_t gang);
    void hear_running(HomeJob& job, Member& m, const GuestEvent& event, const HomeTurn& turn);
    void hear_dumping(HomeJob& job, Member& m, const GuestEvent& event, const HomeTurn& turn);
    bool misses_a_component(const Cut& cut, const HomeJob& first) const;
    void tell_to_dump(Cut& cut, const HomeTurn& turn);
    void decide(uint64_t gang, const HomeTurn& turn);
    bool all_are_held(const HomeJob& job) const;
    HomeJob* held_without_lease(const HomeJob& job, const HomeTurn& turn);

    Limits limits_;
    HomeRecords& records_;
    const HomeGangs& gangs_;
    const EndConfirmations& doubts_;
    GangCheckpoints& sets_;
    Machines with_;
    JobSteps& steps_;
    std::map<uint64_t, Cut> cuts_;          // by gang
    std::map<uint64_t, CutTiming> timing_;  // decided cuts, until each component is frozen
    std::map<uint64_t, Nanos> go_on_;       // components that go on in place: the deadline
};

}  // namespace souk
