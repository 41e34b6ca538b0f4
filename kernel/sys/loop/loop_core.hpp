// SPDX-License-Identifier: GPL-2.0-or-later
// The inside of Loop, for loop.cpp, stream.cpp and loop_objects.cpp alone. An Object is what a
// handle names: it owns its fd and callbacks, submits through the core (which counts what the
// kernel still holds), and is destroyed only when its handle is closed, no completion of it can
// come any more, and no callback of it is on the stack.
#pragma once

#include <deque>
#include <set>

#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/loop/timers.hpp"

namespace souk {

// The low byte of user_data: which of an object's operations completed.
enum class Op : uint8_t { none, accept, receive, send, poll, connect, sync, cancel, timeout };

class LoopCore;

class Object {
  public:
    explicit Object(LoopCore& core) : core_(core) {}
    virtual ~Object() = default;
    Object(const Object&) = delete;

    // A completion; `more`: the operation goes on (multishot). Not called once closed (then
    // discard).
    virtual void complete(Op op, const io_uring_cqe& cqe, bool more) = 0;
    // End of an iteration, if dirty: submit what is wanted now.
    virtual void flush() = 0;
    // The handle was closed: submit cancellations. Called once, at the end of the iteration.
    virtual void cancel_all() = 0;
    // Does what flush() has put off until callbacks may be entered again (LoopCore::run_soon).
    virtual void continue_soon() {}
    // A completion after close(): free what came with it (an accepted fd).
    virtual void discard(Op, const io_uring_cqe&) {}
    // Destroys the callbacks, which may own handles.
    virtual void drop_callbacks() = 0;

  protected:
    friend class LoopCore;
    void dirty();

    LoopCore& core_;
    SlotKey key_;
    unsigned in_flight_ = 0;
    bool closed_ = false;
    bool cancelled_ = false;
    bool dirty_ = false;
};

class LoopCore {
  public:
    LoopCore(std::unique_ptr<Ring> ring, const LoopOptions& options);
    ~LoopCore();

    Result<SlotKey> add(std::unique_ptr<Object> object);
    Object* find(SlotKey key) const { return objects_.find(key); }
    template <class T>
    T& get(SlotKey key) const {
        Object* object = objects_.find(key);
        MUST(object != nullptr);
        return static_cast<T&>(*object);
    }
    void close(SlotKey key);
    void mark_dirty(Object& object);
    void run_soon(SlotKey key) { soon_.push_back(key); }
    void hold_sends(bool hold);
    bool sends_held() const { return sends_held_; }
    // Takes an object that would send now. It is flushed again when sending is allowed.
    void send_later(SlotKey key) { sends_waiting_.insert(key); }

    // A submission whose completion comes to `object`. `prep` fills the entry.
    template <class Prep>
    void submit(Object& object, Op op, Prep prep) {
        io_uring_sqe* sqe = ring_->sqe();
        prep(sqe);
        io_uring_sqe_set_data64(sqe, user_data(object.key_, op));
        ++object.in_flight_;
        ++in_flight_;
    }
    void submit_cancel(Object& object, Op op);

    SlotKey add_timer(Nanos deadline, std::function<void()> fn);
    TimerHeap& timers() { return timers_; }
    void defer(std::function<void()> fn) { deferred_.push_back(std::move(fn)); }
    Ring& ring() { return *ring_; }
    LoopStats& stats() { return stats_; }
    uint32_t objects() const { return objects_.used(); }

    // One iteration: deferred functions and submissions, then completions, what was put off, and
    // timers.
    void settle();
    Status wait_and_dispatch();
    Status finish();  // settles and submits, without waiting
    bool stopping_ = false;

  private:
    static uint64_t user_data(SlotKey key, Op op) {
        return uint64_t{key.generation} << 32 | uint64_t{key.slot} << 8 | static_cast<uint8_t>(op);
    }
    void run_deferred();
    void flush();
    void dispatch();
    void dispatch_one(const io_uring_cqe& cqe);
    void arm_timeout();
    void fire_timers();
    void drain();

    std::unique_ptr<Ring> ring_;
    SlotTable<Object> objects_;
    TimerHeap timers_;
    size_t timers_max_;
    unsigned completions_per_iteration_;
    std::vector<SlotKey> dirty_;
    std::vector<SlotKey> soon_;
    std::set<SlotKey> sends_waiting_;  // streams that have something to send while sends are held
    bool sends_held_ = false;
    std::deque<std::function<void()>> deferred_;
    unsigned in_flight_ = 0;  // of all objects, and the timeout
    bool timeout_armed_ = false;
    Nanos timeout_at_;
    __kernel_timespec timeout_spec_{};
    bool dispatching_ = false;
    LoopStats stats_;
};

inline void Object::dirty() { core_.mark_dirty(*this); }

std::unique_ptr<Object> make_stream(LoopCore& core, Fd socket, StreamHandlers handlers,
                                    StreamOptions options);
std::unique_ptr<Object> make_listener(LoopCore& core, Fd socket, std::function<void(Fd)> on_accept,
                                      std::function<void(const Error&)> on_trouble);
std::unique_ptr<Object> make_watch(LoopCore& core, int fd, short events, bool once,
                                   std::function<void(short)> on_ready);
std::unique_ptr<Object> make_connect(LoopCore& core, Fd socket, const Address& address, Nanos limit,
                                     std::function<void(Result<Fd>)> done);
std::unique_ptr<Object> make_sync(LoopCore& core, Fd file, uint64_t offset, uint32_t bytes,
                                  std::function<void(Status)> done);

}  // namespace souk
