// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/loop/ring.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "kernel/base/check.hpp"

namespace souk {
namespace {

constexpr unsigned rungs[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN,
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
    IORING_SETUP_COOP_TASKRUN,
    0,
};

constexpr size_t page = 4096;

}  // namespace

Result<std::unique_ptr<Ring>> Ring::open(const RingOptions& options) {
    std::unique_ptr<Ring> ring(new Ring);
    TRY(ring->set_up(options));
    TRY(ring->set_up_buffers(options));
    return ring;
}

Status Ring::set_up(const RingOptions& options) {
    int error = EINVAL;
    for (unsigned rung = options.first_rung; rung < std::size(rungs) && error == EINVAL; ++rung) {
        io_uring_params params{};
        params.flags =
            rungs[rung] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL;
        params.cq_entries = options.cq_entries;
        error = -io_uring_queue_init_params(options.sq_entries, &ring_, &params);
    }
    if (error == EPERM || error == EACCES)
        return fail_errno("io_uring is forbidden here (sysctl kernel.io_uring_disabled must be 0)",
                          error);
    if (error == ENOSYS) return fail_errno("this kernel has no io_uring", error);
    if (error == ENOMEM) return fail_errno("io_uring_setup (is RLIMIT_MEMLOCK very low?)", error);
    if (error != 0) return fail_errno("io_uring_setup", error);
    open_ = true;
    // Multishot receive itself cannot be asked for; the send of the same release, Linux 6.0, can.
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    const bool recent = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_SEND_ZC);
    io_uring_free_probe(probe);
    if (!recent)
        return fail(
            "this kernel's io_uring has no multishot receive: Linux 6.0 or newer is needed");
    io_uring_register_ring_fd(&ring_);  // saves a file lookup per call; as good without
    return {};
}

Status Ring::set_up_buffers(const RingOptions& options) {
    MUST(std::has_single_bit(options.buffers) && options.buffers <= 32768 &&
         options.buffers_first > 0);
    buffer_count_ = options.buffers;
    buffer_bytes_ = options.buffer_bytes;
    const size_t head = (buffer_count_ * sizeof(io_uring_buf) + page - 1) / page * page;
    map_bytes_ = head + size_t{buffer_count_} * buffer_bytes_;
    void* map =
        mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return fail_errno("memory for receive buffers", errno);
    buffer_ring_ = static_cast<io_uring_buf_ring*>(map);
    buffers_ = static_cast<uint8_t*>(map) + head;
    io_uring_buf_reg reg{};
    reg.ring_addr = reinterpret_cast<uint64_t>(map);
    reg.ring_entries = buffer_count_;
    reg.bgid = buffer_group;
    if (const int ret = io_uring_register_buf_ring(&ring_, &reg, 0); ret < 0)
        return fail_errno("registering receive buffers with io_uring", -ret);
    io_uring_buf_ring_init(buffer_ring_);
    publish(options.buffers_first);
    return {};
}

void Ring::publish(unsigned count) {
    const unsigned first = published_;
    published_ = std::max(first, std::min(count, buffer_count_));
    for (unsigned i = first; i < published_; ++i)
        io_uring_buf_ring_add(buffer_ring_, buffers_ + size_t{i} * buffer_bytes_, buffer_bytes_,
                              static_cast<uint16_t>(i), io_uring_buf_ring_mask(buffer_count_),
                              static_cast<int>(i - first));
    io_uring_buf_ring_advance(buffer_ring_, static_cast<int>(published_ - first));
}

Ring::~Ring() {
    if (open_) io_uring_queue_exit(&ring_);
    if (buffer_ring_ != nullptr) munmap(buffer_ring_, map_bytes_);
}

io_uring_sqe* Ring::sqe() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    for (int tries = 0; sqe == nullptr && tries < 1000; ++tries) {
        io_uring_submit(&ring_);
        sqe = io_uring_get_sqe(&ring_);
    }
    MUST(sqe != nullptr);
    return sqe;
}

namespace {
Status entered(int ret) {
    // EBUSY and EAGAIN: the kernel wants completions to be taken first, or was short of memory for
    // a moment.
    if (ret >= 0 || ret == -EINTR || ret == -EBUSY || ret == -EAGAIN || ret == -ETIME) return {};
    return fail_errno("io_uring_enter", -ret);
}
}  // namespace

Status Ring::enter(bool wait) {
    return entered(wait ? io_uring_submit_and_wait(&ring_, 1)
                        : io_uring_submit_and_get_events(&ring_));
}

Status Ring::enter_for(Nanos limit) {
    __kernel_timespec ts{limit.ns / 1'000'000'000, limit.ns % 1'000'000'000};
    io_uring_cqe* first = nullptr;
    return entered(io_uring_submit_and_wait_timeout(&ring_, &first, 1, &ts, nullptr));
}

unsigned Ring::reap(io_uring_cqe* out, unsigned max) {
    io_uring_cqe* cqes[64];
    const unsigned n =
        io_uring_peek_batch_cqe(&ring_, cqes, std::min<unsigned>(max, std::size(cqes)));
    for (unsigned i = 0; i < n; ++i) out[i] = *cqes[i];
    io_uring_cq_advance(&ring_, n);
    return n;
}

ByteView Ring::buffer(const io_uring_cqe& cqe) const {
    const unsigned id = cqe.flags >> IORING_CQE_BUFFER_SHIFT;
    MUST((cqe.flags & IORING_CQE_F_BUFFER) != 0 && id < buffer_count_);
    const size_t bytes = cqe.res > 0 ? static_cast<size_t>(cqe.res) : 0;
    MUST(bytes <= buffer_bytes_);
    return {buffers_ + size_t{id} * buffer_bytes_, bytes};
}

void Ring::give_back(const io_uring_cqe& cqe) {
    const unsigned id = cqe.flags >> IORING_CQE_BUFFER_SHIFT;
    MUST(id < buffer_count_);
    io_uring_buf_ring_add(buffer_ring_, buffers_ + size_t{id} * buffer_bytes_, buffer_bytes_,
                          static_cast<uint16_t>(id), io_uring_buf_ring_mask(buffer_count_), 0);
    io_uring_buf_ring_advance(buffer_ring_, 1);
}

}  // namespace souk
