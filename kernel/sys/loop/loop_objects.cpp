// SPDX-License-Identifier: GPL-2.0-or-later
// Listener, Watch, Connect and Sync: what a handle of the loop names besides a stream.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "kernel/base/check.hpp"
#include "kernel/sys/loop/loop_core.hpp"

namespace souk {
namespace {

// ---- Listener: multishot accept

constexpr Nanos back_off_min = Nanos::from_ms(50);
constexpr Nanos back_off_max = Nanos::from_s(1);

class ListenerObject final : public Object {
  public:
    ListenerObject(LoopCore& core, Fd socket, std::function<void(Fd)> on_accept,
                   std::function<void(const Error&)> on_trouble)
        : Object(core),
          socket_(std::move(socket)),
          on_accept_(std::move(on_accept)),
          on_trouble_(std::move(on_trouble)) {}

    void complete(Op op, const io_uring_cqe& cqe, bool more) override {
        if (op != Op::accept) return;
        if (!more) {
            accepting_ = false;
            dirty();
        }
        if (cqe.res >= 0) {
            back_off_ = back_off_min;
            on_accept_(Fd(cqe.res));
        } else if (is_shortage(-cqe.res) || cqe.res == -EBADF || cqe.res == -EINVAL ||
                   cqe.res == -ENOTSOCK || cqe.res == -EOPNOTSUPP) {
            // also where this is no listening socket (any more): trying at once would spin
            back_off(-cqe.res);
        }
        // Anything else (ECONNABORTED, EPROTO, ...) is about the one connection that was being
        // accepted.
    }

    void flush() override {
        if (accepting_ || waiting_) return;
        accepting_ = true;
        core_.submit(*this, Op::accept, [&](io_uring_sqe* sqe) {
            io_uring_prep_multishot_accept(sqe, socket_.get(), nullptr, nullptr, SOCK_CLOEXEC);
        });
    }
    void cancel_all() override {
        if (accepting_) core_.submit_cancel(*this, Op::accept);
    }
    void discard(Op op, const io_uring_cqe& cqe) override {
        if (op == Op::accept && cqe.res >= 0) Fd accepted(cqe.res);
    }
    void drop_callbacks() override {
        on_accept_ = nullptr;
        on_trouble_ = nullptr;
    }

  private:
    static bool is_shortage(int code) {
        return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
    }
    void back_off(int code) {
        waiting_ = true;
        core_.add_timer(Loop::now() + back_off_, [&core = core_, key = key_] {
            auto* self = static_cast<ListenerObject*>(core.find(key));
            if (self == nullptr || self->closed_) return;
            self->waiting_ = false;
            self->dirty();
        });
        back_off_ = std::min(back_off_ + back_off_, back_off_max);
        if (on_trouble_) on_trouble_(fail_errno("accept", code).value());
    }

    Fd socket_;
    std::function<void(Fd)> on_accept_;
    std::function<void(const Error&)> on_trouble_;
    bool accepting_ = false;
    bool waiting_ = false;
    Nanos back_off_ = back_off_min;
};

// ---- Watch: one-shot poll, armed again after each report

class WatchObject final : public Object {
  public:
    WatchObject(LoopCore& core, int fd, short events, bool once,
                std::function<void(short)> on_ready)
        : Object(core), fd_(fd), events_(events), once_(once), on_ready_(std::move(on_ready)) {}

    void complete(Op op, const io_uring_cqe& cqe, bool) override {
        if (op != Op::poll) return;
        polled_ = 0;
        cancelling_ = false;
        dirty();
        if (events_ == 0) return;
        if (cqe.res == -ECANCELED || cqe.res == -EINTR || cqe.res == -EAGAIN) return;
        // A completion for events that are no longer asked for says nothing; errors are always
        // reported.
        const short ready =
            cqe.res < 0 ? POLLERR
                        : static_cast<short>(cqe.res & (events_ | POLLERR | POLLHUP | POLLNVAL));
        if (ready == 0) return;
        if (once_ || cqe.res < 0) events_ = 0;  // the ring cannot poll it: told once
        on_ready_(ready);
    }

    void flush() override {
        if (polled_ != 0 && polled_ != events_ && !cancelling_) {
            cancelling_ = true;
            core_.submit_cancel(*this, Op::poll);
        }
        if (polled_ == 0 && events_ != 0) {
            polled_ = events_;
            core_.submit(*this, Op::poll, [&](io_uring_sqe* sqe) {
                io_uring_prep_poll_add(sqe, fd_, static_cast<unsigned>(events_));
            });
        }
    }
    void cancel_all() override {
        if (polled_ != 0) core_.submit_cancel(*this, Op::poll);
    }
    void drop_callbacks() override { on_ready_ = nullptr; }
    void set_events(short events) {
        events_ = events;
        dirty();
    }

