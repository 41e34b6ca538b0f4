// SPDX-License-Identifier: GPL-2.0-or-later
// Stream: multishot receive into the ring's shared buffers (bulk: one by one into a bigger one of
// its own), and a bounded queue of chunks of which one gathering send is under way at a time. Small
// sends are copied together; a big one is queued as it is.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernel/base/check.hpp"
#include "kernel/sys/loop/loop_core.hpp"

namespace souk {
namespace {

constexpr size_t chunk_bytes = 16 * 1024;  // small sends share chunks of this size
constexpr size_t gather_max = 16;          // chunks per send

class StreamObject final : public Object {
  public:
    StreamObject(LoopCore& core, Fd socket, StreamHandlers handlers, StreamOptions options)
        : Object(core),
          socket_(std::move(socket)),
          handlers_(std::move(handlers)),
          options_(options) {}

    void complete(Op op, const io_uring_cqe& cqe, bool more) override {
        if (op == Op::receive) received(cqe, more);
        if (op == Op::send) sent(cqe.res);
    }
    void flush() override;
    void cancel_all() override {
        if (receiving_) core_.submit_cancel(*this, Op::receive);
        if (sending_ > 0) core_.submit_cancel(*this, Op::send);
    }
    void continue_soon() override {
        deliver_held();
        if (send_error_ != 0 && !closed_) broken(fail_errno("send", send_error_).value());
    }
    void drop_callbacks() override { handlers_ = {}; }

    Status may_send(size_t bytes);
    void append(ByteView bytes);
    void append(Bytes&& bytes);
    size_t queued() const { return queued_; }
    void set_paused(bool paused);
    void expect_bulk(size_t buffer_bytes) {
        MUST(bulk_.empty());
        bulk_.resize(buffer_bytes);
        dirty();
    }
    void finish() {
        finishing_ = true;
        dirty();
    }
    void linger(Nanos limit);
    int fd() const { return socket_.get(); }

  private:
    struct Chunk {
        Bytes bytes;
        size_t taken = 0;  // by the kernel
    };
    void received(const io_uring_cqe& cqe, bool more);
    void end_of_input();
    void deliver_held();
    void sent(int res);
    void send_queue();
    void send_failed(int code);
    void broken(const Error& error);
    void add_queued(size_t bytes) {
        queued_ += bytes;
        if (queued_ > options_.send_queue_bytes_max / 2) want_drain_ = true;
        dirty();
    }

    Fd socket_;
    StreamHandlers handlers_;
    StreamOptions options_;

    bool receiving_ = false;  // a receive is with the kernel: multishot, or one into `bulk_`
    bool receiving_bulk_ = false;
    Bytes bulk_;
    bool stopping_receive_ = false;
    bool paused_ = false;
    bool eof_ = false;  // seen; told once `held_` is delivered
    bool eof_told_ = false;
    Bytes held_;  // what had arrived when reading was paused

