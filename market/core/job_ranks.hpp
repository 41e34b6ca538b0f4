// SPDX-License-Identifier: GPL-2.0-or-later
// JobRanks: how the jobs of an Occupancy rank, and which of them compete, in the order of their
// ranks (those that are pinned or held do not). A job ranks by its value, times its weight where
// weights count, or by the turn that proportional share has given it. New ones are staged and come
// into the order together, as that is cheaper where they are many. Owned by Seating. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "market/core/job_order.hpp"
#include "market/core/occupancy.hpp"

namespace souk::market {

class JobRanks {
  public:
    using Native = std::pair<Rank, uint32_t>;

    // As the job's value and weight say, or behind all that have a turn.
    Rank rank_of(const Occupancy& all, uint32_t j) const;
    // As it counts in ranks.
    int32_t weight_of(const Occupancy& all, uint32_t j) const {
        return weights_ ? all.details(j).weight : weight_plain;
    }
    // Ranks say who bids more: no job has another weight than weight_plain, or it says nothing.
    bool by_value() const { return !weights_ || weighed_ == 0; }
    // Ranks are places in a turn (assign).
    bool assigned() const { return assigned_; }
    void weigh(Occupancy& all, uint32_t j, int32_t weight);

    // The job competes from now on; it competes no more.
    void enter(Occupancy& all, uint32_t j);
    void leave(Occupancy& all, uint32_t j);
    // Brings new jobs into the order.
    void flush(Occupancy& all);
    size_t competing_with_bars() const { return competing_with_bars_; }

    // The order as of the last flush. A search tightens what it knows of blocks.
    JobOrder& order() { return order_; }
    // The competing jobs that have their files at this provider; null: none has.
    const std::set<Native>* natives_of(ProviderKey provider) const;

    // All competing jobs rank in this order. Those that come later rank behind them.
    void assign(Occupancy& all, const std::vector<uint32_t>& jobs);
    // They rank by value again, with weights or without. False: they did so already.
    bool rank_by_value(Occupancy& all, bool weights);

  private:
    static JobOrder::Entry entry_of(const Occupancy& all, uint32_t j);
    void merge_staged(Occupancy& all);
    void rebuild(Occupancy& all, const std::vector<uint32_t>& jobs);

    JobOrder order_;
    std::vector<uint32_t> staged_;
    std::map<uint64_t, std::set<Native>> natives_;  // by the provider's key; few jobs have files
    size_t competing_with_bars_ = 0;
    size_t weighed_ = 0;  // jobs of another weight than weight_plain
    bool weights_ = true;
    bool assigned_ = false;
};

}  // namespace souk::market
