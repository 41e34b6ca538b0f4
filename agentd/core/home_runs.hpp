// SPDX-License-Identifier: GPL-2.0-or-later
// HomeRuns: a job at its owner while it is not moving: how it is started and frozen, and what its
// node says of it: that it runs, ends, cannot be moved, lies frozen or stands where it is. Part of
// Home: what that means for the job as a whole is returned, and carried out there.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agentd/core/cut_timing.hpp"
#include "agentd/core/home_checkpoints.hpp"
#include "agentd/core/home_expels.hpp"
#include "agentd/core/home_leases.hpp"
#include "agentd/core/home_turn.hpp"
#include "kernel/base/retry.hpp"

namespace souk {

class HomeRuns {
  public:
    struct Limits {
        Nanos step_patience;      // of a start
        Nanos transfer_patience;  // of a freeze
    };
    explicit HomeRuns(Limits limits) : limits_(limits) {}
    // The machines that hear a word of the owner's node beside this one.
    struct Beside {
        HomeCheckpoints& checkpoints;
        HomeLeases& leases;
        HomeExpels& expels;
    };

    void start(HomeJob& job, const Order& order, const HomeTurn& turn);
    // It is frozen with others, as was decided; its node is asked until it says so.
    void freezes(const HomeJob& job, Nanos now) {
        state(job).deadline = now + limits_.step_patience;
    }
    // stands: where that can be, it is only stopped where it runs.
    void freeze(HomeJob& job, bool stands, const HomeTurn& turn);
    // Once more, of one that is being frozen.
    void send_freeze(const HomeJob& job, const HomeTurn& turn) const;
    // Lets a job go on that stands in memory, on its node.
    void go_on_in_place(HomeJob& job, const HomeTurn& turn);
    // No byte of the command has left this node: as if it had not been ordered.
    HomeNext start_undelivered(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // A component that its node holds, or is to hold, is not to run there: likewise, and it waits.
    static void take_back(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // One that its node holds may run.
    static void release(HomeJob& job, const HomeTurn& turn);
    HomeNext freeze_undelivered(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // No node is left that could execute its program.
    HomeNext give_up(HomeJob& job, const HomeTurn& turn);
    // The daemon came back: a start or a freeze goes on.
    void restarted(const HomeJob& job, Nanos now);

    // The owner's node tells how the job is, in any phase without a move.
    HomeNext hears(HomeJob& job, const GuestEvent& event, const HomeTurn& turn, Beside beside);
    // Notes the first process of a copy, and the user as whom it runs.
    void note(HomeJob& job, const GuestEvent& event);
    // Its user is nobody on that node, or another than where it ran: it is not sent there again for
    // a while, since only that node's owner can change that.
    void refuses_user(const HomeJob& job, const NodeName& node, const std::string& why, Nanos now);
    std::vector<NodeName> no_user(const HomeJob& job, Nanos now) const;
    // Why that one does not.
    std::string why_no_user(const HomeJob& job, const NodeName& node) const;

    // It has ended: its record holds how, and its node forgets it.
    static void finish(HomeJob& job, int32_t wait_status, const Trouble& why, const HomeTurn& turn);
    // It is frozen, or stands where it is, from now on.
    void froze(HomeJob& job, int64_t image_bytes, const CutTiming& with, const HomeTurn& turn);
    void stands(HomeJob& job, const Trouble& cannot_move, const HomeTurn& turn);
    // It has come to another node, or went back.
    void arrived(const HomeJob& job) {
        State& s = jobs_[job.id.seq];
        s.cannot_move.clear();
        s.paused.clear();
        s.goes_on = Nanos::never();
    }
    void went_back(const HomeJob& job);

    // The present step is over.
    void step_ended(const HomeJob& job) { jobs_[job.id.seq].deadline = Nanos::never(); }
    Nanos due(const HomeJob& job) const;
    // To be called when that is due: its node is asked again.
    void overdue(const HomeJob& job, const HomeTurn& turn);

    // It stands where an order has stopped it, and could be dumped.
    bool stands_by_order(const HomeJob& job) const {
        return job.in_place && job.phase == JobPhase::frozen && cannot_move(job).empty();
    }
    // Why it cannot move from where it is now; empty: it can.
    const Trouble& cannot_move(const HomeJob& job) const { return seen(job).cannot_move; }
    // Why it is being ended, if it must be able to move and cannot; empty: it is not.
    const Cause& refused(const HomeJob& job) const { return seen(job).refused; }
    // Why the owner of its node stops it there; empty: he does not.
    const Cause& paused(const HomeJob& job) const { return seen(job).paused; }
    int32_t pid(const HomeJob& job) const;  // of its owner; 0: not known
    void forget(uint64_t seq) { jobs_.erase(seq); }

  private:
    // A node does not take the job's user. It is tried again after a while, as its owner may have
    // changed his mind.
    struct Refusal {
        RetryPause pause;
        std::optional<Nanos> until;  // none: it may be tried again
        std::string why;
    };
    struct State {
        Nanos deadline = Nanos::never();  // of a start or freeze
        bool stands = false;              // of a freeze: it is only to be stopped
        Nanos goes_on = Nanos::never();   // told to, where it stands, and not heard to run since
        Trouble cannot_move;              // where it runs, or stands, now
        bool immovable_told = false;
        Cause refused;
        bool stopped = false;
        Cause paused;
        int32_t pid = 0, pid_told = 0;  // of `pid_epoch`
        Epoch pid_epoch;
        Nanos cpu_told;           // the CPU time that the market knows of
        int64_t memory_told = 0;  // likewise, of the most memory
        std::map<NodeName, Refusal> no_user;
    };
    State& state(const HomeJob& job) { return jobs_[job.id.seq]; }
    const State& seen(const HomeJob& job) const;

    HomeNext starting(HomeJob& job, const GuestEvent& event, const HomeTurn& turn, Beside beside);
    HomeNext running(HomeJob& job, const GuestEvent& event, const HomeTurn& turn, Beside beside);
    HomeNext runs(HomeJob& job, const GuestEvent& event, const HomeTurn& turn, Beside beside);
    HomeNext freezing(HomeJob& job, const GuestEvent& event, const HomeTurn& turn, Beside beside);
    HomeNext frozen(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    std::optional<HomeNext> in_place(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    static HomeNext not_held(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    HomeNext program_lacks(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    bool runs_or_pauses(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    void note_paused(HomeJob& job, const Cause& why, const HomeTurn& turn);
    void note_goes_on(HomeJob& job, const HomeTurn& turn);
    HomeNext freeze_again(const HomeJob& job, const HomeTurn& turn) const;
    void note_movable(const HomeJob& job, const GuestEvent& event, const HomeTurn& turn);

    Limits limits_;
    std::map<uint64_t, State> jobs_;
};

}  // namespace souk