  private:
    int fd_;
    short events_;
    short polled_ = 0;  // what the kernel was asked for; 0: nothing is with it
    bool cancelling_ = false;
    bool once_;
    std::function<void(short)> on_ready_;
};

// ---- Connect

class ConnectObject final : public Object {
  public:
    ConnectObject(LoopCore& core, Fd socket, const Address& address, Nanos limit,
                  std::function<void(Result<Fd>)> done)
        : Object(core),
          socket_(std::move(socket)),
          address_(address),
          limit_(limit),
          done_(std::move(done)) {}

    void complete(Op op, const io_uring_cqe& cqe, bool) override {
        if (op != Op::connect || told_) return;
        if (cqe.res == 0)
            tell(std::move(socket_));
        else
            tell(fail_errno("connect to " + address_.text(), -cqe.res));
    }

    void flush() override {
        if (started_) return;
        started_ = true;
        core_.submit(*this, Op::connect, [&](io_uring_sqe* sqe) {
            io_uring_prep_connect(sqe, socket_.get(), address_.raw(), address_.raw_bytes());
        });
        timer_ = Timer(&core_, core_.add_timer(Loop::now() + limit_, [this] {
            if (!closed_ && !told_) tell(fail_errno("connect to " + address_.text(), ETIMEDOUT));
        }));
    }
    void cancel_all() override { core_.submit_cancel(*this, Op::connect); }
    void drop_callbacks() override { done_ = nullptr; }

  private:
    // The last word: the object ends with it, its handle finds nothing any more.
    void tell(Result<Fd> result) {
        told_ = true;
        timer_.cancel();
        const auto done = std::move(done_);
        core_.close(key_);
        done(std::move(result));
    }

    Fd socket_;
    Address address_;
    Nanos limit_;
    std::function<void(Result<Fd>)> done_;
    Timer timer_;  // goes with the object, so it may name it
    bool started_ = false;
    bool told_ = false;
};

// ---- Sync

class SyncObject final : public Object {
  public:
    SyncObject(LoopCore& core, Fd file, uint64_t offset, uint32_t bytes,
               std::function<void(Status)> done)
        : Object(core),
          file_(std::move(file)),
          offset_(offset),
          bytes_(bytes),
          done_(std::move(done)) {}

    void complete(Op op, const io_uring_cqe& cqe, bool) override {
        if (op != Op::sync) return;
        const auto done = std::move(done_);
        const int code = -cqe.res;
        core_.close(key_);
        done(code > 0 ? fail_errno("sync a file", code) : Status{});
    }
    void flush() override {
        if (std::exchange(started_, true)) return;
        core_.submit(*this, Op::sync, [&](io_uring_sqe* sqe) {
            if (bytes_ == 0) return io_uring_prep_fsync(sqe, file_.get(), IORING_FSYNC_DATASYNC);
            io_uring_prep_sync_file_range(
                sqe, file_.get(), bytes_, offset_,
                SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
        });
    }
    void cancel_all() override { core_.submit_cancel(*this, Op::sync); }
    void drop_callbacks() override { done_ = nullptr; }

  private:
    Fd file_;
    uint64_t offset_;
    uint32_t bytes_;
    std::function<void(Status)> done_;
    bool started_ = false;
};

}  // namespace

std::unique_ptr<Object> make_listener(LoopCore& core, Fd socket, std::function<void(Fd)> on_accept,
                                      std::function<void(const Error&)> on_trouble) {
    return std::make_unique<ListenerObject>(core, std::move(socket), std::move(on_accept),
                                            std::move(on_trouble));
}

std::unique_ptr<Object> make_watch(LoopCore& core, int fd, short events, bool once,
                                   std::function<void(short)> on_ready) {
    return std::make_unique<WatchObject>(core, fd, events, once, std::move(on_ready));
}

std::unique_ptr<Object> make_connect(LoopCore& core, Fd socket, const Address& address, Nanos limit,
                                     std::function<void(Result<Fd>)> done) {
    return std::make_unique<ConnectObject>(core, std::move(socket), address, limit,
                                           std::move(done));
}

std::unique_ptr<Object> make_sync(LoopCore& core, Fd file, uint64_t offset, uint32_t bytes,
                                  std::function<void(Status)> done) {
    return std::make_unique<SyncObject>(core, std::move(file), offset, bytes, std::move(done));
}

void Watch::set_events(short events) {
    if (core_ == nullptr) return;
    if (Object* object = core_->find(key_)) static_cast<WatchObject*>(object)->set_events(events);
}

}  // namespace souk
