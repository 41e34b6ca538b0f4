// SPDX-License-Identifier: GPL-2.0-or-later
// JobSnapshots: at a home, the snapshots of its jobs' directories (srun --files-snapshot,
// docs/files.md): a job that goes back to a checkpoint finds its files as they were then; snapshots
// that no checkpoint stands beside any more go. Of a job that asked for none it is looked what was
// written since. Each user has one thing done at a time, by a process of his, which he may stop:
// so nobody waits for another user's. Owned by HomeShell.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agentd/core/home_io.hpp"
#include "agentd/daemon/files_task.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

class JobSnapshots {
  public:
    // Snapshots of so many jobs of a user wait to go, as many as he may have (home_records.hpp).
    static constexpr size_t drops_max = 20'000;

    JobSnapshots(Loop& loop, Log& log, StartFiles start)
        : loop_(loop), log_(log), start_(std::move(start)) {}
    // As the record of a job is now.
    void job(const HomeJob& job);
    void forget(const JobId& id) { kept_.erase(id); }
    void recovered(const std::map<uint64_t, HomeJob>& jobs);
    // It goes back. `done`: what is to be said of its files; at once, where there is nothing to do.
    void go_back(const HomeJob& job, std::function<void(const std::string& files)> done);

    static std::string name(const JobId& id, uint64_t epoch) {
        return id.text() + "." + std::to_string(epoch);
    }

  private:
    using Done = FilesTask::Done;
    struct Work {
        FilesTaskWords words;
        LaunchSpec user;
        Done done;
    };
    // The last word about a job is enough. Jobs that wait for it come before what only goes.
    struct User {
        std::map<JobId, Work> backs, drops;
        std::unique_ptr<FilesTask> task;
    };
    void add(std::map<JobId, Work> User::*where, const HomeJob& job, std::string what,
             uint64_t number, Done done);
    void next(uint32_t uid);

    Loop& loop_;
    Log& log_;
    const StartFiles start_;
    std::map<JobId, uint64_t> kept_;  // the epoch below which they are gone
    std::map<uint32_t, User> users_;  // of whom something is being done
};

}  // namespace souk
