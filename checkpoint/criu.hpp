// SPDX-License-Identifier: GPL-2.0-or-later
// CriuSession: one dump or one restore by CRIU's RPC, driven by events; never blocks. `criu swrk`
// is started inside the capsule beforehand (start, then `ready`), so that its start is no part of
// the job's pause. Poll fd() for reading and call on_readable until it gives nothing.
//
// Dump:    start .. ready .. dump() .. pre_dump .. dump_held: the job is frozen, its image
// complete.
//          answer(true)  .. dumped: the job is dead, the image is the job.
//          answer(false) .. refused: the job goes on as if nothing had been.
// Restore: start .. ready .. restore() .. restore_held: whole, not yet running.
//          answer(true)  .. resumed: it runs .. restored: CRIU has nothing more to do.
//          answer(false) .. refused: nothing of it is left.
// `failed` may come instead at any time, and `lost` if CRIU died without a word. After a failed
// dump the job goes on; after a lost one ask souk-init; after a failed or lost restore kill the
// capsule and use the image again in a fresh one.
//
// A time limit may do this: a dump that is under way must not be killed (that can kill the job with
// it), only refused at dump_held; dropping the session while held refuses too. A restore may be
// ended at any time, with its capsule.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/launch.hpp"
#include "checkpoint/reach.hpp"
#include "kernel/base/cause.hpp"
#include "kernel/base/move.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/process/capsule.hpp"

namespace souk {

// Tells whether that CRIU has loaded what it was given. Needs root.
bool has_criu_preload(const Pidfd& criu);

// CRIU is called like this on this machine.
struct CriuTool {
    std::vector<std::string> command;  // words before "swrk"
    // the first session has kept what CRIU learnt about this kernel (its criu.kdat)
    bool knows_kernel = false;
    std::string kernel_facts{};  // here, unless others launch it
    Fd preload{};  // loaded into each: criu_reaper.c, criu_ptys.c and others; nobody can write to
                   // it
    // bound for a file that a job has deleted and still has open: it goes along in the image
    uint32_t deleted_bytes_max = 64U << 20;
    // `launch` starts CRIU, and `learn` keeps in that capsule what CRIU has learnt of this kernel.
    // Empty: this process does both.
    std::function<Result<Pidfd>(const CriuLaunch&)> launch{};
    std::function<Status(const Pidfd& init)> learn{};
    // Tells whether that CRIU has loaded `preload`.
    std::function<bool(const Pidfd& criu)> loaded = has_criu_preload;
    // `end` kills CRIU. `give` makes this process the owner of what CRIU has made in a directory.
    EndProgram end = kill_program;
    GiveOver give = {};
};
// CRIU in the private prefix, else the system's ("/": that at once). Error: there is none.
Result<CriuTool> find_criu(const std::string& prefix = criu_root());

struct CriuStart {
    const Capsule* capsule = nullptr;  // souk-init must have answered helpers_ready
    int images = -1;                   // image directory
    // as in CapsuleOptions: a restored job is born in CRIU's groups
    int cgroup = -1;
    std::vector<int> cgroup_v1;
    std::vector<int> job_ends;  // restore: what souk-init gave with `prepared`
    CriuUser user;              // restore: as whom the job's paths are used (criu_user.c)
};

struct DumpOptions {
    pid_t root = 0;        // inside
    std::string terminal;  // tty_key, if the job has one
    TcpPolicy tcp = TcpPolicy::refuse;
    // Leave private memory out of the image, to be read from the job while it is held
    // (page_source.hpp). Such a dump may be refused at its hold or ended with its capsule, never
    // answered with true: CRIU would serve the pages itself.
    bool lazy = false;
    // Called when every process stands still and CRIU has not looked at what they have open yet. An
    // error ends the dump.
    std::function<Status()> stopped;
};

struct RestoreOptions {
    std::vector<std::string> keys;  // stdio_keys of the residue, one per job end
    TcpPolicy tcp = TcpPolicy::refuse;
    bool lazy = false;  // a PageSink listens in the image directory
    // The job's files come from a server, which itself vouches that they are the same files, so
    // CRIU compares only their sizes. Otherwise CRIU reads each program and library for its build
    // id: through the network, and the kernel reads ahead.
    bool files_are_served = false;
    // Called when the processes have all that they are to have, and none of them has run yet. An
    // error ends the restore. The callee must have killed the processes before it returns the
    // error.
    std::function<Status()> made;
};

enum class CriuEventKind : uint8_t {
    ready,
    pre_dump,
    stopped,  // every process stands still, and CRIU goes on with its dump meanwhile
    dump_held,
    dumped,
    restore_held,
    resumed,
    restored,
    refused,
    failed,
    lost
};
struct CriuEvent {
    CriuEventKind kind{};
    Trouble message;  // ready: CRIU's version; failed, lost: why, and CRIU's own words
    pid_t root = 0;   // restore_held, resumed, restored: inside
};

enum class CriuPhase : uint8_t {
    starting,
    ready,
    dumping,
    dump_held,
    dump_ending,
    restoring,
    restore_held,
    restore_ending,
    over
};

class CriuSession {
  public:
    CriuSession() = default;
    // `tool` keeps what the first session learns of the kernel for the next.
    static Result<CriuSession> start(CriuTool& tool, const CriuStart& how);

