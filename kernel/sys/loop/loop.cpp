// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/loop/loop.hpp"

#include <fcntl.h>
#include <poll.h>

#include "kernel/base/check.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/loop/loop_core.hpp"

namespace souk {
namespace {

constexpr unsigned deferred_per_iteration = 1'000'000;
constexpr uint64_t timeout_data = static_cast<uint64_t>(Op::timeout);
constexpr uint64_t unheard_data = static_cast<uint64_t>(Op::none);

}  // namespace

// ---- LoopCore

LoopCore::LoopCore(std::unique_ptr<Ring> ring, const LoopOptions& options)
    : ring_(std::move(ring)),
      objects_(options.objects_max),
      timers_max_(options.timers_max),
      completions_per_iteration_(options.completions_per_iteration) {
    MUST(options.objects_max < 1u << 24);  // the slot's share of user_data
}

LoopCore::~LoopCore() {
    // Callbacks may own handles of this loop: let them go while there still is one.
    deferred_.clear();
    timers_ = TimerHeap();
    std::vector<SlotKey> keys;
    objects_.each([&](SlotKey key, Object&) { keys.push_back(key); });
    for (SlotKey key : keys) {
        if (Object* object = find(key)) object->drop_callbacks();
        close(key);
    }
    drain();
}

// The kernel writes into buffers of ours as long as an operation lives: wait until each has ended.
void LoopCore::drain() {
    flush();
    if (timeout_armed_) {
        io_uring_sqe* sqe = ring_->sqe();
        io_uring_prep_timeout_remove(sqe, timeout_data, 0);
        io_uring_sqe_set_data64(sqe, unheard_data);
        ++in_flight_;
    }
    const Nanos limit = Loop::now() + Nanos::from_s(2);
    while (in_flight_ > 0 && Loop::now() < limit) {
        if (!ring_->enter_for(Nanos::from_ms(100))) break;
        dispatch();
        flush();
    }
}

Result<SlotKey> LoopCore::add(std::unique_ptr<Object> object) {
    Object& added = *object;
    const SlotKey key = objects_.insert(std::move(object));
    if (!key)
        return fail("the event loop is full: " + std::to_string(objects_.used()) +
                    " connections and watches");
    added.key_ = key;
    mark_dirty(added);
    return key;
}

void LoopCore::close(SlotKey key) {
    Object* object = find(key);
    if (object == nullptr || object->closed_) return;
    object->closed_ = true;
    mark_dirty(*object);
}

void LoopCore::mark_dirty(Object& object) {
    if (object.dirty_) return;
    object.dirty_ = true;
    dirty_.push_back(object.key_);
}

void LoopCore::hold_sends(bool hold) {
    sends_held_ = hold;
    if (hold) return;
    for (const SlotKey key : std::exchange(sends_waiting_, {}))
        if (Object* object = find(key)) mark_dirty(*object);
}

void LoopCore::submit_cancel(Object& object, Op op) {
    submit(object, Op::cancel,
           [&](io_uring_sqe* sqe) { io_uring_prep_cancel64(sqe, user_data(object.key_, op), 0); });
}

SlotKey LoopCore::add_timer(Nanos deadline, std::function<void()> fn) {
    MUST(timers_.size() < timers_max_);
    return timers_.add(deadline, std::move(fn));
}

void LoopCore::run_deferred() {
    for (unsigned n = 0; !deferred_.empty(); ++n) {
        MUST(n < deferred_per_iteration);  // a function that defers itself for ever
        const std::function<void()> fn = std::move(deferred_.front());
        deferred_.pop_front();
        fn();
    }
}

// Everything that changed since the last time: submissions, cancellations, and the end of closed
// objects.
void LoopCore::flush() {
    // grows while callbacks' captures close further handles
    for (size_t i = 0; i < dirty_.size(); ++i) {
        const SlotKey key = dirty_[i];
        Object* object = find(key);
        if (object == nullptr) continue;
        object->dirty_ = false;
        if (!object->closed_) {
            object->flush();
        } else if (object->in_flight_ == 0) {
            const std::unique_ptr<Object> last = objects_.take(key);
            last->drop_callbacks();
        } else if (!object->cancelled_) {
            object->cancelled_ = true;
            object->cancel_all();
        }
    }
    dirty_.clear();
}

// One kernel timeout for the earliest deadline. A deadline that moved away costs one early wake-up,
// one that came nearer an update; BOOTTIME so that a machine that slept catches up at once.
void LoopCore::arm_timeout() {
    const Nanos next = timers_.next();
    if (next == Nanos::never() || (timeout_armed_ && timeout_at_ <= next)) return;
    // read when the submission is taken
    timeout_spec_ = {next.ns / 1'000'000'000, next.ns % 1'000'000'000};
    io_uring_sqe* sqe = ring_->sqe();
    if (timeout_armed_) {
        io_uring_prep_timeout_update(sqe, &timeout_spec_, timeout_data, IORING_TIMEOUT_ABS);
        io_uring_sqe_set_data64(sqe, unheard_data);
    } else {
        io_uring_prep_timeout(sqe, &timeout_spec_, 0, IORING_TIMEOUT_ABS | IORING_TIMEOUT_BOOTTIME);
        io_uring_sqe_set_data64(sqe, timeout_data);
        timeout_armed_ = true;
    }
    ++in_flight_;
    timeout_at_ = next;
}

void LoopCore::dispatch_one(const io_uring_cqe& cqe) {
    ++stats_.completions;
    const bool more = (cqe.flags & IORING_CQE_F_MORE) != 0;
    const Op op = static_cast<Op>(cqe.user_data & 0xff);
    if (!more) {
        MUST(in_flight_ > 0);
        --in_flight_;
    }
    if (op == Op::none) return;
    if (op == Op::timeout) {
        timeout_armed_ = false;
        return;
    }
    const SlotKey key{static_cast<uint32_t>(cqe.user_data >> 8 & 0xffffff),
                      static_cast<uint32_t>(cqe.user_data >> 32)};
    Object* object = find(key);
    if (object == nullptr) {
        ++stats_.stale_completions;
    } else {
        if (!more) {
            MUST(object->in_flight_ > 0);
            if (--object->in_flight_ == 0 && object->closed_) mark_dirty(*object);
        }
        if (object->closed_)
            object->discard(op, cqe);
        else if (op != Op::cancel)
            object->complete(op, cqe, more);
    }
    if ((cqe.flags & IORING_CQE_F_BUFFER) != 0) ring_->give_back(cqe);
}

void LoopCore::dispatch() {
    io_uring_cqe batch[64];
    for (unsigned total = 0; total < completions_per_iteration_;) {
        const unsigned n = ring_->reap(batch, std::size(batch));
        if (n == 0) break;
        for (unsigned i = 0; i < n; ++i) dispatch_one(batch[i]);
        total += n;
    }
}

void LoopCore::fire_timers() {
    if (timers_.next() == Nanos::never()) return;
    const Nanos now = Loop::now();
    const uint64_t seq_end = timers_.next_seq();  // what callbacks add waits for the next iteration
    std::function<void()> fn;
    while (timers_.pop_due(now, seq_end, fn)) {
        fn();
        fn = nullptr;
    }
}

void LoopCore::settle() {
    run_deferred();
    flush();
}

Status LoopCore::wait_and_dispatch() {
    MUST(!dispatching_);  // run() from inside a callback
    dispatching_ = true;
    const bool busy = !soon_.empty() || !dirty_.empty() || !deferred_.empty() ||
                      ring_->completions_wait() || stopping_;
    if (!busy) arm_timeout();
    ++stats_.iterations;
    TRY(ring_->enter(!busy));
    dispatch();
    const std::vector<SlotKey> soon = std::exchange(soon_, {});
    for (SlotKey key : soon)
        if (Object* object = find(key); object != nullptr && !object->closed_)
            object->continue_soon();
    fire_timers();
    dispatching_ = false;
    return {};
}

Status LoopCore::finish() {
    settle();
    return ring_->enter(false);
}

// ---- Handles

Handle& Handle::operator=(Handle&& o) noexcept {
    if (this != &o) {
        close();
        core_ = std::exchange(o.core_, nullptr);
        key_ = std::exchange(o.key_, {});
    }
    return *this;
}

void Handle::close() {
    if (LoopCore* core = std::exchange(core_, nullptr)) core->close(std::exchange(key_, {}));
}

Timer& Timer::operator=(Timer&& o) noexcept {
    if (this != &o) {
        cancel();
        core_ = std::exchange(o.core_, nullptr);
        key_ = std::exchange(o.key_, {});
    }
    return *this;
}

void Timer::cancel() {
    if (LoopCore* core = std::exchange(core_, nullptr))
        core->timers().cancel(std::exchange(key_, {}));
}

bool Timer::waiting() const { return core_ != nullptr && core_->timers().waiting(key_); }

// ---- Loop

LoopOptions LoopOptions::for_many_peers() {
    LoopOptions options;
    options.ring = {.sq_entries = 1024,
                    .cq_entries = 16 * 1024,
                    .buffers = 1024,
                    .buffers_first = 16,
                    .buffer_bytes = 4 * 1024};
    options.completions_per_iteration = 4 * 1024;
    return options;
}

Result<Loop> Loop::open(const LoopOptions& options) {
    TRY_ASSIGN(auto ring, Ring::open(options.ring));
    return Loop(std::make_unique<LoopCore>(std::move(ring), options));
}

Loop::Loop(std::unique_ptr<LoopCore> core) : core_(std::move(core)) {}
Loop::Loop(Loop&&) noexcept = default;
Loop::~Loop() = default;

Nanos Loop::now() { return read_clock(CLOCK_BOOTTIME); }

Timer Loop::at(Nanos deadline, std::function<void()> fn) {
    return {core_.get(), core_->add_timer(deadline, std::move(fn))};
}
Timer Loop::after(Nanos span, std::function<void()> fn) { return at(now() + span, std::move(fn)); }
void Loop::defer(std::function<void()> fn) { core_->defer(std::move(fn)); }
void Loop::hold_sends(bool hold) { core_->hold_sends(hold); }

namespace {
// The ring waits for readiness itself if O_NONBLOCK is off; with it, the ring would report EAGAIN.
Status make_blocking(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0) return fail_errno("fcntl", errno);
    if ((flags & O_NONBLOCK) != 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0)
        return fail_errno("fcntl", errno);
    return {};
}
}  // namespace

