// SPDX-License-Identifier: GPL-2.0-or-later
// GangReturn: one component is lost, and its whole gang goes back to its checkpoint, or begins anew
// (docs/gangs.md). The lost one goes back at once. In the same write the others are to go back
// (`going_back`): each is ended, and goes back when it is gone for certain. No component runs again
// before all have gone back: they thaw as one. A single job goes back here likewise. Part of Home.
#pragma once

#include "agentd/core/end_confirmations.hpp"
#include "agentd/core/gang_checkpoints.hpp"
#include "agentd/core/gang_freeze.hpp"
#include "agentd/core/gang_start.hpp"

namespace souk {

class GangReturn {
  public:
    // The machines of a job that going back reaches into.
    struct Machines {
        HomeRuns& runs;
        HomeMoves& moves;
        HomeExpels& expels;
        HomeLeases& leases;
        HomeCheckpoints& checkpoints;
        HomeEvacuations& evacuations;
    };
    // patience: the time in which the nodes of the others must say how those are.
    GangReturn(Nanos patience, HomeRecords& records, const HomeGangs& gangs,
               EndConfirmations& doubts, GangCheckpoints& sets, GangFreeze& cuts, GangStart& start,
               Machines machines, JobSteps& steps)
        : patience_(patience),
          records_(records),
          gangs_(gangs),
          doubts_(doubts),
          sets_(sets),
          cuts_(cuts),
          start_(start),
          with_(machines),
          steps_(steps) {}

    static Cause all_go_back();
    // The job has a checkpoint, or may begin anew; and so may its gang.
    bool may_go_back(const HomeJob& job) const;
    // The job runs as it was before a move, which is older than what the others may have heard of
    // it: all go back.
    void back_with_others(HomeJob& job, const HomeTurn& turn);
    // The job is to go back with its gang. An operation that is under way ends first, and its end
    // comes back here. False: there is nothing to go back from.
    bool go_on(HomeJob& job, const HomeTurn& turn);
    // The running copy of the job is gone for certain.
    void is_back(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // The node still says that a job runs or stands that is to go back: it is told again to end it.
    // True: that is all the event means.
    bool is_ended_again(const HomeJob& job, const GuestEvent& event, const HomeTurn& turn);

    // A component that runs has failed by itself. True: whether that end counts is known later.
    bool is_doubtful(HomeJob& job, const home::Finished& end, const HomeTurn& turn);
    // To be called when EndConfirmations is due for the job.
    void doubt_due(HomeJob& job, const HomeTurn& turn);
    // The node of this component has said how it is.
    void heard(const HomeJob& other, const HomeTurn& turn);

  private:
    void others_go_back(HomeJob& job, const HomeTurn& turn);
    void begin_going_back(HomeJob& job, const HomeTurn& turn);

    Nanos patience_;
    HomeRecords& records_;
    const HomeGangs& gangs_;
    EndConfirmations& doubts_;
    GangCheckpoints& sets_;
    GangFreeze& cuts_;
    GangStart& start_;
    Machines with_;
    JobSteps& steps_;
};

}  // namespace souk
