// SPDX-License-Identifier: GPL-2.0-or-later
// Agenda: what a solver has still to look at, in rank order: jobs that something has happened to,
// and machines that have more room than the jobs after a cursor knew of. While it is paused nothing
// is put on it: a pass looks at every job anyway, and who pauses it for another reason knows that
// nobody has a use for the room. It knows jobs and machines by their indexes. Owned by Seating.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "market/core/rank.hpp"

namespace souk::market {

class Agenda {
  public:
    static constexpr uint32_t none = UINT32_MAX;
    struct Due {
        Rank rank;
        uint32_t index;
        bool operator>(const Due& o) const {
            return rank != o.rank ? rank > o.rank : index > o.index;
        }
    };

    // Something happened to these jobs, or to all, between two solves. The next one takes them up.
    void add(uint32_t job) { dirty_.push_back(job); }
    void add(const std::vector<uint32_t>& jobs) {
        dirty_.insert(dirty_.end(), jobs.begin(), jobs.end());
    }
    void add_all() { all_dirty_ = true; }
    const std::vector<uint32_t>& dirty() const { return dirty_; }
    bool all_dirty() const { return all_dirty_; }
    void forget_dirty() {
        dirty_.clear();
        all_dirty_ = false;
    }

    bool paused() const { return paused_; }
    void pause(bool on) { paused_ = on; }

    // A turn for the job, at its rank.
    void queue(const Rank& rank, uint32_t job) {
        if (!paused_) jobs_.push({rank, job});
    }
    // Jobs after the cursor may find more room on the machine.
    void open(uint32_t machine, const Rank& cursor) {
        if (paused_) return;
        if (machine >= openings_.size()) openings_.resize(machine + 1);
        Opening& o = openings_[machine];
        if (o.open && o.wake <= cursor) return;
        o.cursor = o.open ? std::min(o.cursor, cursor) : cursor;
        o.open = true;
        o.wake = cursor;
        machines_.push({cursor, machine});
    }
    void close(uint32_t machine) {
        if (machine < openings_.size()) openings_[machine].open = false;
    }
    // Nothing is to be looked at any more.
    void clear() {
        for (Opening& o : openings_) o.open = false;
        jobs_ = {};
        machines_ = {};
    }

    bool empty() const { return jobs_.empty() && machines_.empty(); }
    bool job_is_next() const {
        return !jobs_.empty() && (machines_.empty() || jobs_.top().rank <= machines_.top().rank);
    }
    // Whether somebody is to be looked at before this rank.
    bool has_before(const Rank& rank) const {
        return (!jobs_.empty() && jobs_.top().rank < rank) ||
               (!machines_.empty() && machines_.top().rank < rank);
    }
    Due take_job() {
        const Due due = jobs_.top();
        jobs_.pop();
        return due;
    }
    // The next machine; none: it has been opened anew or closed since.
    uint32_t take_machine() {
        const Due due = machines_.top();
        machines_.pop();
        const Opening& o = openings_[due.index];
        return o.open && o.wake == due.rank ? due.index : none;
    }
    const Rank& cursor(uint32_t machine) const { return openings_[machine].cursor; }
    void set_cursor(uint32_t machine, const Rank& rank) { openings_[machine].cursor = rank; }
    // It is looked at again at this rank, if it is still open.
    void look_again(uint32_t machine, const Rank& rank) {
        if (!openings_[machine].open) return;
        openings_[machine].wake = rank;
        machines_.push({rank, machine});
    }

  private:
    struct Opening {
        Rank cursor;  // jobs after this may find room there
        Rank wake;    // its place in the heap
        bool open = false;
    };
    using Heap = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

    std::vector<uint32_t> dirty_;
    bool all_dirty_ = false;
    bool paused_ = false;
    Heap jobs_, machines_;
    std::vector<Opening> openings_;  // by machine
};

}  // namespace souk::market
