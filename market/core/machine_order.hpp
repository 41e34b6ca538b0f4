// SPDX-License-Identifier: GPL-2.0-or-later
// MachineOrder: the machines in the order in which a job wants them (class, then key), in blocks that each know the
// most room that a machine of theirs has and the weakest guest that could be displaced there. Owned by the Allocator.
//
// A block's summary may be too generous (the next search that finds nothing in it tightens it), never too
// strict.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "market/core/rank.hpp"

namespace souk::market {

class MachineOrder {
  public:
    struct Entry {
        ClassKey cls = class_none;
        uint64_t key = 0;
        Rank weakest = Rank::top();  // of its guests; top: none that could be displaced
        int64_t free_mb = 0;
        int32_t free_cpus = 0;
        uint32_t machine = 0;
    };

    void insert(const Entry& entry);
    void erase(uint32_t machine);
    void clear();
    // New room and weakest guest of a machine that is there.
    void update(uint32_t machine, int32_t free_cpus, int64_t free_mb, const Rank& weakest);
    bool empty() const { return blocks_.empty(); }
    // The fastest class there is; class_none if nobody accepts.
    ClassKey fastest() const { return blocks_.empty() ? class_none : blocks_[0]->entries[0].cls; }

    // A pass asks for jobs in rank order; the machines at the front that can take nobody after `rank` are skipped from
    // then on. begin_pass() forgets that.
    void begin_pass() { closed_ = 0; }
    // True if no machine can take a job of this rank or after it.
    bool close_until(const Rank& rank) {
        while (closed_ < summaries_.size() && summaries_[closed_].free_cpus < 1 && summaries_[closed_].weakest <= rank)
            ++closed_;
        return closed_ == summaries_.size();
    }

    // The first machine of a class in [from, below) that fits(entry) says yes to, among those that have the room
    // free or a guest weaker than `rank`; nullptr if none. Looks at no block before `start`.
    template <class Fits>
    const Entry* find(ClassKey from, ClassKey below, int32_t cpus, int64_t mb, const Rank& rank, size_t start,
                      Fits&& fits) {
        for (size_t b = std::max({block_of_class(from), closed_, start});
             b < summaries_.size() && summaries_[b].first < below; ++b) {
            const Summary& s = summaries_[b];
            if ((s.free_cpus < cpus || s.free_mb < mb) && s.weakest <= rank) continue;
            const Block& block = *blocks_[b];
            bool whole = true;
            for (uint32_t i = 0; i < block.n; ++i) {
                const Entry& e = block.entries[i];
                if (e.cls < from || e.cls >= below) {
                    whole = false;
                    continue;
                }
                if ((e.free_cpus < cpus || e.free_mb < mb) && e.weakest <= rank) continue;
                if (fits(e)) return &e;
            }
            if (whole) summarise(b);
        }
        return nullptr;
    }

    size_t block_of(const Entry& e) const { return home_[e.machine]->position; }
    size_t blocks() const { return blocks_.size(); }

    // Every machine of a class in [from, below), in order, that may have a guest weaker than `bar` (visit may raise
    // the bar as it goes).
    template <class Visit>
    void each_weaker(ClassKey from, ClassKey below, Rank& bar, Visit&& visit) const {
        for (size_t b = block_of_class(from); b < summaries_.size() && summaries_[b].first < below; ++b) {
            if (summaries_[b].weakest <= bar) continue;
            const Block& block = *blocks_[b];
            for (uint32_t i = 0; i < block.n; ++i) {
                const Entry& e = block.entries[i];
                if (e.cls >= from && e.cls < below && e.weakest > bar) visit(e);
            }
        }
    }

    // Every machine in order; visit returns false to stop.
    template <class Visit>
    void each(Visit&& visit) const {
        for (const auto& block : blocks_)
            for (uint32_t i = 0; i < block->n; ++i)
                if (!visit(block->entries[i])) return;
    }

  private:
    static constexpr uint32_t block_max = 64;

    struct Block {
        uint32_t position = 0;
        uint32_t n = 0;
        Entry entries[block_max];
    };
    struct Summary {
        ClassKey first = 0;
        ClassKey last = 0;
        Rank weakest;
        int64_t free_mb = 0;
        int32_t free_cpus = 0;
    };

    size_t block_of_class(ClassKey from) const {
        return static_cast<size_t>(std::partition_point(summaries_.begin(), summaries_.end(),
                                                        [&](const Summary& s) { return s.last < from; }) -
                                   summaries_.begin());
    }
    static void widen(Summary& s, const Entry& e);
    void summarise(size_t b);
    void renumber(size_t from);
    void split(size_t b);
    Entry* entry_of(uint32_t machine);

    std::vector<std::unique_ptr<Block>> blocks_;
    std::vector<Summary> summaries_;
    std::vector<Block*> home_;  // of each machine
    size_t closed_ = 0;         // blocks at the front that this pass need not look at again
};

}  // namespace souk::market