Result<Stream> Loop::stream(Fd socket, StreamHandlers handlers, StreamOptions options) {
    MUST(handlers.on_data && handlers.on_error);
    TRY(make_blocking(socket.get()));
    TRY(set_no_delay(socket.get()));
    TRY_ASSIGN(const SlotKey key,
               core_->add(make_stream(*core_, std::move(socket), std::move(handlers), options)));
    return Stream(core_.get(), key);
}

Result<Listener> Loop::listen(Fd socket, std::function<void(Fd)> on_accept,
                              std::function<void(const Error&)> on_trouble) {
    MUST(on_accept);
    TRY(make_blocking(socket.get()));
    TRY_ASSIGN(const SlotKey key,
               core_->add(make_listener(*core_, std::move(socket), std::move(on_accept),
                                        std::move(on_trouble))));
    return Listener(core_.get(), key);
}

Result<Connect> Loop::connect(const Address& address, Nanos limit,
                              std::function<void(Result<Fd>)> done) {
    MUST(done);
    Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) return fail_errno("socket", errno);
    TRY_ASSIGN(const SlotKey key, core_->add(make_connect(*core_, std::move(socket), address, limit,
                                                          std::move(done))));
    return Connect(core_.get(), key);
}

Result<Sync> Loop::sync(int file, uint64_t offset, uint32_t bytes,
                        std::function<void(Status)> done) {
    MUST(done);
    TRY_ASSIGN(Fd own, duplicate(file));
    TRY_ASSIGN(const SlotKey key,
               core_->add(make_sync(*core_, std::move(own), offset, bytes, std::move(done))));
    return Sync(core_.get(), key);
}

