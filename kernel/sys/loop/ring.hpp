// SPDX-License-Identifier: GPL-2.0-or-later
// Ring: one io_uring with one ring of provided receive buffers, owned by one thread (the one that
// opened it). Needs Linux 6.0 (multishot receive). Asks for SINGLE_ISSUER | DEFER_TASKRUN first
// (Linux 6.1: completions are made only when this thread waits, so nothing interrupts it) and steps
// down to what the kernel grants. Small on purpose: about 50 KiB of rings; buffers are touched only
// as data comes. Fails where io_uring is forbidden.
#pragma once

#include <liburing.h>

#include <memory>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/bytes.hpp"

namespace souk {

struct RingOptions {
    unsigned sq_entries = 128;
    unsigned cq_entries = 1024;
    unsigned buffers = 64;  // at most; a power of two
    // at the start: all are touched in turn, so more cost memory also when little comes
    unsigned buffers_first = 64;
    unsigned buffer_bytes = 16 * 1024;
    unsigned first_rung = 0;  // where on the ladder of set-up flags to begin
};

class Ring {
  public:
    static constexpr uint16_t buffer_group = 0;

    static Result<std::unique_ptr<Ring>> open(const RingOptions& options);
    ~Ring();
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    // A cleared submission; submits what waits if the queue is full.
    io_uring_sqe* sqe();
    // Submits, then waits for at least one completion (`wait`) or only collects those that are
    // there. An interrupted wait is no error.
    Status enter(bool wait);
    // Does the same with a limit to the wait.
    Status enter_for(Nanos limit);
    // Copies at most `max` completions out and frees their places.
    unsigned reap(io_uring_cqe* out, unsigned max);
    bool completions_wait() const { return io_uring_cq_ready(&ring_) > 0; }

    // The received bytes of a completion with IORING_CQE_F_BUFFER; valid until its buffer is given
    // back.
    ByteView buffer(const io_uring_cqe& cqe) const;
    void give_back(const io_uring_cqe& cqe);
    // A receive found none: twice as many from now on, up to RingOptions::buffers.
    void more_buffers() { publish(2 * published_); }
    unsigned buffers_published() const { return published_; }

  private:
    Ring() = default;
    Status set_up(const RingOptions& options);
    Status set_up_buffers(const RingOptions& options);
    void publish(unsigned count);

    io_uring ring_{};
    bool open_ = false;
    io_uring_buf_ring* buffer_ring_ = nullptr;
    size_t map_bytes_ = 0;
    uint8_t* buffers_ = nullptr;
    unsigned buffer_count_ = 0, published_ = 0;
    unsigned buffer_bytes_ = 0;
};

}  // namespace souk