    int fd() const { return epoll_.get(); }
    explicit operator bool() const { return static_cast<bool>(socket_); }
    CriuPhase phase() const { return phase_; }
    // CRIU itself, a child of this process: to be reaped after the last event.
    const Pidfd& pidfd() const { return pidfd_; }

    void kill() const {
        if (tool_ != nullptr) tool_->end(pidfd_);
    }

    // These need the phase ready.
    Status dump(const DumpOptions& options);
    Status restore(const RestoreOptions& options);
    // Needs the phase dump_held or restore_held.
    Status answer(bool go_on);
    // Returns what has happened; empty when there is nothing to read yet.
    std::vector<CriuEvent> on_readable();

  private:
    void on_record(const char* data, size_t n, std::vector<CriuEvent>& events);
    void end(CriuEventKind kind, Trouble message, std::vector<CriuEvent>& events);
    void on_notify(const std::string& script, pid_t pid, std::vector<CriuEvent>& events);
    void on_final(bool success, const std::string& message, pid_t root,
                  std::vector<CriuEvent>& events);
    Status ask(int request_type, bool keep_open);
    Status answer_notify(bool ok);
    Status learn();
    Trouble why_failed(CauseCode otherwise, const std::string& first_error) const;

    CriuTool* tool_ = nullptr;
    Fd epoll_, socket_, images_;
    Pidfd pidfd_, init_;
    CriuPhase phase_ = CriuPhase::over;
    bool refusing_ = false;
    std::string version_, log_name_;
    pid_t root_ = 0;
    size_t ends_ = 0;
    std::function<Status()> stopped_, made_;
    bool needs_preload_ = false;
};

// CRIU's own error lines of a log: the first `lines_max`, without times, each cut to 240
// characters. Pure.
std::string criu_error_lines(std::string_view log, size_t lines_max = 3);

// Returns the cause that such lines name, where we know it; else none. Pure.
CauseCode criu_cause(std::string_view lines);
// Returns CRIU's complaint about a file that it could not open for the job, as "cannot open PATH:
// REASON"; empty if the lines have none.
std::string criu_unopened_file(std::string_view lines);
// Returns what CRIU says of a file that it takes for another one, as "PATH is another file now, of
// another WHAT"; empty if the lines have none.
std::string criu_other_file(std::string_view lines);
// Returns why the code that is loaded into CRIU has refused a dump; empty: it has not.
std::string criu_refusal(std::string_view lines);

// Tells whether a dump that CRIU refuses with these words may be taken a moment later: threads were
// just ending, or a process was about to read an answer of the kernel. Pure.
bool criu_trouble_passes(std::string_view error);

// Sets the first expiry of each periodic timerfd that had expired unread to 1 ns, because it would
// never fire again. Call it after a dump, while that is held. Returns how many were changed.
// Format: CRIU images/fdinfo.proto, images/timerfd.proto.
Result<int> arm_expired_timerfds(int images);
// Tells whether the dumped job holds locks of files.
bool image_has_locks(int images);
// Returns the places in the bytes of files.img where the value 0 must become 1. Fails if the bytes
// are no such image. Pure.
Result<std::vector<size_t>> expired_timerfds(std::string_view files_image);

}  // namespace souk
