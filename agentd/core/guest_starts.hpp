// SPDX-License-Identifier: GPL-2.0-or-later
// GuestStarts: brings a job up on this node, by a start or from an image, and closes the record
// when its processes have ended. Part of Guest (guest.hpp). Before a job is let run its record says
// so on disk, because a capsule that is found dead later may have run it.
#pragma once

#include "agentd/core/guest_dumps.hpp"
#include "agentd/core/guest_jobs.hpp"

namespace souk {

class GuestStarts {
  public:
    GuestStarts(GuestJobs& jobs, GuestDumps& dumps, GuestLeases& leases, GuestOwner& owner,
                const GuestReports& reports, const Nanos& clock)
        : jobs_(jobs),
          dumps_(dumps),
          leases_(leases),
          owner_(owner),
          reports_(reports),
          clock_(clock) {}

    // Commands. A start, prepare or keep of the home was admitted.
    void begin(const GuestCommand& c, guest::Outputs& out);
    void release(guest::Entry& e, guest::Outputs& out);
    static void restore_here(const guest::Entry& source, guest::Entry& e, guest::Outputs& out);
    // The named resources that this node has for guests.
    void set_resources(std::vector<NodeResource> all) { resources_ = std::move(all); }
    // Keeps nothing but the answer that the job could not begin.
    void refuse(const GuestKey& key, Trouble why, guest::Outputs& out);

    // The home has answered a heartbeat: a job that waited for that goes on.
    void home_answered(guest::Entry& e, guest::Outputs& out);
    // The owner takes no guests any more: a component that stands before its program is ended.
    void end_held_component(guest::Entry& e, guest::Outputs& out);
    // The job did not run, and the record on disk says so, too.
    void not_started(guest::Entry& e, Trouble why, guest::state::Failed as, guest::Outputs& out);

    // Events.
    void on_capsule_ready(guest::Entry& e, guest::Outputs& out);
    void on_capsule_failed(guest::Entry& e, guest::CapsuleFailed x, guest::Outputs& out);
    void on_job_started(guest::Entry& e, guest::Outputs& out);
    void on_job_held(guest::Entry& e, guest::Outputs& out);
    void on_job_not_started(guest::Entry& e, guest::JobNotStarted x, guest::Outputs& out);
    void on_criu_ready(guest::Entry& e, guest::Outputs& out);
    void on_criu_failed(guest::Entry& e, guest::CriuFailed x, guest::Outputs& out);
    void on_image_received(guest::Entry& e, const guest::ImageReceived& x, guest::Outputs& out);
    void on_image_failed(guest::Entry& e, guest::ImageFailed x, guest::Outputs& out);
    void on_pages_whole(guest::Entry& e, guest::Outputs& out);
    void on_pages_lost(guest::Entry& e, guest::PagesLost x, guest::Outputs& out);
    void on_restore_held(guest::Entry& e, guest::Outputs& out);
    void on_restore_failed(guest::Entry& e, guest::RestoreFailed x, guest::Outputs& out);
    void on_restore_running(guest::Entry& e, guest::Outputs& out);
    void on_capsule_gone(guest::Entry& e, guest::Outputs& out);
    void on_exited(guest::Entry& e, guest::Exited x, guest::Outputs& out);

  private:
    Trouble take_resources(guest::Entry& e) const;
    void start_now(guest::Entry& e, guest::state::Starting& s, guest::Outputs& out);
    void release_component(guest::Entry& e, guest::state::Starting& s, guest::Outputs& out);
    void after_start(guest::Entry& e, const guest::Early& early, guest::Outputs& out);
    void failed(guest::Entry& e, guest::Outputs& out, const guest::state::Failed& as = {});
    void closed(guest::Entry& e, const guest::state::Closing& closing, guest::Outputs& out);

    GuestJobs& jobs_;
    GuestDumps& dumps_;
    GuestLeases& leases_;
    GuestOwner& owner_;
    const GuestReports& reports_;
    const Nanos& clock_;
    std::vector<NodeResource> resources_;
};

}  // namespace souk
