// SPDX-License-Identifier: GPL-2.0-or-later
// GangStart: the components of a gang are started, cancelled and ended as one (docs/gangs.md). Each
// is started on its node and held before its program. When all are held, one durable write releases
// all of them. If one cannot start, the start of all others is taken back. Part of Home. Its data
// follow from the records and from what guests say again, so nothing of it is on disk.
#pragma once

#include <map>

#include "agentd/core/home_gangs.hpp"
#include "agentd/core/home_records.hpp"
#include "agentd/core/job_steps.hpp"

namespace souk {

class GangStart {
  public:
    // patience: the time in which all components must be held.
    GangStart(HomeRecords& records, const HomeGangs& gangs, JobSteps& steps, Nanos patience)
        : records_(records), gangs_(gangs), steps_(steps), patience_(patience) {}

    // The component was told to start: by a deadline all must be held.
    void started(const HomeJob& job, Nanos now);
    // The component is on its way to be held no longer.
    void step_ended(const HomeJob& job) { waits_.erase(job.id.seq); }
    // The job is the copy that its node holds.
    bool is_held(const HomeJob& job) const;
    // The node holds the component: if all others are held too, all are released.
    void release_if_all_held(HomeJob& job, const HomeTurn& turn);
    // The component waits to be started: no other is held for its sake.
    void take_others_back(HomeJob& job, const HomeTurn& turn);

    // Cancels all components.
    void cancel_all(HomeJob& job, const HomeTurn& turn);
    // The others end as this one did. If it has ended well, the market hears how many are left.
    void end_others(const HomeJob& ended, const HomeTurn& turn);

    // The daemon was started again. A start that was under way goes on. A gang that lacks
    // components gets no more of them, and a component ends if another's end means so.
    void restarted(HomeJob& job, const HomeTurn& turn);
    // never(): the component is not held, and need not be soon.
    Nanos due(const HomeJob& job) const;
    // To be called when that is due: not all were held in time.
    void overdue(HomeJob& job, const HomeTurn& turn);
    void forget(uint64_t seq) { waits_.erase(seq); }

  private:
    struct Wait {
        Epoch held;  // the copy that its node holds; 0: none
        Nanos due = Nanos::never();
    };
    bool all_are_held(const HomeJob& job);

    HomeRecords& records_;
    const HomeGangs& gangs_;
    JobSteps& steps_;
    Nanos patience_;
    std::map<uint64_t, Wait> waits_;
};

}  // namespace souk
