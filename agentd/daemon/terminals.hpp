// SPDX-License-Identifier: GPL-2.0-or-later
// Terminals: the stdio of this node's jobs between the guests that run them and the srun's that are
// attached. Output is appended to the job's spool, then acknowledged to the guest and passed on;
// input waits here until the guest has taken it. Both are byte streams with absolute offsets, so
// each side may break and come back anywhere.
//
// Owned by HomeShell; knows no connection: what it wants sent goes through the two interfaces it is
// given.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/core/home.hpp"
#include "agentd/daemon/spool.hpp"
#include "agentd/wire/messages.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

// One attached srun, as Terminals sees it.
class TerminalSession {
  public:
    virtual ~TerminalSession() = default;
    // False when its queue is full: it will call Terminals::drained.
    virtual bool send(const wire::Output& output) = 0;
    virtual void send(const wire::InputAck& ack) = 0;
    virtual void send(const wire::Notice& notice) = 0;
    virtual void send(const wire::Meter& meter) = 0;
    // The last word; the session ends itself.
    virtual void send(const wire::Exit& exit) = 0;
    // It writes the files that its user named (OutputFiles).
    virtual bool writes_files() const { return false; }
};

// Nothing of such a job is forgotten that its files have not got, whoever else has it.
inline bool has_output_files(const HomeJob& job) {
    return !job.out_file.empty() || !job.err_file.empty();
}

// Terminals send by this to the guest that runs a job now.
struct TerminalOutlet {
    // the home's record as it is now; null: there is none
    std::function<const HomeJob*(const JobId&)> job;
    std::function<void(const HomeJob&, const wire::StdioAck&)> ack;
    std::function<void(const HomeJob&, const wire::StdioInput&)> input;
    std::function<void(const HomeJob&, const wire::StdioWinch&)> winch;
    std::function<void(const JobId&, const std::string& why)> trouble;  // for the log
};

struct TerminalBounds {
    // So much of one stream waits for a terminal to write it; then no more is taken until one
    // comes.
    uint64_t stream_bytes = 0;
    // All jobs of one user other than root keep so much. Then none of their output is taken, and no
    // new job of his.
    uint64_t user_bytes = UINT64_MAX;
    // That stays free on the disk, for the daemon itself; below 0: a twentieth of it, at most 1 GB.
    int64_t disk_reserve_bytes = 0;
};

class Terminals {
  public:
    // `dir`: the directory of spools.
    Terminals(Loop& loop, Fd dir, TerminalBounds bounds, TerminalOutlet outlet);
    // Output that a daemon before has kept counts too.
    void recovered(const std::map<uint64_t, HomeJob>& jobs);

    // From a guest. `job` is the home's record; what comes from a node that does not own the job
    // was checked away.
    void data(const HomeJob& job, const wire::StdioData& data);
    void input_taken(const HomeJob& job, const wire::StdioInputAck& ack);
    // The job runs at its owner (again), or its node can be told things again: says what is safe,
    // sends what input waits.
    void resync(const HomeJob& job);
    // Has every byte that the job wrote come? If not, the exit is held back: `on_complete` is
    // called when it has.
    bool complete(const HomeJob& job, const uint64_t output_end[2],
                  std::function<void()> on_complete);
    // How long its streams are, and its input as far as it has been given; false if they cannot be
    // opened.
    bool lengths(const JobId& id, uint64_t output_end[2], uint64_t& input_end);
    // It has gone back to a checkpoint (home.hpp, Splice): what says so is written, unless it is
    // already.
    void splice(const HomeJob& job);

    // Makes the spool of a job that is about to be submitted: one that could not keep its output is
    // refused before it is durable. attach: it is about to be attached to, and the spool stays open
    // for that.
    Status prepare(const JobId& id, bool attach, uint32_t uid);

