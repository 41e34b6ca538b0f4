// SPDX-License-Identifier: GPL-2.0-or-later
// Slots: the requests that a client has taken from its kernel and not answered, in memory that
// outlives it (an anonymous file that the keeper of the mount holds). The kernel gives a request
// once: a client that is started in place of a dead one finds here what that one had taken, since
// the kernel writes straight into a slot. So each request is answered once, whoever answers.
// A kernel that has to look for a page of a slot while its reader is killed fails the request (EIO)
// and leaves half of it there. So the memory is made ready before it is read into, and what was
// being read counts only if the kernel still waits for it.
//
// A write that was answered ahead of the home (write_behind.hpp) stays here until the home has it,
// and what the home then says against it stays until the job has heard.
//
// Who works with them holds a lock of the file, so there is never more than one client of a mount.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <functional>
#include <span>

#include "agentd/files/talk.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::files {

struct Slot {
    enum State : uint32_t { free = 0, reading, taken };
    uint32_t state = free;
    uint32_t bytes = 0;  // of the request
    uint64_t seq = 0;    // its number in the talk with the server
    // Tells that the kernel has its answer already, or needs none: the request was a signal, or one
    // of the client's own. If it is `ahead` (a write) or `ended` (EINTR), a client that was killed
    // may only have been about to answer.
    enum Dropped : uint32_t { no = 0, yes, ahead, ended };
    uint32_t dropped = no;
    uint32_t signalled = 0;  // 1: a signal came to who waits for it
    int64_t since_ns = 0;    // when it was taken, by the monotonic clock
};

// A home has refused a write that was answered ahead. This keeps the error for the open file until
// the job has heard it.
struct FailedWrite {
    uint64_t node = 0, fh = 0;
    int32_t error = 0;  // 0: free
    uint32_t unused = 0;
};

class Slots {
  public:
    static constexpr size_t failed_max = 64;
    // The memory, to be kept; nothing is in it yet.
    static Result<Fd> make();
    // Waits until no other client works with it. Requests that were taken stay taken; take_over()
    // deals with those that were being read.
    static Result<Slots> open(int file);
    Slots(Slots&& other) noexcept;
    Slots& operator=(Slots&&) = delete;
    ~Slots();

    Slot& at(uint32_t n) { return table()->slot[n]; }
    // Returns the place of a slot's request; it has room for request_bytes_max.
    uint8_t* data(uint32_t n) { return map_ + head_bytes + size_t{n} * slot_bytes; }
    // Returns the head of the request that lies there.
    fuse_in_header head(uint32_t n);
    // Takes the request in the slot, and gives it its number.
    void take(uint32_t n, int64_t now_ns);
    // Returns a free slot; below 0: all are taken.
    int find_free();
    // Does the same with a slot into which the kernel may put a request of any length.
    int find_ready();
    // A slot that is free is about to be read into.
    void begin_reading(uint32_t n);
    // So much was read into it: the slot where it lies from now on. What is short goes elsewhere,
    // so that few slots are ready, which is a megabyte each.
    uint32_t has_read(uint32_t n, size_t bytes);
    // Takes over what an earlier client was reading: each request that is whole and was not taken.
    // `waits` tells whether the kernel waits for the answer to that number.
    Status take_over(const std::function<bool(uint64_t unique)>& waits,
                     const std::function<Status(uint32_t n, size_t bytes)>& take);
    bool used() { return table()->next_seq > 1; }
    uint64_t next_seq() { return table()->next_seq++; }
    uint64_t last_seq() { return table()->next_seq - 1; }
    // Returns the number below which all requests have their answers, but for those that wait for a
    // lock: these may be sent again under an older number.
    uint64_t acked();
    // Returns how many numbers were given since the first request that has no answer.
    uint64_t span() { return table()->next_seq - acked(); }
    uint32_t free_slots();
    void drop(uint32_t n);
    // Gives back the memory of slots that are seldom used, and free.
    void give_back();
    bool has_grown() const { return grown_ != 0; }
    // Whoever closes a file of this mount that he may write to is heard (FUSE_FLUSH). Said once, by
    // the first client.
    bool closes_are_heard() { return table()->closes_are_heard != 0; }
    void hear_closes() { table()->closes_are_heard = 1; }
    // The home has the locks of this mount's files. Said once, as the mount begins.
    bool locks_are_homes() { return table()->locks_are_homes != 0; }
    void leave_locks_to_home() { table()->locks_are_homes = 1; }
    std::span<FailedWrite> failed() { return table()->failed; }

  private:
    static constexpr size_t head_bytes = 8192, slot_bytes = (request_bytes_max + 4095) & ~4095U;
    static constexpr size_t total_bytes = head_bytes + slots * slot_bytes;
    struct Table {
        uint64_t magic;
        uint64_t next_seq;
        Slot slot[slots];
        // A table that an older version made has zeros here.
        uint64_t closes_are_heard;
        FailedWrite failed[failed_max];
        uint64_t locks_are_homes;
    };
    static_assert(sizeof(Table) <= head_bytes);
    Slots(int file, uint8_t* map) : file_(file), map_(map) {}
    Table* table() { return reinterpret_cast<Table*>(map_); }
    void becomes(uint32_t n, Slot::State state);
    void make_ready(uint32_t n);
    bool is_ready(uint32_t n) const { return (ready_ & (uint64_t{1} << n)) != 0; }
    bool is_left(uint32_t n, const std::function<bool(uint64_t)>& waits);

    int file_;
    uint8_t* map_;
    uint64_t grown_ = 0;  // a bit for each slot whose memory is worth giving back
    uint64_t ready_ = 0;  // a bit for each slot whose memory is there, and mapped
};

}  // namespace souk::files
