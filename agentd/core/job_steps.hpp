// SPDX-License-Identifier: GPL-2.0-or-later
// JobSteps: what a machine of a gang asks for when its step means a step of one component.
// HomeSteps carries it out; the gang's machines know no more of it than this.
#pragma once

#include "agentd/core/home_turn.hpp"

namespace souk {

class JobSteps {
  public:
    virtual ~JobSteps() = default;
    // The job of that number has changed: the index of the records is made true again.
    virtual void reindex(uint64_t seq) = 0;
    // Carries out what a step of a machine means for the job as a whole.
    virtual void conclude(HomeJob& job, const HomeNext& next, const HomeTurn& turn) = 0;
    // A step is over: the market hears how the job is, then comes the operation that waited for it.
    virtual void steady(HomeJob& job, const HomeTurn& turn) = 0;
    virtual void finish(HomeJob& job, int32_t wait_status, const Trouble& why,
                        const HomeTurn& turn) = 0;
    virtual void cancel(HomeJob& job, const HomeTurn& turn) = 0;
    // Ends a cancelled job, unless a step is under way that ends it.
    virtual void end_by_cancel(HomeJob& job, const HomeTurn& turn) = 0;
    virtual void became_standing(HomeJob& job, const Trouble& cannot_move,
                                 const HomeTurn& turn) = 0;
};

// Keeps the index true of one job: it is made where a step begins, and looks at the job where the
// step ends.
class Reindexed {
  public:
    Reindexed(JobSteps& steps, uint64_t seq) : steps_(steps), seq_(seq) {}
    ~Reindexed() { steps_.reindex(seq_); }
    Reindexed(const Reindexed&) = delete;
    Reindexed& operator=(const Reindexed&) = delete;

  private:
    JobSteps& steps_;
    uint64_t seq_;
};

}  // namespace souk
