// SPDX-License-Identifier: GPL-2.0-or-later
// Slots: the requests that a client has taken from its kernel and not answered, in memory that
// outlives it (an anonymous file that the keeper of the mount holds). The kernel gives a request
// once: a client that is started in place of a dead one finds here what that one had taken, whole,
// since the kernel writes straight into a slot. So each request is answered once, whoever answers.
//
// Who works with them holds a lock of the file, so there is never more than one client of a mount.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <span>

#include "agentd/files/talk.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::files {

struct Slot {
    enum State : uint32_t { free = 0, reading, taken };
    uint32_t state = free;
    uint32_t bytes = 0;      // of the request
    uint64_t seq = 0;        // its number in the talk with the server
    uint32_t dropped = 0;    // 1: its kernel has its answer already (a signal)
    uint32_t signalled = 0;  // 1: a signal came to who waits for it
    int64_t since_ns = 0;    // when it was taken, by the monotonic clock
};

class Slots {
  public:
    // The memory, to be kept; nothing is in it yet.
    static Result<Fd> make();
    // Waits until no other client works with it. What was taken stays taken.
    static Result<Slots> open(int file);
    Slots(Slots&& other) noexcept;
    Slots& operator=(Slots&&) = delete;
    ~Slots();

    Slot& at(uint32_t n) { return table()->slot[n]; }
    // Where the request of a slot lies; room for request_bytes_max.
    uint8_t* data(uint32_t n) { return map_ + head_bytes + size_t{n} * slot_bytes; }
    // Of the request that lies there.
    fuse_in_header head(uint32_t n);
    // It gets its number.
    void take(uint32_t n, int64_t now_ns);
    // Nothing: all are taken.
    int find_free();
    bool used() { return table()->next_seq > 1; }
    uint64_t next_seq() { return table()->next_seq++; }
    // All numbers below have their answers.
    uint64_t acked();
    // Gives it back, and most of the memory of one that is seldom used.
    void drop(uint32_t n);

  private:
    static constexpr size_t head_bytes = 8192, slot_bytes = (request_bytes_max + 4095) & ~4095U;
    static constexpr size_t total_bytes = head_bytes + slots * slot_bytes;
    struct Table {
        uint64_t magic;
        uint64_t next_seq;
        Slot slot[slots];
    };
    static_assert(sizeof(Table) <= head_bytes);
    Slots(int file, uint8_t* map) : file_(file), map_(map) {}
    Table* table() { return reinterpret_cast<Table*>(map_); }

    int file_;
    uint8_t* map_;
};

}  // namespace souk::files