Result<Watch> Loop::watch(int fd, short events, std::function<void(short)> on_ready) {
    MUST(on_ready);
    TRY_ASSIGN(const SlotKey key,
               core_->add(make_watch(*core_, fd, events, false, std::move(on_ready))));
    return Watch(core_.get(), key);
}

Result<Watch> Loop::on_exit(int pidfd, std::function<void()> fn) {
    MUST(fn);
    TRY_ASSIGN(const SlotKey key, core_->add(make_watch(*core_, pidfd, POLLIN, true,
                                                        [fn = std::move(fn)](short) { fn(); })));
    return Watch(core_.get(), key);
}

Status Loop::run() {
    core_->stopping_ = false;
    while (!core_->stopping_) {
        core_->settle();
        TRY(core_->wait_and_dispatch());
    }
    return core_->finish();
}

Result<bool> Loop::run_until(const std::function<bool()>& done, Nanos limit) {
    core_->stopping_ = false;
    bool late = false;
    const Timer timer = after(limit, [&] { late = true; });
    for (;;) {
        core_->settle();
        if (done()) {
            TRY(core_->finish());
            return true;
        }
        if (late || core_->stopping_) {
            TRY(core_->finish());
            return false;
        }
        TRY(core_->wait_and_dispatch());
    }
}

void Loop::stop() { core_->stopping_ = true; }
const LoopStats& Loop::stats() const { return core_->stats(); }
uint32_t Loop::objects() const { return core_->objects(); }

}  // namespace souk