    // Sessions of srun. Attached{} is the caller's to send; the first output follows from pump().
    Result<wire::Attached> attach(const HomeJob& job, const wire::Attach& request,
                                  std::shared_ptr<TerminalSession> session);
    void detach(const JobId& id, const TerminalSession* session);
    void pump(const JobId& id);
    void output_written(const JobId& id, const TerminalSession* session,
                        const wire::OutputAck& ack);
    void input(const HomeJob& job, const wire::Input& input);
    void winch(const HomeJob& job, const wire::Winch& winch);
    void tell(const JobId& id, const wire::Notice& notice);
    // The job's cost. It is told where it is not what each session would reckon by itself.
    void meter(const JobId& id, const wire::Meter& meter);
    bool attended(const JobId& id) const;  // there is a session
    // Reads what is kept of a stream, without a session: nothing is forgotten for it, and no
    // terminal notices. It begins at byte `from`, or where the last `lines` lines do if that is
    // given, and takes as much as one answer holds. Errors: the spool cannot be opened or read.
    struct Kept {
        uint64_t begin = 0, from = 0, end = 0;  // the first byte kept, the first of `bytes`
        std::string bytes;
    };
    Result<Kept> peek(const HomeJob& job, int stream, uint64_t from, std::optional<uint64_t> lines);
    // The note of how far its user's files are. And whether that is not all yet.
    Result<Fd> written_note(const JobId& id) { return dir_.open_written(id.seq); }
    bool has_unwritten(const JobId& id);
    // The job is finished; each session gets its Exit when it has the last byte.
    void finished(const JobId& id, wire::Exit exit);
    // The record is erased: spool and all.
    void erase(const JobId& id);

  private:
    struct Session {
        std::shared_ptr<TerminalSession> session;
        uint64_t sent[2] = {0, 0}, written[2] = {0, 0};
        bool full = false, done = false;
        bool watch = false;  // takes no output
    };
    struct Job {
        std::unique_ptr<Spool> spool;
        std::vector<Session> sessions;
        uint64_t input_base = 0;  // the guest has taken everything before
        std::string input;        // from input_base on
        bool input_eof = false;
        std::unique_ptr<wire::Exit> exit;
        wire::Meter meter;  // that was told last
        uint64_t want_end[2] = {0, 0};
        std::function<void()> on_complete;
        bool held[2] = {false, false};  // output was refused, and has not come since
        Epoch held_of;                  // whose
        Timer retry;                    // to ask for it, unless it waits for a terminal
    };

    Result<Job*> open(const JobId& id);
    static Status mark(const HomeJob& job, Job& j);
    Status take(const HomeJob& job, Job& j, int stream, const wire::StdioData& data);
    void hold_back(const JobId& id, Job& j, int stream, Epoch epoch, const Error& why);
    void ask_again(const JobId& id);
    void make_room(const JobId& id, Job& j);
    void keep_for_files(const JobId& id, const Job& j, uint64_t kept[2]) const;
    bool crowded(const Job& j, int stream) const;
    Status has_room(uint32_t uid);
    Status user_has_room(uint32_t uid) const;
    void count(uint64_t seq, uint32_t uid, uint64_t bytes);
    Job* find(const JobId& id);
    void send_input(const HomeJob& job, const Job& j, size_t skip);
    void send_waiting_input(const HomeJob& job, const Job& j);
    void pump_session(Job& j, Session& s);
    void check_complete(Job& j);
    void forget_when_idle(const JobId& id);

    Loop& loop_;
    SpoolDir dir_;
    TerminalBounds bounds_;
    TerminalOutlet outlet_;
    std::map<uint64_t, Job> jobs_;
    struct Held {
        uint32_t uid = 0;
        uint64_t bytes = 0;
    };
    std::map<uint64_t, Held> kept_;  // of each job that keeps output
    std::map<uint32_t, uint64_t> kept_of_;
    uint64_t taken_ = uint64_t{1} << 40;  // since the disk was looked at; it was not yet
    Status disk_has_room_;
};

}  // namespace souk