    std::vector<Chunk> queue_;  // the first `sending_` are with the kernel
    size_t sending_ = 0;
    size_t queued_ = 0;
    bool want_drain_ = false;
    bool finishing_ = false;
    bool finished_ = false;  // FIN sent
    int send_error_ = 0;     // told after what has been received
    bool broken_ = false;
    bool lingering_ = false;
    msghdr message_{};
    iovec gather_[gather_max];
};

// ---- receiving

void StreamObject::received(const io_uring_cqe& cqe, bool more) {
    if (!more) {
        receiving_ = false;
        stopping_receive_ = false;
        dirty();
    }
    if (broken_) return;
    if (cqe.res > 0) {
        if (lingering_) return;
        const bool shared = (cqe.flags & IORING_CQE_F_BUFFER) != 0;
        const ByteView bytes =
            shared ? core_.ring().buffer(cqe) : ByteView(bulk_).first(static_cast<size_t>(cqe.res));
        if (paused_ || !held_.empty())
            held_.insert(held_.end(), bytes.begin(), bytes.end());
        else
            handlers_.on_data(bytes);
    } else if (cqe.res == 0) {
        eof_ = true;
        if (!paused_ && held_.empty()) end_of_input();
    } else if (cqe.res == -ENOBUFS) {
        ++core_.stats().buffer_shortages;  // armed again once this iteration has given buffers back
        core_.ring().more_buffers();
    } else if (cqe.res != -ECANCELED && cqe.res != -EINTR && cqe.res != -EAGAIN) {
        broken(fail_errno("receive", -cqe.res).value());
    }
}

void StreamObject::end_of_input() {
    if (eof_told_) return;
    eof_told_ = true;
    if (lingering_) {
        if (finished_) core_.close(key_);
        return;
    }
    if (handlers_.on_eof)
        handlers_.on_eof();
    else
        broken(Error{0, "the peer closed the connection"});
}

void StreamObject::deliver_held() {
    if (paused_ || broken_) return;
    const Bytes held = std::exchange(held_, {});
    if (!held.empty() && !lingering_) handlers_.on_data(held);
    if (closed_ || broken_) return;
    if (paused_) return;  // again, inside on_data
    if (eof_) end_of_input();
    dirty();
}

void StreamObject::set_paused(bool paused) {
    if (paused_ == paused) return;
    paused_ = paused;
    if (!paused && (!held_.empty() || eof_)) core_.run_soon(key_);
    dirty();
}

// ---- sending

Status StreamObject::may_send(size_t bytes) {
    if (broken_ || send_error_ != 0) return fail("the connection is broken");
    if (finishing_) return fail("the stream was finished");
    if (bytes > options_.send_queue_bytes_max - std::min(queued_, options_.send_queue_bytes_max)) {
        want_drain_ = true;
        return fail_errno(
            "the send queue of " + std::to_string(options_.send_queue_bytes_max) + " bytes is full",
            ENOBUFS);
    }
    return {};
}

void StreamObject::append(ByteView bytes) {
    const size_t total = bytes.size();
    while (!bytes.empty()) {
        if (queue_.size() == sending_ || queue_.back().bytes.size() >= chunk_bytes)
            queue_.push_back({});
        Bytes& tail = queue_.back().bytes;
        const size_t part = std::min(bytes.size(), chunk_bytes - tail.size());
        tail.insert(tail.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(part));
        bytes = bytes.subspan(part);
    }
    add_queued(total);
}

void StreamObject::append(Bytes&& bytes) {
    if (bytes.size() < chunk_bytes / 4) return append(ByteView(bytes));
    const size_t total = bytes.size();
    queue_.push_back({std::move(bytes)});
    add_queued(total);
}

void StreamObject::send_queue() {
    sending_ = std::min(queue_.size(), gather_max);
    for (size_t i = 0; i < sending_; ++i) {
        Chunk& chunk = queue_[i];
        gather_[i] = {chunk.bytes.data() + chunk.taken, chunk.bytes.size() - chunk.taken};
    }
    message_ = {};
    message_.msg_iov = gather_;
    message_.msg_iovlen = sending_;
    core_.submit(*this, Op::send, [&](io_uring_sqe* sqe) {
        io_uring_prep_sendmsg(sqe, socket_.get(), &message_, MSG_NOSIGNAL);
    });
}

void StreamObject::sent(int res) {
    const size_t was_sending = std::exchange(sending_, 0);
    if (broken_) {
        queue_.clear();
        return;
    }
    if (res < 0 && res != -EINTR && res != -EAGAIN && res != -ECANCELED) return send_failed(-res);
    size_t taken = res > 0 ? static_cast<size_t>(res) : 0;
    MUST(taken <= queued_);
    queued_ -= taken;
    size_t done = 0;
    while (taken > 0) {
        MUST(done < was_sending);
        Chunk& chunk = queue_[done];
        const size_t part = std::min(taken, chunk.bytes.size() - chunk.taken);
        chunk.taken += part;
        taken -= part;
        if (chunk.taken == chunk.bytes.size()) ++done;
    }
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(done));
    if (queue_.empty()) queue_.shrink_to_fit();  // an idle connection holds no memory
    dirty();
    if (want_drain_ && queued_ <= options_.send_queue_bytes_max / 2) {
        want_drain_ = false;
        if (handlers_.on_drain && !lingering_) handlers_.on_drain();
    }
}

// The peer's last words may have arrived in the same batch of completions: they are heard before
// the error.
void StreamObject::send_failed(int code) {
    if (send_error_ != 0) return;
    send_error_ = code;
    queue_.clear();
    queued_ = 0;
    core_.run_soon(key_);
}

void StreamObject::broken(const Error& error) {
    if (broken_) return;
    broken_ = true;
    held_ = {};
    queued_ = 0;
    if (sending_ == 0) queue_.clear();  // else the kernel still reads from it
    if (lingering_)
        core_.close(key_);
    else
        handlers_.on_error(error);
}

void StreamObject::linger(Nanos limit) {
    lingering_ = finishing_ = true;
    paused_ = false;
    held_ = {};
    if (broken_) return core_.close(key_);
    core_.add_timer(Loop::now() + limit, [&core = core_, key = key_] { core.close(key); });
    dirty();
}

void StreamObject::flush() {
    if (broken_) {
        if (receiving_ && !std::exchange(stopping_receive_, true))
            core_.submit_cancel(*this, Op::receive);
        return;
    }
    const bool other_way = receiving_ && receiving_bulk_ == bulk_.empty();
    if ((paused_ || other_way) && receiving_ && !stopping_receive_) {
        stopping_receive_ = true;
        core_.submit_cancel(*this, Op::receive);
    }
    if (!paused_ && !receiving_ && !eof_ && held_.empty()) {
        receiving_ = true;
        receiving_bulk_ = !bulk_.empty();
        core_.submit(*this, Op::receive, [&](io_uring_sqe* sqe) {
            if (receiving_bulk_)
                return io_uring_prep_recv(sqe, socket_.get(), bulk_.data(), bulk_.size(), 0);
            io_uring_prep_recv_multishot(sqe, socket_.get(), nullptr, 0, 0);
            sqe->flags |= IOSQE_BUFFER_SELECT;
            sqe->buf_group = Ring::buffer_group;
        });
    }
    if (sending_ == 0 && !queue_.empty()) {
        if (!core_.sends_held())
            send_queue();
        else
            core_.send_later(key_);
    }
    if (finishing_ && !finished_ && sending_ == 0 && queue_.empty()) {
        finished_ = true;
        shutdown(socket_.get(), SHUT_WR);  // fails only where the peer is gone: receiving tells
        if (lingering_ && eof_) core_.close(key_);
    }
}

}  // namespace

