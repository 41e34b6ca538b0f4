// SPDX-License-Identifier: GPL-2.0-or-later
// StoppedProcesses: the files and memory of a job's processes, as a dump needs them. Descriptors
// and facts of the stopped processes are taken while CRIU dumps, so that they are ready when the
// dump is held: no process opens or maps a file any more by then. Owned by the Cell; one dump at a
// time. What fails: a process that is gone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agentd/cell/cell_groups.hpp"
#include "agentd/cell/cell_site.hpp"
#include "checkpoint/core_image.hpp"
#include "checkpoint/open_files.hpp"
#include "kernel/sys/process/capsule.hpp"

namespace souk {

class StoppedProcesses {
  public:
    StoppedProcesses(const CellSite& site, const GuestJob& job, const CellGroups& groups,
                     const std::optional<Capsule>& capsule)
        : site_(site), job_(job), groups_(groups), capsule_(capsule) {}

    // Looks at the capsule's processes.
    LookAt looker() const;
    // Also while they run: a dump finds it as well (checkpoint/criu_landlock.c), but not as the job
    // starts.
    Status nobody_is_shut_in() const;
    // The same while the job is dumped: facts that were taken are not looked for again.
    LookAt looker_at_dump() const;
    // Opens the memory of processes; descriptors that were taken are not opened again.
    OpenProcessFiles opener() const;

    // While the job runs: returns the list of its home's files that it has open.
    const std::string& expect_files();
    // The job stands: takes what is needed at the hold. live: memory stays in the processes.
    void take(bool live);
    // At the hold: writes down in the image which files the job has, and checks the credentials
    // that the image gives its processes, if those could have forged it.
    Status save(int image, const ImageFacts& facts);
    // The memory is written or known: most of what was taken is not needed any more.
    void memory_is_known();
    // A new look begins, or the dump is over.
    void forget() { taken_ = {}; }

  private:
    struct Taken {
        std::vector<pid_t> pids;
        std::vector<Fd> page_maps, memories;
        std::vector<SeenProcess> look;
    };
    std::vector<Fd> open(const std::vector<pid_t>& pids, ProcessFile file) const;

    const CellSite& site_;
    const GuestJob& job_;
    const CellGroups& groups_;
    const std::optional<Capsule>& capsule_;
    PidsInside stopped_;
    Taken taken_;
    std::optional<OpenFiles> files_;  // files that the stopped processes have
    std::string expected_;            // the home's files that they had before
};

}  // namespace souk
