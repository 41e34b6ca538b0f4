// SPDX-License-Identifier: GPL-2.0-or-later
// JobSnapshots: at a home, the snapshots of its jobs' directories (srun --files-snapshot,
// docs/files.md): a job that goes back to a checkpoint finds its files as they were then; snapshots
// that no checkpoint stands beside any more go. Of a job that asked for none it is looked what was
// written since. One thing at a time. Owned by HomeShell.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "agentd/core/home_io.hpp"
#include "agentd/daemon/files_task.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

class JobSnapshots {
  public:
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
    struct Work {
        FilesTaskWords words;
        LaunchSpec user;
        std::function<void(const Result<std::string>&)> done;
    };
    void add(const HomeJob& job, std::string what, std::string name,
             std::function<void(const Result<std::string>&)> done);
    void next();

    Loop& loop_;
    Log& log_;
    const StartFiles start_;
    std::map<JobId, uint64_t> kept_;  // the epoch below which they are gone
    std::deque<Work> work_;           // the first is being done
    std::unique_ptr<FilesTask> task_;
};

}  // namespace souk
