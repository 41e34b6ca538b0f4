// SPDX-License-Identifier: GPL-2.0-or-later
// HomeTurn: one step of a Home, as each of its machines sees it: the time, and the ways out. Home
// makes one for each input, and hands it to the machines that have a part in the step. The outputs
// take place in the order in which the machines put them into the turn.
//
// HomeNext: what a machine's step means for the job as a whole. HomeSteps carries it out when the
// machine has returned, because it needs other machines for it.
#pragma once

#include <string>
#include <variant>

#include "agentd/core/home_io.hpp"

namespace souk {

// Says how a job is, and what it still has to do, for the market.
class JobReporter {
  public:
    virtual ~JobReporter() = default;
    virtual JobReport report_of(const HomeJob& job, Nanos now) const = 0;
    // A newer order than the one that is carried out waits until that is over.
    virtual bool is_superseded(const HomeJob& job) const = 0;
};

struct HomeTurn {
    Nanos now;
    Nanos unix_now;        // by which the steps of stories are told
    const NodeName& node;  // this one
    uint64_t boot = 0;     // of this machine; its clock is `now`
    const JobReporter& reporter;
    home::Outputs& out;

    void persist(const HomeJob& job, Durable when = Durable::now) const {
        out.push_back(home::Persist{job, when});
    }
    void report(const HomeJob& job) const {
        out.push_back(home::ToMarketMsg{reporter.report_of(job, now)});
    }
    void tell(const HomeJob& job, home::Tell::What what, std::string text) const {
        out.push_back(home::Tell{job.id, what, std::move(text)});
    }
    void send(const Peer& peer, GuestCommand command) const {
        out.push_back(home::ToGuest{peer, std::move(command)});
    }
    void send(const Peer& peer, const JobId& id, Epoch epoch, GuestVerb verb) const;
    // These commands go to its owner. A freeze that `stands` only stops the job there. A signal
    // goes to its foreground or root, or to each of its processes.
    void send_signal(const HomeJob& job, int32_t signal, bool to_all) const;
    void send_freeze(const HomeJob& job, bool stands) const;
    // The move has failed for that reason.
    void send_resume(const HomeJob& job, const Trouble& why) const;
    // Its owner sends the image to that place, under that place's epoch.
    void send_checkpoint(const HomeJob& job, const Orphan& to) const;
    // The command has all that a node needs to know of a job that comes to it.
    void send_with_spec(const HomeJob& job, const Peer& peer, Epoch epoch, GuestVerb verb) const;
    // That node could not carry out the market's order for this job. The market hears of it if it
    // was its last one: it would take the failure for that of the newer one, which is still to
    // come.
    void fail_order(HomeJob& job, const NodeName& node, const Trouble& why) const;
    StoryStep step(StoryStep::What what, const NodeName& node = {}, Trouble why = {},
                   Money price = {}) const;
};

namespace home {
struct Nothing {};
// A step is over: the market hears how the job is, then comes what waited for the step's end.
struct Steady {};
// The same. It is as it was before a move, and may have run where it was to go, and have spoken.
struct MayHaveRun {};
// It is where it went. The event of its new owner may say more than that it runs.
struct Arrived {
    bool says_more = false;
};
// It was cancelled, and no step is under way that would end it.
struct Cancelled {};
struct Frozen {
    int64_t image_bytes = 0;
};
// It stands where it is: it cannot be dumped, or (no reason) an order said so.
struct Standing {
    Trouble cannot_move;
};
struct Finished {
    int32_t wait_status = 0;
    Trouble why;
};
// The job was ended by its cancel, or from outside (`why`).
struct Killed {
    Trouble why;
};
// The running copy, or the image, is gone for certain.
struct Gone {
    Trouble why;
};
// The node of a component has started it, and holds it.
struct Held {};
// A component that thaws is restored, and held.
struct Restored {};
}  // namespace home
using HomeNext = std::variant<home::Nothing, home::Steady, home::MayHaveRun, home::Arrived,
                              home::Cancelled, home::Frozen, home::Standing, home::Finished,
                              home::Killed, home::Gone, home::Held, home::Restored>;

// Why a job that is cancelled ends: its home had a reason, or a person said so.
Cause why_cancelled(const HomeJob& job);
// The meaning of the end of a job, as its node tells it.
HomeNext own_end(const HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
HomeNext node_lost_it(const HomeJob& job);
HomeNext image_is_lost(const HomeJob& job);
// It lies there, and cannot be thawed.
HomeNext image_is_refused(const HomeJob& job, const std::string& why);

}  // namespace souk
