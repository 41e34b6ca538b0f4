// SPDX-License-Identifier: GPL-2.0-or-later
// JobOrder: the competing jobs in rank order, in blocks that each know what is the least that their jobs need and the
// most that they would still take, so that "who is the first after this one who would take that place" skips whole
// blocks. Insert, erase: a binary search over the blocks and a short memmove. Owned by the Allocator.
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

class JobOrder {
  public:
    struct Entry {
        Rank rank;
        ClassKey bound = class_none;  // the job would go to any machine of a class before this
        int64_t memory_mb = 0;
        uint32_t job = 0;
        int32_t cpus = 0;
    };
    enum class Verdict { no, yes, stop };

    size_t size() const { return size_; }
    void insert(const Entry& entry);
    // The job must be there, under this rank.
    void erase(uint32_t job, const Rank& rank);
    void set_bound(uint32_t job, const Rank& rank, ClassKey bound);
    // Replaces everything; entries sorted by rank.
    void rebuild(const std::vector<Entry>& entries);
    void clear() { rebuild({}); }

    // The first entry after `cursor` with bound > cls that needs at most `cpus` and `memory_mb` and that check(entry)
    // says yes to; nullptr if there is none or check says stop. check may lower cpus and memory_mb as it goes.
    template <class Check>
    const Entry* find_after(const Rank& cursor, ClassKey cls, int32_t& cpus, int64_t& memory_mb, Check&& check) {
        for (size_t b = block_after(cursor); b < summaries_.size(); ++b) {
            const Summary& s = summaries_[b];
            if (s.bound_max <= cls || s.cpus_min > cpus || s.memory_min > memory_mb) continue;
            const Block& block = *blocks_[b];
            const Entry* const end = block.entries + block.n;
            const Entry* e = block.entries;
            const bool whole = e->rank > cursor;
            if (!whole) e = std::upper_bound(e, end, cursor, [](const Rank& r, const Entry& x) { return r < x.rank; });
            for (; e != end; ++e) {
                if (e->bound <= cls || e->cpus > cpus || e->memory_mb > memory_mb) continue;
                const Verdict v = check(*e);
                if (v == Verdict::yes) return e;
                if (v == Verdict::stop) return nullptr;
            }
            if (whole) summarise(b);
        }
        return nullptr;
    }

    // Every entry in rank order; visit returns false to stop. It may change the entry's bound (then call tighten()).
    template <class Visit>
    void each(Visit&& visit) {
        for (const auto& block : blocks_)
            for (uint32_t i = 0; i < block->n; ++i)
                if (!visit(block->entries[i])) return;
    }
    // The same from the first entry after `cursor`.
    template <class Visit>
    void each_after(const Rank& cursor, Visit&& visit) const {
        for (size_t b = block_after(cursor); b < blocks_.size(); ++b) {
            const Block& block = *blocks_[b];
            for (uint32_t i = 0; i < block.n; ++i)
                if (block.entries[i].rank > cursor && !visit(block.entries[i])) return;
        }
    }
    void tighten() {
        for (size_t b = 0; b < blocks_.size(); ++b) summarise(b);
    }

  private:
    static constexpr uint32_t block_max = 256;
    static constexpr uint32_t block_fill = 192;

    struct Block {
        uint32_t position = 0;  // in blocks_
        uint32_t n = 0;
        Entry entries[block_max];
    };
    struct Summary {
        Rank last;
        ClassKey bound_max = 0;
        int64_t memory_min = 0;
        int32_t cpus_min = 0;
    };

    // The first block that may hold an entry after `cursor`.
    size_t block_after(const Rank& cursor) const {
        return static_cast<size_t>(std::upper_bound(summaries_.begin(), summaries_.end(), cursor,
                                                    [](const Rank& r, const Summary& s) { return r < s.last; }) -
                                   summaries_.begin());
    }
    Entry* entry_of(uint32_t job, const Rank& rank);
    void summarise(size_t b);
    void widen(Summary& s, const Entry& e);
    void split(size_t b);
    void renumber(size_t from);

    std::vector<std::unique_ptr<Block>> blocks_;
    std::vector<Summary> summaries_;  // of blocks_, side by side for the scan
    std::vector<Block*> home_;        // of each job
    size_t size_ = 0;
};

}  // namespace souk::market
