// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/slots.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace souk::files {
namespace {
constexpr uint64_t magic = 0x736f756b736c6f74;
constexpr uint32_t often_used = 8;            // slots whose memory stays
constexpr uint32_t small_slot_bytes = 16384;  // memory that is not worth giving back
constexpr size_t page_bytes = 4096;
constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, of kernel 5.14

bool has_no_answer(uint32_t opcode) {
    return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT;
}
}  // namespace

Result<Fd> Slots::make() {
    Fd file(::memfd_create("souk-files", MFD_CLOEXEC));
    if (!file) return fail_errno("memfd_create", errno);
    if (::ftruncate(file.get(), total_bytes) != 0) return fail_errno("ftruncate", errno);
    const Table table{magic, 1, {}, 0, {}, 0};
    if (::pwrite(file.get(), &table, sizeof table, 0) != sizeof table)
        return fail_errno("write the table of requests", errno);
    return file;
}

Result<Slots> Slots::open(int file) {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    while (::fcntl(file, F_SETLKW, &whole) != 0)
        if (errno != EINTR) return fail_errno("lock the table of requests", errno);
    void* map = ::mmap(nullptr, total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) return fail_errno("map the table of requests", errno);
    Slots all(file, static_cast<uint8_t*>(map));
    if (all.table()->magic != magic) return fail("the table of requests is none");
    return all;
}

Slots::Slots(Slots&& other) noexcept
    : file_(other.file_),
      map_(std::exchange(other.map_, nullptr)),
      grown_(other.grown_),
      ready_(other.ready_) {}

Slots::~Slots() {
    if (map_) ::munmap(map_, total_bytes);
}

fuse_in_header Slots::head(uint32_t n) {
    fuse_in_header head{};
    std::memcpy(&head, data(n), sizeof head);
    return head;
}

void Slots::take(uint32_t n, int64_t now_ns) {
    Slot& slot = at(n);
    slot.seq = next_seq();
    slot.since_ns = now_ns;
    becomes(n, Slot::taken);
}

// Changes the state of a slot. This process may be killed between any two stores, so everything
// that the state promises must be in memory before it.
void Slots::becomes(uint32_t n, Slot::State state) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    at(n).state = state;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

// Prefers slots that are not ready, to leave the ready ones to the kernel.
int Slots::find_free() {
    int found = -1;
    for (uint32_t n = 0; n < slots; ++n) {
        if (at(n).state != Slot::free) continue;
        if (!is_ready(n)) return static_cast<int>(n);
        if (found < 0) found = static_cast<int>(n);
    }
    return found;
}

int Slots::find_ready() {
    int found = -1;
    for (uint32_t n = 0; n < slots; ++n) {
        if (at(n).state != Slot::free) continue;
        if (is_ready(n)) return static_cast<int>(n);
        if (found < 0) found = static_cast<int>(n);
    }
    if (found >= 0) make_ready(static_cast<uint32_t>(found));
    return found;
}

// Puts the pages of a slot into memory, because the kernel then finds them also while this process
// is being killed. If there is no memory, the slot is read into as it is.
void Slots::make_ready(uint32_t n) {
    const bool knows = ::madvise(data(n), slot_bytes, populate_write) == 0 || errno != EINVAL;
    for (size_t at = 0; !knows && at < slot_bytes; at += page_bytes)
        static_cast<volatile uint8_t*>(data(n))[at] = 0;
    ready_ |= uint64_t{1} << n;
    if (n >= often_used) grown_ |= uint64_t{1} << n;
}

void Slots::begin_reading(uint32_t n) {
    std::memset(data(n), 0, sizeof(fuse_in_header));
    at(n).dropped = Slot::no;
    at(n).signalled = 0;
    becomes(n, Slot::reading);
}

uint32_t Slots::has_read(uint32_t n, size_t bytes) {
    const int other = bytes <= small_slot_bytes ? find_free() : -1;
    if (other < 0 || is_ready(static_cast<uint32_t>(other))) return n;
    const auto to = static_cast<uint32_t>(other);
    std::memcpy(data(to), data(n), bytes);
    at(to).dropped = Slot::no;
    at(to).signalled = 0;
    becomes(to, Slot::reading);  // both: it is taken over once
    becomes(n, Slot::free);
    return to;
}

// A request that fits into the first page was read whole or not at all, because that page is there.
bool Slots::is_left(uint32_t n, const std::function<bool(uint64_t)>& waits) {
    const fuse_in_header h = head(n);
    if (h.len < sizeof h || h.len > request_bytes_max) return false;
    for (uint32_t other = 0; other < slots; ++other)
        if (other != n && at(other).state == Slot::taken && head(other).unique == h.unique)
            return false;
    return has_no_answer(h.opcode) ? h.len <= page_bytes : waits(h.unique);
}

Status Slots::take_over(const std::function<bool(uint64_t unique)>& waits,
                        const std::function<Status(uint32_t n, size_t bytes)>& take) {
    for (uint32_t n = 0; n < slots; ++n) {
        if (at(n).state != Slot::reading) continue;
        if (!is_left(n, waits)) {
            drop(n);
            continue;
        }
        TRY(take(n, head(n).len));
    }
    return {};
}

uint64_t Slots::acked() {
    uint64_t least = table()->next_seq;
    for (uint32_t n = 0; n < slots; ++n)
        if (at(n).state == Slot::taken && head(n).opcode != FUSE_SETLKW)
            least = std::min(least, at(n).seq);
    return least;
}

uint32_t Slots::free_slots() {
    uint32_t count = 0;
    for (uint32_t n = 0; n < slots; ++n) count += at(n).state == Slot::free;
    return count;
}

void Slots::drop(uint32_t n) {
    Slot& slot = at(n);
    if (n >= often_used && slot.bytes > small_slot_bytes) grown_ |= uint64_t{1} << n;
    becomes(n, Slot::free);
    slot.dropped = slot.signalled = 0;
}

void Slots::give_back() {
    for (uint32_t n = 0; n < slots; ++n) {
        if ((grown_ & (uint64_t{1} << n)) == 0 || at(n).state != Slot::free) continue;
        grown_ &= ~(uint64_t{1} << n);
        ready_ &= ~(uint64_t{1} << n);
        (void)::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          static_cast<off_t>(head_bytes + size_t{n} * slot_bytes), slot_bytes);
    }
}

}  // namespace souk::files
