// SPDX-License-Identifier: GPL-2.0-or-later
// JobOrder: the competing jobs in rank order, in blocks that each know what is the least that their
// jobs need and the most that they would still take, so that "who is the first after this one who
// would take that place" skips whole blocks. Owned by the Allocator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "market/core/block_list.hpp"
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
        const Rank& order() const { return rank; }
    };
    enum class Verdict { no, yes, stop };

    size_t size() const { return list_.size(); }
    void insert(const Entry& entry) { list_.insert(entry); }
    // Ranks after all others.
    void append(const Entry& entry) { list_.append(entry); }
    // The job must be there, under this rank.
    void erase(const Rank& rank) { list_.erase(rank); }
    void set_bound(const Rank& rank, ClassKey bound) {
        const auto at = list_.find(rank);
        list_[at].bound = bound;
        list_.widen(at.block, list_[at]);
    }

    // The first entry after `cursor` with bound > cls that needs at most `cpus` and `memory_mb` and
    // that check(entry) says yes to; nullptr if there is none or check says stop. check may lower
    // cpus and memory_mb as it goes.
    template <class Check>
    const Entry* find_after(const Rank& cursor, ClassKey cls, int32_t& cpus, int64_t& memory_mb,
                            Check&& check) {
        for (size_t b = list_.block_after(cursor); b < list_.blocks(); ++b) {
            const Summary& s = list_.summary(b);
            if (s.bound_max <= cls || s.cpus_min > cpus || s.memory_min > memory_mb) continue;
            const auto& block = list_.block(b);
            auto e = block.begin();
            const bool whole = e->rank > cursor;
            if (!whole)
                e = std::upper_bound(e, block.end(), cursor,
                                     [](const Rank& r, const Entry& x) { return r < x.rank; });
            for (; e != block.end(); ++e) {
                if (e->bound <= cls || e->cpus > cpus || e->memory_mb > memory_mb) continue;
                const Verdict v = check(*e);
                if (v == Verdict::yes) return &*e;
                if (v == Verdict::stop) return nullptr;
            }
            if (whole) list_.summarise(b);
        }
        return nullptr;
    }

    // The most that any of them needs.
    std::pair<int32_t, int64_t> most_needed() {
        std::pair<int32_t, int64_t> most{0, 0};
        for (size_t b = 0; b < list_.blocks(); ++b) {
            if (list_.summary(b).loose) list_.summarise(b);
            most.first = std::max(most.first, list_.summary(b).cpus_max);
            most.second = std::max(most.second, list_.summary(b).memory_max);
        }
        return most;
    }

    // In blocks, in rank order: how many CPUs the jobs of each need, and one block.
    size_t blocks() const { return list_.blocks(); }
    int64_t cpus_of(size_t block) const { return list_.summary(block).cpus; }
    const std::vector<Entry>& block(size_t b) const { return list_.block(b); }

    // Every entry in rank order; visit returns false to stop.
    template <class Visit>
    void each(Visit&& visit) const {
        list_.each(visit);
    }
    // Every entry in rank order; take may change its bound, and returns false to stop. What
    // soon(entry) points to is fetched into the cache some entries ahead.
    template <class Take, class Soon>
    void take_each(Take&& take, Soon&& soon) {
        constexpr size_t precopy = 6;
        for (size_t b = 0; b < list_.blocks(); ++b) {
            auto& block = list_.block(b);
            bool more = true;
            for (size_t i = 0; more && i < block.size(); ++i) {
                if (i + precopy < block.size()) __builtin_prefetch(soon(block[i + precopy]), 1);
                more = take(block[i]);
            }
            list_.summarise(b);
            if (!more) return;
        }
    }
    // Every entry after `cursor`.
    template <class Visit>
    void each_after(const Rank& cursor, Visit&& visit) const {
        for (size_t b = list_.block_after(cursor); b < list_.blocks(); ++b)
            for (const Entry& e : list_.block(b))
                if (e.rank > cursor && !visit(e)) return;
    }

  private:
    struct Summary {
        ClassKey bound_max = 0;
        int64_t memory_min = INT64_MAX, memory_max = 0;
        int64_t cpus = 0;  // of all together, exactly
        int32_t cpus_min = INT32_MAX, cpus_max = 0;
        bool loose = false;  // somebody has left
        void widen(const Entry& e) {
            bound_max = std::max(bound_max, e.bound);
            memory_min = std::min(memory_min, e.memory_mb);
            cpus_min = std::min(cpus_min, e.cpus);
            memory_max = std::max(memory_max, e.memory_mb);
            cpus_max = std::max(cpus_max, e.cpus);
        }
        void loosen() { loose = true; }
        void count(const Entry& e, int by) { cpus += static_cast<int64_t>(by) * e.cpus; }
    };
    BlockList<Entry, Summary, 256> list_;
};

}  // namespace souk::market
