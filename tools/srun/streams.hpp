// SPDX-License-Identifier: GPL-2.0-or-later
// The two directions of a job's stdio as srun keeps them across broken connections. Pure but for
// write_some(). Output: what the job wrote, each byte once and in order, whatever is sent again.
// Input: what the user typed and the job's home has not confirmed yet, so that it can be sent
// again.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "agentd/wire/messages.hpp"
#include "agentd/wire/types.hpp"
#include "kernel/base/result.hpp"
#include "tools/common/job_status.hpp"

namespace souk::tools {

class OutputQueue {
  public:
    // above this the caller reads no more from its link
    static constexpr size_t bytes_max = 1 << 20;

    // Sets where each stream begins, for a job that ran before.
    void begin(const uint64_t (&offset)[2]);
    // Takes the new bytes of a piece. Returns how many bytes are missing before it (0, unless the
    // sender has lost some).
    uint64_t take(wire::Stream stream, uint64_t offset, std::string_view data);
    bool empty() const { return pieces_.empty(); }
    bool full() const { return bytes_ >= bytes_max; }
    // Returns the fd that the next bytes go to. Call it only when the queue is not empty.
    int fd() const;
    // Writes once, as much as fits without blocking (the caller has seen POLLOUT). Errors: as of
    // write(2), with the stream.
    Status write_some();
    // Throws away what waits for this stream and all that comes, because nobody reads it any more.
    void close(wire::Stream stream);
    wire::Stream next_stream() const { return pieces_.front().stream; }
    // Tells whether another line may stand on the terminal, if that is where output goes.
    bool screen_free() const { return screen_.free(); }

    uint64_t received(wire::Stream stream) const { return received_[index(stream)]; }
    uint64_t written(wire::Stream stream) const { return written_[index(stream)]; }

  private:
    static size_t index(wire::Stream stream) { return stream == wire::Stream::out ? 0 : 1; }
    struct Piece {
        wire::Stream stream;
        std::string data;
        size_t done = 0;
    };
    std::deque<Piece> pieces_;
    size_t bytes_ = 0;
    uint64_t received_[2] = {0, 0}, written_[2] = {0, 0};
    bool closed_[2] = {false, false};
    ScreenUse screen_;
};

class InputBuffer {
  public:
    static constexpr size_t bytes_max = wire::input_window_bytes;

    bool full() const { return data_.size() >= bytes_max; }
    bool ended() const { return ended_; }
    uint64_t end() const { return base_ + data_.size(); }
    // Bytes from stdin; the offset where they begin.
    uint64_t add(std::string_view data);
    void set_ended() { ended_ = true; }
    void acknowledge(uint64_t offset);
    // A new connection: what lies before `offset` is safe. `first`: it is also where the input of
    // this srun begins.
    void resume(uint64_t offset, bool first);
    std::string_view unconfirmed() const { return data_; }
    uint64_t base() const { return base_; }

  private:
    uint64_t base_ = 0;
    std::string data_;
    bool ended_ = false;
};

}  // namespace souk::tools
