// SPDX-License-Identifier: GPL-2.0-or-later
// Loop: the event loop of a daemon over one io_uring. One loop per thread; every callback runs on
// it, none inside a call that the owner makes (except Handle destructors, which call nothing). The
// owner declares its Loop before anything that holds handles, so that the loop goes last.
//
// One iteration: completions, then due timers, then deferred functions until none is left, then
// everything that callbacks asked for (sends of an iteration coalesced) goes to the kernel with one
// system call, which waits. So "persist, then send" is: queue the sends, `defer` the commit; no
// byte leaves before deferred functions have run.
//
// Handles (Stream, Listener, Watch, Connect, Sync, Timer) are move-only and close what they name
// when they go. They may be closed inside any callback, their own included: after close() no
// callback of theirs is entered any more, and the callbacks themselves are destroyed at the end of
// the iteration. A late completion finds its slot's generation gone (slots.hpp). What fails:
// opening (io_uring forbidden, kernel before 6.0), and adding beyond `objects_max`.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/bytes.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/ring.hpp"
#include "kernel/sys/loop/slots.hpp"
#include "kernel/sys/net/socket.hpp"

namespace souk {

class LoopCore;

class Handle {
  public:
    Handle() = default;
    Handle(LoopCore* core, SlotKey key) : core_(core), key_(key) {}
    Handle(Handle&& o) noexcept
        : core_(std::exchange(o.core_, nullptr)), key_(std::exchange(o.key_, {})) {}
    Handle& operator=(Handle&& o) noexcept;
    ~Handle() { close(); }
    // Tells whether the handle still names something: true until close(), also after an error.
    explicit operator bool() const { return core_ != nullptr; }
    // Cancels what is under way and closes an owned fd; nothing more is called. Harmless when
    // empty.
    void close();

  protected:
    LoopCore* core_ = nullptr;
    SlotKey key_;
};

struct StreamHandlers {
    // Bytes as they come, at most one receive buffer at a time; the view is valid during the call
    // only.
    std::function<void(ByteView)> on_data;
    // The peer will send no more. Sending is still possible; close the handle to end it. May be
    // empty: then as an error.
    std::function<void()> on_eof;
    // The connection is broken and what was queued is lost. The last callback; close the handle.
    std::function<void(const Error&)> on_error;
    // The send queue fell to half of its bound or less, after it was above or a send was refused.
    // May be empty.
    std::function<void()> on_drain;
};

struct StreamOptions {
    size_t send_queue_bytes_max = 4 << 20;
};

// A byte stream over a connected socket (TCP, unix stream, one end of a socketpair).
class Stream : public Handle {
  public:
    using Handle::Handle;
    // Queues bytes; they go to the kernel at the end of this iteration. All or nothing: if the
    // queue would exceed its bound, or the stream is broken or finished, nothing is queued and the
    // error says which (bound: code ENOBUFS; on_drain tells when to go on). The Bytes form queues a
    // big buffer without a copy.
    Status send(ByteView bytes);
    Status send(Bytes&& bytes);
    // Returns the error that send() would give for so many bytes. Like a refusal of send(), an
    // error here makes on_drain come.
    Status may_send(size_t bytes);
    // Bytes that the kernel has not taken yet.
    size_t queued() const;
    // No on_data and no on_eof until resume_reading; the kernel's socket buffer fills and holds the
    // peer back.
    void pause_reading();
    void resume_reading();
    // Much will come from now on, for good: received into a buffer of this stream's own, and
    // on_data gets up to so many bytes at a time.
    void expect_bulk(size_t buffer_bytes);
    // Half-close: FIN once the queue is out. Receiving goes on.
    void finish();
    // Gives the stream to the loop, which sends what is queued, then FIN, discards what comes until
    // the peer closes too, and closes: at most `limit` from now. No more callbacks. (A plain
    // close() with unread input makes TCP send a reset, which can destroy a last message on its way
    // to the peer.)
    void close_after_send(Nanos limit);
    // Borrowed, for SO_PEERCRED and the like.
    int fd() const;
};

// A listening socket; accepted ones are blocking and close-on-exec, as Loop::stream wants them.
class Listener : public Handle {
  public:
    using Handle::Handle;
};

// Readiness of an fd that the owner keeps open for as long as the Watch lives. Level-triggered, as
// poll(2): reported again each iteration as long as it lasts (a one-shot poll re-armed in the same
// system call that waits; a multishot poll would be edge-triggered and forget a half-read fd).
class Watch : public Handle {
  public:
    using Handle::Handle;
    // POLLIN, POLLOUT or both; 0 pauses.
    void set_events(short events);
};

class Connect : public Handle {
    using Handle::Handle;
};

class Sync : public Handle {
    using Handle::Handle;
};

// Destroying it cancels; empty or stale once it has fired.
class Timer {
  public:
    Timer() = default;
    Timer(LoopCore* core, SlotKey key) : core_(core), key_(key) {}
    Timer(Timer&& o) noexcept
        : core_(std::exchange(o.core_, nullptr)), key_(std::exchange(o.key_, {})) {}
    Timer& operator=(Timer&& o) noexcept;
    ~Timer() { cancel(); }
    void cancel();
    bool waiting() const;