std::unique_ptr<Object> make_stream(LoopCore& core, Fd socket, StreamHandlers handlers,
                                    StreamOptions options) {
    return std::make_unique<StreamObject>(core, std::move(socket), std::move(handlers), options);
}

// ---- the handle

Status Stream::send(ByteView bytes) {
    MUST(core_ != nullptr);
    StreamObject& stream = core_->get<StreamObject>(key_);
    TRY(stream.may_send(bytes.size()));
    stream.append(bytes);
    return {};
}

Status Stream::send(Bytes&& bytes) {
    MUST(core_ != nullptr);
    StreamObject& stream = core_->get<StreamObject>(key_);
    TRY(stream.may_send(bytes.size()));
    stream.append(std::move(bytes));
    return {};
}

Status Stream::may_send(size_t bytes) {
    MUST(core_ != nullptr);
    return core_->get<StreamObject>(key_).may_send(bytes);
}

size_t Stream::queued() const {
    return core_ == nullptr ? 0 : core_->get<StreamObject>(key_).queued();
}

void Stream::pause_reading() {
    if (core_ != nullptr) core_->get<StreamObject>(key_).set_paused(true);
}

void Stream::expect_bulk(size_t buffer_bytes) {
    if (core_ != nullptr) core_->get<StreamObject>(key_).expect_bulk(buffer_bytes);
}

void Stream::resume_reading() {
    if (core_ != nullptr) core_->get<StreamObject>(key_).set_paused(false);
}

void Stream::finish() {
    if (core_ != nullptr) core_->get<StreamObject>(key_).finish();
}

void Stream::close_after_send(Nanos limit) {
    if (core_ == nullptr) return;
    core_->get<StreamObject>(key_).linger(limit);
    core_ = nullptr;
    key_ = {};
}

int Stream::fd() const { return core_ == nullptr ? -1 : core_->get<StreamObject>(key_).fd(); }

}  // namespace souk
