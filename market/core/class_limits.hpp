// SPDX-License-Identifier: GPL-2.0-or-later
// ClassLimits: who may enter which class of machines: a class takes no job after a rank. An
// algorithm sets limits (welfare does), the Allocator carries out what they change. Limits say who
// may enter. Who is inside already leaves when the limits find him beyond: at once with the plain
// rules, with a horizon when what he gains elsewhere within it is worth the move. What a limit
// shuts out is taken up when it rises. So, with the plain rules, the result is still that of one
// pass over all jobs. Owned by the Allocator. Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "market/core/seating.hpp"

namespace souk::market {

// A class of machines takes only jobs up to this rank (the welfare algorithm says which). Who is
// there already goes when the limit falls; with a horizon, when that is worth the move.
struct ClassLimit {
    ClassKey cls = 0;
    Rank last;
    bool operator==(const ClassLimit&) const = default;
};
// The cost of a place of a class, in micro-units x fastest speed. A horizon reckons the gain of
// leaving with it.
struct ClassLevel {
    ClassKey cls = 0;
    __int128 level = 0;
};

class ClassLimits {
  public:
    // Jobs after rank `after` and up to `last` may enter the class now.
    struct Raise {
        ClassKey cls = 0;
        Rank after, last;
    };

    const std::vector<ClassLimit>& all() const { return limits_; }  // by class
    bool none() const { return limits_.empty(); }
    // The last rank that any class takes.
    const Rank& last() const { return last_; }
    bool admits(ClassKey cls, const Rank& rank) const {
        const auto at = find(cls);
        return at == limits_.end() || at->cls != cls || rank <= at->last;
    }
    // The least bid per CPU-hour that the machine takes: its reserve, or by its class's limit.
    Money least_bid_at(const Occupancy::Machine& m) const;
    // In order, the ranges of classes [from, to) before `below` that admit a job of this rank,
    // until visit returns true.
    template <class Visit>
    void each_range(const Rank& rank, ClassKey below, Visit&& visit) const {
        ClassKey from = 0;
        for (const ClassLimit& limit : limits_) {
            if (limit.cls >= below) break;
            if (rank <= limit.last) continue;
            if (limit.cls > from && visit(from, limit.cls)) return;
            from = limit.cls + 1;
        }
        visit(from, below);
    }

    // Limits by class (sorted, of those that have one), the last rank that any class takes, and
    // what the classes cost. Returns the classes whose limit has risen.
    std::vector<Raise> set(std::vector<ClassLimit> limits, const Rank& last,
                           std::vector<ClassLevel> levels);
    void lift() { *this = {}; }

    // Whether what the job gains in the best other class within the horizon is worth the move from
    // this machine (MoveCosts::bound has the cost).
    bool worth_leaving(const Seating& seats, uint32_t j, const Occupancy::Machine& m) const;

  private:
    std::vector<ClassLimit>::const_iterator find(ClassKey cls) const {
        return std::lower_bound(limits_.begin(), limits_.end(), cls,
                                [](const ClassLimit& l, ClassKey key) { return l.cls < key; });
    }
    bool worth_leaving_files(const Seating& seats, uint32_t j, const Occupancy::Machine& m) const;

    std::vector<ClassLimit> limits_;
    std::vector<ClassLevel> levels_;
    Rank last_ = rank_last;
};

}  // namespace souk::market
