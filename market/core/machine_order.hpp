// SPDX-License-Identifier: GPL-2.0-or-later
// MachineOrder: the machines in the order in which a job wants them (class, then key), in blocks
// that each know the most room that a machine of theirs has and the weakest guest that could be
// displaced there. Owned by the Allocator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "market/core/block_list.hpp"
#include "market/core/rank.hpp"

namespace souk::market {

class MachineOrder {
  public:
    using Key = std::pair<ClassKey, uint64_t>;  // class, the provider's key
    struct Entry {
        ClassKey cls = class_none;
        uint64_t key = 0;
        Rank weakest = Rank::top();  // of its guests; top: none that could be displaced
        int64_t free_mb = 0;
        int32_t free_cpus = 0;
        uint32_t machine = 0;
        Key order() const { return {cls, key}; }
    };

  private:
    struct Summary {
        ClassKey first = class_none;
        Rank weakest = Rank::top();
        int64_t free_mb = 0;
        int32_t free_cpus = 0;
        void widen(const Entry& e) {
            first = std::min(first, e.cls);
            weakest = std::max(weakest, e.weakest);
            free_mb = std::max(free_mb, e.free_mb);
            free_cpus = std::max(free_cpus, e.free_cpus);
        }
    };
    static constexpr size_t width = 32;
    using List = BlockList<Entry, Summary, width>;

  public:
    using Place = List::Place;  // good until a machine comes or goes

    void insert(const Entry& entry) { list_.insert(entry); }
    // The machine must be there.
    void erase(const Key& key) { list_.erase(key); }
    Place find(const Key& key) const { return list_.find(key); }
    // New room and weakest guest of a machine.
    void update(const Place& place, int32_t free_cpus, int64_t free_mb, const Rank& weakest) {
        Entry& e = list_[place];
        e.free_cpus = free_cpus;
        e.free_mb = free_mb;
        e.weakest = weakest;
        list_.widen(place.block, e);
        if (free_cpus > 0) closed_ = std::min(closed_, place.block);
    }
    const Entry& operator[](const Place& place) { return list_[place]; }
    bool empty() const { return list_.empty(); }
    // A number for each place, in order (with gaps), and one behind all.
    static size_t position(const Place& p) { return p.block * width + p.at; }
    size_t end() const { return list_.blocks() * width; }
    // The fastest class there is; class_none if nobody accepts.
    ClassKey fastest() const { return list_.empty() ? class_none : list_.block(0).front().cls; }

    // A pass asks for jobs in rank order; the machines at the front that can take nobody after
    // `rank` are skipped from then on. begin_pass() forgets that.
    void begin_pass() { closed_ = 0; }
    // True if no machine can take a job of this rank or after it.
    bool close_until(const Rank& rank) {
        while (closed_ < list_.blocks() && list_.summary(closed_).free_cpus < 1 &&
               list_.summary(closed_).weakest <= rank)
            ++closed_;
        return closed_ == list_.blocks();
    }

    void tighten() {
        for (size_t b = 0; b < list_.blocks(); ++b) list_.summarise(b);
    }

    // The first machine of a class in [from, below) that fits(entry) says yes to, among those that
    // have the room free or a guest weaker than `rank`. Looks at no position before `start`.
    template <class Fits>
    Place first(ClassKey from, ClassKey below, int32_t cpus, int64_t mb, const Rank& rank,
                size_t start, Fits&& fits) {
        start = std::max(start, std::max(block_of_class(from), closed_) * width);
        for (size_t b = start / width, at = start % width; b < list_.blocks(); ++b, at = 0) {
            const Summary& s = list_.summary(b);
            if (s.first >= below) break;
            if ((s.free_cpus < cpus || s.free_mb < mb) && s.weakest <= rank) continue;
            const auto& block = list_.block(b);
            bool whole = true;
            for (size_t i = at; i < block.size(); ++i) {
                const Entry& e = block[i];
                if ((e.free_cpus < cpus || e.free_mb < mb) && e.weakest <= rank) continue;
                if (e.cls < from || e.cls >= below)
                    whole = false;
                else if (fits(e))
                    return {b, i};
            }
            if (whole) list_.summarise(b);
        }
        return {};
    }

    // Every machine of a class before `below`, in order, that has the room free or a guest weaker
    // than `rank`; visit returns false to stop.
    template <class Visit>
    void each_room(ClassKey below, int32_t cpus, int64_t mb, const Rank& rank, Visit&& visit) {
        for (size_t b = closed_; b < list_.blocks(); ++b) {
            const Summary& s = list_.summary(b);
            if (s.first >= below) return;
            if ((s.free_cpus < cpus || s.free_mb < mb) && s.weakest <= rank) continue;
            for (const Entry& e : list_.block(b)) {
                if (e.cls >= below) return;
                if ((e.free_cpus < cpus || e.free_mb < mb) && e.weakest <= rank) continue;
                if (!visit(e)) return;
            }
            list_.summarise(b);
        }
    }

    // Every machine of a class in [from, below) that may have a guest weaker than `bar`, which
    // visit may raise as it goes. The block of the weakest guest goes first, as that raises the bar
    // most; beyond that in order.
    template <class Visit>
    void each_weaker(ClassKey from, ClassKey below, Rank& bar, Visit&& visit) {
        const size_t begin = block_of_class(from);
        size_t end = begin, best = begin;
        for (; end < list_.blocks() && list_.summary(end).first < below; ++end)
            if (list_.summary(end).weakest > list_.summary(best).weakest) best = end;
        auto look_at = [&](size_t b) {
            if (list_.summary(b).weakest <= bar) return;
            for (const Entry& e : list_.block(b))
                if (e.cls >= from && e.cls < below && e.weakest > bar) visit(e);
            list_.summarise(b);
        };
        if (best < end) look_at(best);
        for (size_t b = begin; b < end; ++b)
            if (b != best) look_at(b);
    }

    // Every machine of this class that has a CPU free.
    template <class Visit>
    void each_free(ClassKey cls, Visit&& visit) const {
        for (size_t b = block_of_class(cls); b < list_.blocks() && list_.summary(b).first <= cls;
             ++b) {
            if (list_.summary(b).free_cpus < 1) continue;
            for (const Entry& e : list_.block(b))
                if (e.cls == cls && e.free_cpus > 0) visit(e);
        }
    }

    // Every machine in order; visit returns false to stop.
    template <class Visit>
    void each(Visit&& visit) const {
        list_.each(visit);
    }

  private:
    size_t block_of_class(ClassKey from) const {
        return from == 0 ? 0 : list_.block_from({from, 0});
    }

    List list_;
    size_t closed_ = 0;  // blocks at the front that this pass need not look at again
};

}  // namespace souk::market
