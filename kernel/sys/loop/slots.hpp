// SPDX-License-Identifier: GPL-2.0-or-later
// SlotTable<T>: owns objects under keys of slot and generation. A slot is used again with the next
// generation, so a key that outlived its object (a late completion, a stale handle) finds nothing,
// never the slot's new tenant. Bounded: insert fails (null key) once `slots_max` are taken.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/base/check.hpp"

namespace souk {

struct SlotKey {
    uint32_t slot = 0;
    uint32_t generation = 0;  // 0: names nothing
    auto operator<=>(const SlotKey&) const = default;
    explicit operator bool() const { return generation != 0; }
};

template <class T>
class SlotTable {
  public:
    explicit SlotTable(uint32_t slots_max) : slots_max_(slots_max) {}

    // Takes ownership; the null key if the table is full.
    SlotKey insert(std::unique_ptr<T> object) {
        uint32_t slot;
        if (!free_.empty()) {
            slot = free_.back();
            free_.pop_back();
        } else {
            if (entries_.size() >= slots_max_) return {};
            slot = static_cast<uint32_t>(entries_.size());
            entries_.push_back({});
        }
        entries_[slot].object = std::move(object);
        ++used_;
        return {slot, entries_[slot].generation};
    }

    T* find(SlotKey key) const {
        if (key.slot >= entries_.size() || entries_[key.slot].generation != key.generation)
            return nullptr;
        return entries_[key.slot].object.get();
    }

    // Gives the object back; the slot may be used again from now on, under another generation.
    std::unique_ptr<T> take(SlotKey key) {
        MUST(find(key) != nullptr);
        Entry& entry = entries_[key.slot];
        std::unique_ptr<T> object = std::move(entry.object);
        if (++entry.generation == 0) entry.generation = 1;
        free_.push_back(key.slot);
        --used_;
        return object;
    }

    uint32_t used() const { return used_; }

    // Calls visit(key, object) for each; `visit` neither inserts nor takes.
    template <class Visit>
    void each(Visit visit) const {
        for (uint32_t slot = 0; slot < entries_.size(); ++slot)
            if (entries_[slot].object)
                visit(SlotKey{slot, entries_[slot].generation}, *entries_[slot].object);
    }

  private:
    struct Entry {
        uint32_t generation = 1;
        std::unique_ptr<T> object;
    };
    uint32_t slots_max_;
    uint32_t used_ = 0;
    std::vector<Entry> entries_;
    std::vector<uint32_t> free_;
};

}  // namespace souk
