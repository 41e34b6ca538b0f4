// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/loop/timers.hpp"

#include <utility>

namespace souk {

SlotKey TimerHeap::add(Nanos deadline, std::function<void()> fn) {
    uint32_t slot;
    if (!free_.empty()) {
        slot = free_.back();
        free_.pop_back();
    } else {
        slot = static_cast<uint32_t>(entries_.size());
        entries_.push_back({});
    }
    entries_[slot].waiting = true;
    entries_[slot].fn = std::move(fn);
    heap_.push_back({deadline, next_seq_++, slot});
    entries_[slot].place = static_cast<uint32_t>(heap_.size() - 1);
    sift(entries_[slot].place);
    return {slot, entries_[slot].generation};
}

bool TimerHeap::waiting(SlotKey key) const {
    return key.slot < entries_.size() && entries_[key.slot].generation == key.generation &&
           entries_[key.slot].waiting;
}

bool TimerHeap::cancel(SlotKey key) {
    if (!waiting(key)) return false;
    remove(entries_[key.slot].place);
    return true;
}

bool TimerHeap::pop_due(Nanos now, uint64_t seq_end, std::function<void()>& fn) {
    if (heap_.empty() || heap_.front().deadline > now || heap_.front().seq >= seq_end) return false;
    fn = remove(0);
    return true;
}

void TimerHeap::put(uint32_t place, Node node) {
    heap_[place] = node;
    entries_[node.slot].place = place;
}

// Restores the order around a place whose node may be too early or too late for it.
void TimerHeap::sift(uint32_t place) {
    const Node node = heap_[place];
    while (place > 0 && node.before(heap_[(place - 1) / 2])) {
        put(place, heap_[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * static_cast<size_t>(place) + 1;
        if (child >= heap_.size()) break;
        if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
        if (!heap_[child].before(node)) break;
        put(place, heap_[child]);
        place = static_cast<uint32_t>(child);
    }
    put(place, node);
}

std::function<void()> TimerHeap::remove(uint32_t place) {
    const uint32_t slot = heap_[place].slot;
    const Node last = heap_.back();
    heap_.pop_back();
    if (place < heap_.size()) {
        heap_[place] = last;
        sift(place);
    }
    Entry& entry = entries_[slot];
    entry.waiting = false;
    if (++entry.generation == 0) entry.generation = 1;
    free_.push_back(slot);
    return std::exchange(entry.fn, nullptr);
}

}  // namespace souk
