// SPDX-License-Identifier: GPL-2.0-or-later
// Inspectors: agentd's end of souk-inspect, which reads images for it without any right. And an
// Inspection: one image's, by a process of its own.
//
// Neither is believed alone. What an image makes of a job's processes is looked at once more when
// they stand, in the kernel (checkpoint/restored.hpp); so a reader that an image has taken over can
// have that image refused, or not refused before CRIU has begun.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agentd/inspect/answers.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/process/program.hpp"

namespace souk::inspect {

// Owned by the agent; outlives the Inspections. Started anew when it has ended.
class Inspectors {
  public:
    // Starts the process with its end of the socket; a test may start another one.
    using Start = std::function<Result<Pidfd>(Fd socket)>;
    explicit Inspectors(Start start = start_souk_inspect, EndProgram end = kill_program)
        : start_(std::move(start)), end_(std::move(end)) {}
    // Waits until it has given up its rights.
    Status begin();
    // The socket to a process for one image.
    Result<Fd> open();
    pid_t pid() const { return process_.pid(); }  // 0: it is not there

  private:
    static Result<Pidfd> start_souk_inspect(Fd socket);
    const Start start_;
    const EndProgram end_;
    Pidfd process_;
    Fd socket_;
};

// Reads one image through souk-inspect. Owned by its Cell.
class Inspection {
  public:
    using Done = std::function<void(Result<ImageFacts>)>;
    explicit Inspection(Loop& loop) : loop_(loop) {}

    // Starts the process ahead of time, so that read() need not.
    Status open(Inspectors& inspectors);
    // Reads what the image in that directory says. Calls `done` once, not from within, unless
    // stopped. `made_here`: a file that this node has put beside the image's.
    void read(int image, Done done, std::string_view made_here = {});
    void stop();

  private:
    struct File {
        std::string name;
        FileKind kind;
        pid_t thread = 0;    // of a core
        uint64_t bytes = 0;  // of a ghost
    };
    Status list(int image, std::string_view made_here);
    Status ask_more();
    void hear();
    Status hear_some();
    Status take(const File& file, const Answer& answer);
    // Returns false if the answer belongs to another question.
    bool take_one(const File& file, const CoreImage& core);
    bool take_one(const File& file, const GhostMode& ghost);
    bool take_one(const File& file, const EntryKinds& kinds);
    bool take_one(const File& file, const ImageNamespaces& namespaces);
    bool take_one(const File& file, const FsRoot& root);
    static bool take_one(const File&, const Refusal&) { return false; }
    void end(const Status& read);

    Loop& loop_;
    Fd socket_, image_;
    Watch watch_;
    Timer limit_;
    std::vector<File> files_;
    size_t asked_ = 0, answered_ = 0;
    ImageFacts facts_;
    Done done_;
};

}  // namespace souk::inspect