  private:
    LoopCore* core_ = nullptr;
    SlotKey key_;
};

struct LoopOptions {
    RingOptions ring;
    uint32_t objects_max = 16 * 1024;  // streams, listeners, watches and connects together
    size_t timers_max = 256 * 1024;
    unsigned completions_per_iteration = 256;  // then timers and deferred functions have their turn
    // These options are for a daemon that thousands talk to at once: as many can be heard in one
    // iteration, in smaller receive buffers.
    static LoopOptions for_many_peers();
};

struct LoopStats {
    uint64_t iterations = 0;  // each is one system call: an idle loop adds none
    uint64_t completions = 0;
    uint64_t stale_completions = 0;  // whose object was gone
    uint64_t buffer_shortages = 0;   // receives that had to wait for a free buffer
};

class Loop {
  public:
    static Result<Loop> open(const LoopOptions& options = {});
    Loop(Loop&&) noexcept;
    // Cancels everything and waits for the kernel to let go of every buffer.
    ~Loop();

    // CLOCK_BOOTTIME: goes on while the machine sleeps, never steps back.
    static Nanos now();

    // Calls fn once at `deadline` or soon after; due timers fire in the order of deadline, then of
    // addition.
    [[nodiscard]] Timer at(Nanos deadline, std::function<void()> fn);
    [[nodiscard]] Timer after(Nanos span, std::function<void()> fn);
    // Calls `fn` at the end of this iteration, before anything is sent.
    void defer(std::function<void()> fn);
    // While this is on, nothing that streams queue goes to the kernel, because what must be on disk
    // before is not there yet.
    void hold_sends(bool hold);

    // Takes a connected socket.
    Result<Stream> stream(Fd socket, StreamHandlers handlers, StreamOptions options = {});
    // Takes a bound and listening socket (socket.hpp). Backs off 50 ms to 1 s while descriptors or
    // memory run out, and tells each time through on_trouble (may be empty); connections wait in
    // the backlog meanwhile.
    Result<Listener> listen(Fd socket, std::function<void(Fd)> on_accept,
                            std::function<void(const Error&)> on_trouble);
    // Calls `done` once: a connected socket, or why not (code ETIMEDOUT after `limit`).
    Result<Connect> connect(const Address& address, Nanos limit,
                            std::function<void(Result<Fd>)> done);
    // Calls `done` once: `bytes` of the file from `offset` on have been written to the disk, as
    // sync_file_range(2) does it; 0 bytes: all of it, and what names its length, as fdatasync(2).
    // The loop goes on meanwhile.
    Result<Sync> sync(int file, uint64_t offset, uint32_t bytes, std::function<void(Status)> done);
    // `on_ready` gets the poll events, POLLERR and POLLHUP included.
    Result<Watch> watch(int fd, short events, std::function<void(short)> on_ready);
    // Calls `fn` once, when the process has ended (reap it with waitid(P_PIDFD)). The pidfd stays
    // the caller's.
    Result<Watch> on_exit(int pidfd, std::function<void()> fn);

    // Runs until stop(). Queued bytes are handed to the kernel before it returns. Fails if the ring
    // breaks.
    Status run();
    // Runs until done() is true (asked before each wait), stop() or `limit`. Returns whether done()
    // was true.
    Result<bool> run_until(const std::function<bool()>& done, Nanos limit);
    void stop();

    const LoopStats& stats() const;
    uint32_t objects() const;

  private:
    explicit Loop(std::unique_ptr<LoopCore> core);
    std::unique_ptr<LoopCore> core_;
};

}  // namespace souk
