// SPDX-License-Identifier: GPL-2.0-or-later
// TimerHeap: callbacks ordered by deadline, then by order of addition (a total order). A binary
// heap whose entries know their place, so that a cancelled timer leaves at once: O(log n) each, no
// memory held by dead timers. Has no clock.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernel/base/time.hpp"
#include "kernel/sys/loop/slots.hpp"

namespace souk {

class TimerHeap {
  public:
    SlotKey add(Nanos deadline, std::function<void()> fn);
    // Returns false if the key names no waiting timer (it fired, or was cancelled).
    bool cancel(SlotKey key);
    bool waiting(SlotKey key) const;
    // The earliest deadline; Nanos::never() if none waits.
    Nanos next() const { return heap_.empty() ? Nanos::never() : heap_.front().deadline; }
    // Everything added from now on has this sequence number or a later one.
    uint64_t next_seq() const { return next_seq_; }
    // Removes the earliest timer into `fn` if it is due at `now` and was added before `seq_end`.
    bool pop_due(Nanos now, uint64_t seq_end, std::function<void()>& fn);
    size_t size() const { return heap_.size(); }

  private:
    struct Node {
        Nanos deadline;
        uint64_t seq;
        uint32_t slot;
        bool before(const Node& o) const {
            return deadline != o.deadline ? deadline < o.deadline : seq < o.seq;
        }
    };
    struct Entry {
        uint32_t generation = 1;
        uint32_t place = 0;  // in heap_, if waiting
        bool waiting = false;
        std::function<void()> fn;
    };
    void put(uint32_t place, Node node);
    void sift(uint32_t place);
    std::function<void()> remove(uint32_t place);

    std::vector<Node> heap_;
    std::vector<Entry> entries_;
    std::vector<uint32_t> free_;
    uint64_t next_seq_ = 0;
};

}  // namespace souk
