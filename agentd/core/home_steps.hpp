// SPDX-License-Identifier: GPL-2.0-or-later
// HomeSteps: the steps of a job in which more than one machine of its Home has a part: how an order
// is carried out, what a guest's word means, and what the step of one machine means for the job as
// a whole (HomeNext). It owns the machines of gangs, whose steps come back to it as steps of single
// jobs. Part of Home.
#pragma once

#include <vector>

#include "agentd/core/end_confirmations.hpp"
#include "agentd/core/gang_checkpoints.hpp"
#include "agentd/core/gang_freeze.hpp"
#include "agentd/core/gang_return.hpp"
#include "agentd/core/gang_start.hpp"
#include "agentd/core/home_machines.hpp"
#include "agentd/core/job_steps.hpp"

namespace souk {

class HomeSteps final : public JobSteps {
  public:
    HomeSteps(HomeMachines& machines, const HomeLimits& limits);
    HomeSteps(const HomeSteps&) = delete;
    HomeSteps& operator=(const HomeSteps&) = delete;

    void reindex(uint64_t seq) override;
    void conclude(HomeJob& job, const HomeNext& next, const HomeTurn& turn) override;
    void steady(HomeJob& job, const HomeTurn& turn) override;
    void finish(HomeJob& job, int32_t wait_status, const Trouble& why,
                const HomeTurn& turn) override;
    void cancel(HomeJob& job, const HomeTurn& turn) override;
    void end_by_cancel(HomeJob& job, const HomeTurn& turn) override;
    void became_standing(HomeJob& job, const Trouble& cannot_move, const HomeTurn& turn) override;

    // Inputs about one job.
    void carry_out(HomeJob& job, const Order& order, const HomeTurn& turn);
    void hear(const NodeName& node, const GuestEvent& told, const HomeTurn& turn);
    void undelivered(HomeJob& job, const NodeName& node, const GuestCommand& command,
                     const HomeTurn& turn);
    void cancel_all(HomeJob& job, const HomeTurn& turn) { start_.cancel_all(job, turn); }
    // The node counts as lost.
    void node_lost(HomeJob& job, const NodeName& node, const Trouble& why, const HomeTurn& turn);
    // The daemon was started again.
    void restarted(HomeJob& job, const HomeTurn& turn);
    // Does all that is due for the job.
    void tick(HomeJob& job, const HomeTurn& turn);
    // The market has closed the job's account: it is a record and no more.
    void forget(uint64_t seq);

  private:
    void take(HomeJob& job, const Order& order, const HomeTurn& turn);
    static Trouble why_not_run(const HomeJob& job, const Order& order);
    // stands: the job is only stopped where it runs, where that is possible.
    void freeze(HomeJob& job, const HomeTurn& turn, bool stands = false);
    // The job is in no step now: what waited for that is done.
    void go_on_steady(HomeJob& job, std::optional<Order> pending, const HomeTurn& turn);
    void became_frozen(HomeJob& job, int64_t image_bytes, const HomeTurn& turn);
    void ended(HomeJob& job, const home::Finished& end, const HomeTurn& turn);
    void end_for(HomeJob& job, const Cause& why, const HomeTurn& turn);
    void run_again(HomeJob& job, int32_t wait_status, const Trouble& why, const HomeTurn& turn);
    void killed(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // The running copy, or the image, is gone for certain: the last checkpoint is the job, or it
    // begins anew if its user has said so.
    void go_back(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    void lease_over(HomeJob& job, const HomeTurn& turn);
    // The owner's node is lost for certain.
    void node_gone(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // Jobs that waited for this end may begin or are ended themselves; so are those that wait for
    // them, one after the other.
    void free_others(const HomeJob& ended, const HomeTurn& turn);
    void free_one(HomeJob& job, const HomeJob& gone, const HomeTurn& turn);
    void hear_owner(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    void hear_copy(HomeJob& job, const NodeName& node, const GuestEvent& event,
                   const HomeTurn& turn);
    HomeRuns::Beside beside() { return {m_.checkpoints, m_.leases, m_.expels}; }
    Nanos due_of(const HomeJob& job) const;

    HomeMachines& m_;
    EndConfirmations doubts_;
    GangStart start_;
    GangCheckpoints sets_;
    GangFreeze cuts_;
    GangReturn returns_;
    std::vector<uint64_t> ended_;  // jobs whose end others still have to hear of
    bool freeing_ = false;
};

}  // namespace souk
