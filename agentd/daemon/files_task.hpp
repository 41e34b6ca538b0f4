// SPDX-License-Identifier: GPL-2.0-or-later
// FilesTask: one thing that a process with a user's rights does about the files that a checkpoint
// stands beside (souk-files snapshot), and what it says of it. It has a limit of time. Who drops
// the task ends the process, and hears nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agentd/daemon/files_pump.hpp"
#include "agentd/root/helper.hpp"
#include "kernel/base/launch.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

// Has souk-root start souk-files and end it.
StartFiles files_starter(root::Helper& root);

struct FilesTaskWords {
    std::string what, name, directory;  // agentd/files/program/snapshots.hpp
};

class FilesTask {
  public:
    using Done = std::function<void(const Result<std::string>& said)>;
    // `root`: below which its directory is found. `done` comes later, once; the task may be dropped
    // in it.
    static Result<std::unique_ptr<FilesTask>> start(Loop& loop, const StartFiles& start,
                                                    const FilesTaskWords& words,
                                                    const LaunchSpec& user, int root, Nanos limit,
                                                    Done done);
    ~FilesTask();
    FilesTask(const FilesTask&) = delete;

  private:
    FilesTask(Loop& loop, EndProgram kill, Done done)
        : loop_(loop), kill_(std::move(kill)), done_(std::move(done)) {}
    void heard();
    void end(const Result<std::string>& said);

    Loop& loop_;
    const EndProgram kill_;
    Done done_;
    Pidfd process_;
    Fd answer_;
    Watch watch_;
    Timer limit_;
    std::string said_;
};

}  // namespace souk
