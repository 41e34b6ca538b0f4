// SPDX-License-Identifier: GPL-2.0-or-later
// guest::Entry: all that a Guest (guest.hpp) holds of one (job, epoch): its record, its state, and
// what does not depend on the state. It answers what follows from these alone. It changes itself
// where a change must keep two of them together; the parts of Guest decide when.
#pragma once

#include <algorithm>

#include "agentd/core/guest_devices.hpp"
#include "agentd/core/guest_io.hpp"
#include "agentd/core/guest_state.hpp"

namespace souk::guest {

inline constexpr const char* stands_still = "it stands still since its lease was over";

// The span of a retry: twice as long each time, up to a bound.
inline Nanos doubled(Nanos span, int times) {
    constexpr int doublings_max = 6;
    return Nanos{span.ns << std::clamp(times, 0, doublings_max)};
}

struct Entry {
    GuestJob job;
    State state;
    Shipment shipment;
    Checkpoint checkpoint;
    Lease lease;
    Leaving leaving;
    NodeName source;             // the node from which its image may come; empty: from any
    bool stopped = false;        // a signal has stopped it
    bool pause_asked = false;    // the shell has been told to pause it
    Cause paused;                // why it stands for the owner of the node
    Trouble why;                 // why the last step failed
    bool image_refused = false;  // its image is not what it should be: that is why

    template <class S>
    S* in() {
        return std::get_if<S>(&state);
    }
    template <class S>
    const S* in() const {
        return std::get_if<S>(&state);
    }
    // The motion M of a job that runs; null if it does not run or moves otherwise.
    template <class M>
    M* moves() {
        auto* r = in<state::Running>();
        return r ? r->in<M>() : nullptr;
    }
    template <class M>
    const M* moves() const {
        const auto* r = in<state::Running>();
        return r ? r->in<M>() : nullptr;
    }
    // Enters another state, and sets how the home and the disk know it.
    template <class S>
    S& become(S to, GuestState known_as) {
        job.state = known_as;
        return state.emplace<S>(std::move(to));
    }

    // It is stopped where it is, in memory and without an image.
    bool in_place() const;
    // It is so because the market or its home said so, and not because it cannot be dumped.
    bool in_place_by_order() const { return in_place() && job.by_order; }
    bool takes_signals() const;
    // It was dumped, was stopped by its lease, or is being ended after that: it uses no CPU until
    // it is let go on.
    bool stands() const;
    // It uses CPUs, or may at any moment.
    bool runs() const;
    bool in_memory() const;
    // It takes the named resources here that it asks for.
    bool has_resources() const {
        return !job.resources.empty() && !job.kept && !in<state::Frozen>() && !in<state::Ended>() &&
               !in<state::Failed>();
    }
    // It runs, or may yet run. Its home is sent heartbeats.
    bool may_run() const;
    bool is_paused() const { return pause_asked && !paused.empty(); }
    // Nothing of the job would run sooner if its image was written or sent sooner.
    bool no_hurry() const;

    bool immovable() const {
        return !job.devices.empty() || !leaving.looked.empty() ||
               leaving.troubles.count >= Leaving::troubles_enough;
    }
    Trouble why_immovable() const {
        if (!job.devices.empty())
            return because(CauseCode::holds_resource, {{"text", devices_text(job.devices)}});
        return leaving.looked.empty() ? leaving.troubles.why : leaving.looked;
    }
    bool evicted() const { return leaving.evicted != Nanos::never(); }
    bool is_wanted() const { return leaving.wanted != Nanos::never(); }

    // The place for an early event, if the job was told to run and nothing is known of its run yet.
    Early* early();

    void effect(Do::What what, Outputs& out) const;
    void signal(const state::Signal& signal, Outputs& out) const;
    // It exited or was killed.
    void end_as(GuestState how);
    // Begins to end its capsule; `ending` says what becomes of the record then.
    void close(Ending ending, Do::What how, Outputs& out);
    // Its lease is over: it is stopped as if it was found so after a crash, but for no dump.
    void stand_for_lease(state::Running& r);
    // The job goes on, so its image is not the job: an older record on disk would say it is.
    void roll_back_shipped(state::Running& r, Outputs& out);
    // Its checkpoint is of no more use: another dump is made, or the home has it.
    void drop_checkpoint(Outputs& out);
    // Sends its image to the newest destination.
    void ship(Outputs& out);
};

}  // namespace souk::guest
