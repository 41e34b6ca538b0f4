// SPDX-License-Identifier: GPL-2.0-or-later
// HomeEvacuations: frozen jobs whose images lie on nodes whose owners want them gone. The market
// has a while to have such a job thawed elsewhere; then this home takes the image to its own disk,
// and the job stays frozen. Part of Home.
//
// The copy that comes has an epoch of its own, as a checkpoint has: `keep` makes a place for it
// here, `checkpoint` has the job's node send what lies frozen there. Until this node says that it
// has the whole of it on its disk, the image there is the job. Then one write makes the copy the
// job, and only after that the image there is dropped. An order to thaw the job comes first: the
// copy is ended. What fails is tried again, after twice the time; a few images come at one time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeEvacuations {
  public:
    static constexpr size_t at_once = 2;  // images that come at one time
    struct Limits {
        NodeName node;            // this one
        Nanos patience;           // that the market has; twice as long after each failure
        Nanos transfer_patience;  // of one image
    };
    explicit HomeEvacuations(Limits limits) : limits_(std::move(limits)) {}

    // On the disk that images come to, now. Until it is told, none is refused for that.
    void free_disk(int64_t bytes) { free_disk_ = bytes; }

    // The job's node says whether the image is to leave, and why it cannot be sent.
    void heard(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    // It is frozen in no step: if its image is to leave, that is due in a while.
    void arm(const HomeJob& job, Nanos now);
    // The daemon came back: what was on its way still comes.
    void restarted(HomeJob& job, const HomeTurn& turn);
    // When it is due, or has taken too long.
    Nanos due(const HomeJob& job) const;
    // To be called when that is due.
    void tick(HomeJob& job, const HomeTurn& turn);
    // The job whose turn it is to be fetched, once.
    std::optional<uint64_t> next();
    // `own`: of this node, as others reach it. `why_not`: they do not; empty: they do.
    void begin(HomeJob& job, const Peer& own, const Trouble& why_not, const HomeTurn& turn);

    // That copy is the one that comes.
    static bool is_coming(const HomeJob& job, const NodeName& node, Epoch epoch) {
        return job.evacuation.epoch.n > 0 && node == job.evacuation.peer.node &&
               epoch == job.evacuation.epoch;
    }
    // This node tells how that copy is.
    void from_keeper(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    void failed(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // Something else is made of the job now: what has come of it goes. True: there was something.
    bool end(HomeJob& job, const HomeTurn& turn);

    // That it stays for now, as the last one failed, and why; empty: none did.
    const Cause& trouble(const HomeJob& job) const;
    void forget(uint64_t seq);

  private:
    struct State {
        Epoch leaves;                  // the image that is to leave; 0: none
        Nanos at = Nanos::never();     // it is to be fetched
        Nanos limit = Nanos::never();  // of the one that comes
        uint32_t tries = 0;            // that failed
        Cause trouble;
    };
    bool may_begin(const HomeJob& job) const;
    Trouble lacks_room(const HomeJob& job) const;
    void refused(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    void is_here(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);

    Limits limits_;
    std::optional<int64_t> free_disk_;
    std::map<uint64_t, State> jobs_;
    std::set<uint64_t> waiting_, coming_;  // their turn has not come; they come
};

}  // namespace souk
