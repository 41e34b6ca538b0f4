// SPDX-License-Identifier: GPL-2.0-or-later
// JobStdio: the streams of one job between souk-init, which has them, and the job's home: what the
// home has of the output, what of the input souk-init may be given, and how long the output of a
// job that has ended still comes. A job that runs without all of its memory is not the job yet:
// while it is silent nothing of it is passed on, and souk-init keeps it.
//
// Owned by the Cell. Nothing fails: what cannot be passed on is asked for again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agentd/cell/output_acks.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

// The messages to souk-init about the streams. Offsets count from the job's begin.
class StdioLine {
  public:
    virtual ~StdioLine() = default;
    // It has said welcome, so that it takes input.
    virtual bool answers() const = 0;
    // All output from there on, once more.
    virtual void ask_again(uint64_t stdout_from, uint64_t stderr_from) = 0;
    // The home has the stream (1 stdout, 2 stderr) up to there.
    virtual void ack(uint32_t stream, uint64_t offset) = 0;
    virtual Status input(uint64_t offset, std::string_view bytes) = 0;
    virtual Status input_eof(uint64_t offset) = 0;
};

struct StreamEnds {
    uint64_t output[2] = {0, 0};
    uint64_t input = 0;
};

class JobStdio {
  public:
    struct Hooks {
        // To the home. False: not now (no home, or its queue is full).
        std::function<bool(uint32_t stream, uint64_t offset, std::string_view bytes)> output;
        std::function<void(uint64_t offset)> input_taken;
        // Whether an exit that is told now is the job's own. Ask again with look_for_end().
        std::function<bool()> end_counts;
        // Once: the job has ended, and all of its output has been passed on.
        std::function<void(int32_t wait_status)> ended;
    };
    // tty: stdout alone is there. patience: how long output that does not end is waited for after
    // the job's end, once nothing more comes.
    JobStdio(Loop& loop, StdioLine& line, bool tty, Hooks hooks, Nanos patience = Nanos::from_s(5))
        : loop_(loop), line_(line), tty_(tty), hooks_(std::move(hooks)), patience_(patience) {}

    // Words of souk-init.
    void welcomed(uint64_t taken, uint64_t limit) { input_taken(taken, limit); }
    void output(uint32_t stream, uint64_t offset, std::string_view bytes);
    void output_eof(uint32_t stream, uint64_t offset);
    void input_taken(uint64_t offset, uint64_t limit);
    void exited(int32_t wait_status);

    // Words of the home. ack: it has the stream up to there, and `again`: not the bytes after it.
    void ack(uint32_t stream, uint64_t offset, bool again);
    void input(uint64_t offset, std::string_view bytes, bool eof);
    // Everything that the home does not have, again; also first thing on a new connection.
    void resync();

    // From silence() to speak() nothing leaves; then all that was kept does.
    void silence() { silent_ = true; }
    bool silent() const { return silent_; }
    void end_silence() { silent_ = false; }
    void speak();

    void look_for_end();
    const std::optional<int32_t>& exit() const { return exited_; }
    // How far the streams of a job that has ended came, or of a checkpoint.
    const StreamEnds& ends() const { return ends_; }
    // The ends in a checkpoint: from its manifest, or from the file of souk-init in its image.
    void set_ends(const StreamEnds& ends) { ends_ = ends; }
    void read_ends(std::string_view residue);

  private:
    void feed_input();
    void wait_for_output();

    Loop& loop_;
    StdioLine& line_;
    bool tty_;
    Hooks hooks_;
    Nanos patience_;
    OutputAcks acks_;
    uint64_t received_[2] = {0, 0};
    StreamEnds ends_;
    bool eof_[2] = {false, false};
    bool silent_ = false;
    std::optional<int32_t> exited_;
    bool end_told_ = false;
    Timer exit_limit_;
    uint64_t input_taken_ = 0, input_limit_ = 0;
    std::string input_;  // from input_at_ on, not yet given to the capsule
    uint64_t input_at_ = 0;
    enum class Eof : uint8_t { no, due, sent } input_eof_ = Eof::no;
};

}  // namespace souk
