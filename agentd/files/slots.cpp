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
constexpr uint32_t often_used = 8;       // slots whose memory stays
constexpr uint32_t small_bytes = 16384;  // memory that is not worth giving back
}  // namespace

Result<Fd> Slots::make() {
    Fd file(::memfd_create("souk-files", MFD_CLOEXEC));
    if (!file) return fail_errno("memfd_create", errno);
    if (::ftruncate(file.get(), total_bytes) != 0) return fail_errno("ftruncate", errno);
    const Table table{magic, 1, {}, 0, {}};
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
    for (uint32_t n = 0; n < slots; ++n) {
        Slot& slot = all.at(n);
        if (slot.state != Slot::reading) continue;
        // The client before was at it: has its kernel given it something?
        const fuse_in_header head = all.head(n);
        if (head.len < sizeof head || head.len > request_bytes_max) {
            slot.state = Slot::free;
            continue;
        }
        slot.bytes = head.len;
        slot.seq = all.next_seq();
        slot.state = Slot::taken;
    }
    return all;
}

Slots::Slots(Slots&& other) noexcept
    : file_(other.file_), map_(std::exchange(other.map_, nullptr)), grown_(other.grown_) {}

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
    slot.state = Slot::taken;
    slot.since_ns = now_ns;
}

int Slots::find_free() {
    for (uint32_t n = 0; n < slots; ++n)
        if (at(n).state == Slot::free) return static_cast<int>(n);
    return -1;
}

uint64_t Slots::acked() {
    uint64_t least = table()->next_seq;
    for (uint32_t n = 0; n < slots; ++n)
        if (at(n).state == Slot::taken) least = std::min(least, at(n).seq);
    return least;
}

uint32_t Slots::free_slots() {
    uint32_t count = 0;
    for (uint32_t n = 0; n < slots; ++n) count += at(n).state == Slot::free;
    return count;
}

void Slots::drop(uint32_t n) {
    Slot& slot = at(n);
    if (n >= often_used && slot.bytes > small_bytes) grown_ |= uint64_t{1} << n;
    slot.state = Slot::free;
    slot.dropped = slot.signalled = 0;
}

void Slots::give_back() {
    for (uint32_t n = 0; n < slots; ++n) {
        if ((grown_ & (uint64_t{1} << n)) == 0 || at(n).state != Slot::free) continue;
        grown_ &= ~(uint64_t{1} << n);
        (void)::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          static_cast<off_t>(head_bytes + size_t{n} * slot_bytes), slot_bytes);
    }
}

}  // namespace souk::files
