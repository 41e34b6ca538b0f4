// SPDX-License-Identifier: GPL-2.0-or-later
// HomeCheckpoints: when a checkpoint of a running job is due, how it is made, and which one is the
// last whole one. Part of Home.
//
// A checkpoint is a copy under an epoch of its own that this node keeps, frozen, beside the job
// that runs elsewhere or here: `keep` makes a place for it, `checkpoint` has the job's node dump
// it, let it go on and send the image. The one before is dropped when the new one is whole. A job
// that goes back is that copy from then on, a frozen job as any other, which the market thaws; the
// copy stays until the next one is whole, so that it can be gone back to again.
#pragma once

#include <map>
#include <string>

#include "agentd/core/cut_timing.hpp"
#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeCheckpoints {
  public:
    struct Limits {
        Nanos every;              // of jobs that do not say; 0: never
        Nanos transfer_patience;  // of a dump with its transfer
        std::string address;      // of this node, where checkpoints come to
        bool address_known = true;
    };
    explicit HomeCheckpoints(Limits limits) : limits_(std::move(limits)) {}
    void own_address(std::string address) {
        limits_.address = std::move(address), limits_.address_known = true;
    }

    // This node, as others reach it.
    Peer own(const NodeName& node) const { return {node, limits_.address}; }

    Nanos every(const HomeJob& job) const;
    // It runs: the next one is due in a while, if none is being made or due already.
    void arm(const HomeJob& job, Nanos now);
    // The daemon came back: what was being made gets its limit.
    void restarted(const HomeJob& job, Nanos now);
    // When the next is due, or what is being made has taken too long.
    Nanos due(const HomeJob& job) const;
    // To be called when that is due.
    void tick(HomeJob& job, const HomeTurn& turn);

    // The steps of a component that is saved with its gang (gang_checkpoints.hpp): it runs, and no
    // image is made of it; the reason why it cannot be saved (empty: it can); a place for its image
    // is asked for; it was told to be dumped; the image is whole.
    static bool may_begin(const HomeJob& job);
    Trouble why_not(const HomeJob& job, const HomeTurn& turn) const;
    void keep(HomeJob& job, const HomeTurn& turn);
    void began(const HomeJob& job, Nanos unix_now) { jobs_[job.id.seq].began = unix_now; }
    void whole(HomeJob& job, const GuestEvent& event, const CutTiming& with, const HomeTurn& turn);
    // The next is due then.
    void again(const HomeJob& job, Nanos at) { jobs_[job.id.seq].save_at = at; }

    // That copy is a checkpoint of the job, whole or being made.
    static bool is_kept(const HomeJob& job, const NodeName& node, Epoch epoch);
    // That copy is the last whole one.
    static bool is_whole(const HomeJob& job, const NodeName& node, Epoch epoch);
    // The node of such a copy tells how the copy is.
    void from_keeper(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    void failed(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // Something else is made of the job now, or it failed: what there is of it goes.
    void end_saving(HomeJob& job, const HomeTurn& turn);
    // The last whole one is not needed any more, or damaged.
    static void drop(HomeJob& job, const HomeTurn& turn);
    // The running copy is gone for certain: the last whole checkpoint is the job from now on, or
    // the job begins anew.
    static void go_back(HomeJob& job, const Trouble& why, const HomeTurn& turn);
    // It does not run any more: none is due.
    void disarm(const HomeJob& job) { jobs_[job.id.seq].save_at = Nanos::never(); }

    // Why the last one failed; empty: it did not.
    const Cause& trouble(const HomeJob& job) const;
    // When the next is due; never(): none is.
    Nanos save_at(const HomeJob& job) const;
    void forget(uint64_t seq) { jobs_.erase(seq); }

  private:
    struct State {
        Nanos save_at = Nanos::never();     // the next one is due
        Nanos save_limit = Nanos::never();  // of the one that is being made
        Nanos began = {};                   // of that: Checkpoint::began
        Cause trouble;
    };
    void begin(HomeJob& job, const HomeTurn& turn);

    Limits limits_;
    std::map<uint64_t, State> jobs_;
};

}  // namespace souk
