// SPDX-License-Identifier: GPL-2.0-or-later
// OutputFiles: what this home's jobs write goes into files that their users named (srun --detach
// -o FILE -e FILE). For each such job there is a process with its user's rights (souk-files
// append), which opens the files and writes what it is given, a piece at a time; towards Terminals
// it is one more that is attached, so that what it has not written is kept in the spool. How far it
// is, is noted in a file beside the spool: nothing is written twice after a restart. A process that
// fails, for want of room, of rights or of a FIFO's reader, is begun again with a growing pause,
// and others have its place meanwhile. Owned by HomeShell.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "agentd/core/home_io.hpp"
#include "agentd/daemon/files_pump.hpp"
#include "agentd/daemon/terminals.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

class OutputFiles {
  public:
    struct Host {
        std::function<const HomeJob*(const JobId&)> job;
        // Somebody is attached to a finished job: what its terminals wait for may be there.
        std::function<void(const JobId&)> attached_to_finished;
        std::function<void(std::function<void()>)> after_commit;
        StartFiles start;
    };
    OutputFiles(Loop& loop, Log& log, Terminals& terminals, Host host);
    ~OutputFiles();
    // As the record of a job is now.
    void job(const HomeJob& job);
    void forget(const JobId& id);
    // After a restart: all jobs.
    void recovered(const std::map<uint64_t, HomeJob>& jobs);

  private:
    class Writer;
    struct Entry {
        std::shared_ptr<Writer> writer;  // null: it waits, for `retry` or for its turn
        Timer retry;
        Nanos pause;
        int failed = 0;  // in a row
    };

    void consider(const JobId& id);
    void start(const JobId& id);
    void ready(const wire::Attach& from);
    void failed(const JobId& id, const std::string& why);
    void done(const JobId& id);
    void next();
    bool has_place(uint32_t user) const;
    void leaves(const Writer& writer);

    Loop& loop_;
    Log& log_;
    Terminals& terminals_;
    Host host_;
    size_t writers_ = 0;
    std::map<uint32_t, size_t> of_user_;  // of these
    std::map<JobId, Entry> jobs_;
};

}  // namespace souk
