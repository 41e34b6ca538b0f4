// SPDX-License-Identifier: GPL-2.0-or-later
// CellCapsule: the capsule of one (job, epoch) and its directory GUESTS/KEY, which holds the
// capsule's control socket and exit record; and whether the job's files come from its home. It
// makes a capsule, or finds one that has outlived its agentd. Owned by the Cell. What fails: the
// network, the groups, the capsule itself, files that this node does not have.
#pragma once

#include <optional>
#include <string>

#include "agentd/cell/cell_groups.hpp"
#include "agentd/cell/cell_site.hpp"
#include "agentd/cell/job_log.hpp"
#include "agentd/cell/network_cut.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/capsule.hpp"

namespace souk {

class CellCapsule {
  public:
    CellCapsule(CellSite& site, const GuestJob& job, const JobLog& log, CellGroups& groups,
                NetworkCut& network)
        : site_(site),
          job_(job),
          log_(log),
          groups_(groups),
          network_(network),
          dir_(site.guests + "/" + job.key.text()) {}

    Status make();
    // Opens the directory that a daemon before this one has made. False: there is none.
    bool open_directory();
    // Finds the capsule of that daemon, if it lives; the record of the job's end, if it has ended;
    // and whether the job lives in the capsule.
    void find();
    void find_exit(guest::Found& found) const;
    void find_job(guest::Found& found) const;
    const Fd& directory() const { return dir_fd_; }
    void remove_directory();

    // Only in parts that run while there is a capsule.
    Capsule& operator*() { return *capsule_; }
    Capsule* operator->() { return &*capsule_; }
    const Capsule* operator->() const { return &*capsule_; }
    explicit operator bool() const { return capsule_.has_value(); }
    const std::optional<Capsule>& optional() const { return capsule_; }

    // The root of the job comes from its home.
    bool served() const { return served_; }
    // The files of the job are needed from now on. They are not when the capsule ends: its mount
    // ends with it, and no call waits in it any more.
    void begin_files();
    void end_files();

  private:
    CapsuleOptions options() const;
    Result<bool> write_hosts() const;
    Result<bool> needs_server() const;
    Status write_record() const;

    CellSite& site_;
    const GuestJob& job_;
    const JobLog& log_;
    CellGroups& groups_;
    NetworkCut& network_;
    std::string dir_;
    Fd dir_fd_;
    std::optional<Capsule> capsule_;
    bool served_ = false;
};

}  // namespace souk
