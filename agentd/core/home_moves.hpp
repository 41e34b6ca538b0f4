// SPDX-License-Identifier: GPL-2.0-or-later
// HomeMoves: the steps of a move or thaw, from the order to the word that the job runs where it
// went, and the way back (docs/move.md). Part of Home: what a step means for the job as a whole is
// returned, and carried out there.
//
// Before the decision (`commit`) a move is given up and the source goes on. After it the candidate
// owns the job; it is rolled back only when the candidate is gone or the source says that it is not
// held. If the candidate was told to run by then it may have run and spoken: to who runs alone that
// makes no difference but for what others have heard; a gang goes back as a whole.
#pragma once

#include <map>
#include <string>

#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeMoves {
  public:
    struct Limits {
        Nanos step_patience;      // of each short step
        Nanos transfer_patience;  // of a dump with its transfer
    };
    explicit HomeMoves(Limits limits) : limits_(limits) {}

    // A job that runs, stands or is frozen goes to the order's node; both ends make ready.
    void begin(HomeJob& job, const Order& order, const HomeTurn& turn);
    // The daemon came back: a move that was not decided is given up, a decided one goes on.
    HomeNext restarted(HomeJob& job, const HomeTurn& turn);
    // The two ends tell how they are.
    HomeNext source(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    HomeNext candidate(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    // Before the decision: the source goes on, the candidate is ended. An empty `blame`: nobody
    // failed.
    HomeNext abort(HomeJob& job, const NodeName& blame, const Trouble& why, const HomeTurn& turn);
    static bool is_undecided(const HomeJob& job) {
        return job.step == MoveStep::prepare || job.step == MoveStep::transfer;
    }
    // The candidate's node is lost, or its lease is over.
    HomeNext candidate_lost(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // After the decision: the source runs nowhere any more, so the candidate may.
    void source_is_off(HomeJob& job, const HomeTurn& turn);
    // The job ends, or goes back: so does its move, and the candidate is ended.
    static void drop_candidate(HomeJob& job, const HomeTurn& turn);
    // The other components that thaw are held, too: this one may run.
    void commit(HomeJob& job, const HomeTurn& turn);
    // It waits for them for one more step's time.
    void goes_on(const HomeJob& job, Nanos now) {
        state(job).deadline = now + limits_.step_patience;
    }
    // The present step is over.
    void step_ended(const HomeJob& job) { jobs_[job.id.seq].deadline = Nanos::never(); }

    Nanos due(const HomeJob& job) const;
    // To be called when that is due: a step took too long. Before the decision the move is given
    // up; after it the node is asked again.
    HomeNext overdue(HomeJob& job, const HomeTurn& turn);

    struct Ready {
        bool source = false, destination = false;
        bool source_stands = false;  // frozen for this move, until this home says otherwise
    };
    Ready ready(const HomeJob& job) const;
    void forget(uint64_t seq) { jobs_.erase(seq); }

  private:
    struct State {
        Nanos deadline = Nanos::never();  // of the present step
        Ready ready;
        MoveForecast forecast;      // by the source
        std::string source_ticket;  // Order::source_ticket
        std::string why;            // Order::reason
        // when the source froze it, had sent it; when the destination held it, was released, and
        // first said that it runs
        Nanos frozen_since = Nanos::never(), sent_at = Nanos::never();
        Nanos held_at = Nanos::never(), released_at = Nanos::never();
        Nanos running_at = Nanos::never();
    };
    State& state(const HomeJob& job) { return jobs_[job.id.seq]; }
    HomeNext source_when_decided(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    HomeNext source_stands(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    HomeNext released(HomeJob& job, const GuestEvent& event, const Trouble& why,
                      const HomeTurn& turn);
    HomeNext ship_when_ready(HomeJob& job, const HomeTurn& turn);
    void send_ship(const HomeJob& job, const HomeTurn& turn);
    HomeNext held(HomeJob& job, const HomeTurn& turn);
    HomeNext arrived(HomeJob& job, bool says_more, const HomeTurn& turn);
    HomeNext unheard(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    HomeNext roll_back(HomeJob& job, const Trouble& why, bool source_dead, const HomeTurn& turn);
    bool source_died(const HomeJob& job) const {
        return job.step == MoveStep::release && !ready(job).source_stands;
    }
    StoryStep arrival(const HomeJob& job, const NodeName& from, Nanos pause, const HomeTurn& turn);

    Limits limits_;
    std::map<uint64_t, State> jobs_;
};

}  // namespace souk
