// SPDX-License-Identifier: GPL-2.0-or-later
// Licences: the named resources of the whole market in the Allocator's greedy. Whoever ranks before
// takes them first, wherever it runs, as it takes the room of a machine: a job may have a place
// only if enough is left beside the holders that rank before it, and then the weakest holders lose
// theirs. Pure; owned by the Allocator.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "market/core/named_resources.hpp"
#include "market/core/rank.hpp"

namespace souk::market {

class Licences {
  public:
    static constexpr uint32_t none = UINT32_MAX;
    using Ranked = std::pair<Rank, uint32_t>;  // the job by its index

    void set(NamedOffers all) { all_ = std::move(all); }
    const NamedOffers& all() const { return all_; }

    // The job has a place, as a guest of this rank; it has lost it.
    void hold(const Ranked& job, const NamedAmounts& amounts);
    void leave(const Ranked& job, const NamedAmounts& amounts);
    // The job competes; it does not.
    void want(const Ranked& job, const NamedAmounts& amounts);
    void unwant(const Ranked& job, const NamedAmounts& amounts);
    void forget_ranks() { held_.clear(), wanted_.clear(); }

    // Beside the holders that rank before.
    bool left(const NamedAmounts& amounts, const Rank& rank) const;
    // The rank of the strongest holder that must go for this, if all may go that are not pinned or
    // held; top: none need go. The second is false if that does not suffice.
    std::pair<Rank, bool> displaced(const NamedAmounts& amounts) const;
    // The weakest holder after `rank` of something of which too little is left for these amounts;
    // none: there is none.
    uint32_t in_the_way(const NamedAmounts& amounts, const Rank& rank) const;
    // The weakest holder of something of which more is held than there is, that is not pinned or
    // held; none: there is none.
    uint32_t beyond() const;
    // The competing jobs after this rank that ask for some of these.
    std::vector<Ranked> wanting(const NamedAmounts& amounts, const Rank& after) const;
    // The holders of what is held more than there is.
    std::vector<uint32_t> holders_beyond() const;

  private:
    using Holders = std::map<Ranked, int32_t>;
    int64_t left_of(const NamedAmount& amount, const Rank& before) const;
    const Holders& holders_of(uint32_t name) const;

    NamedOffers all_;
    std::map<uint32_t, Holders> held_;             // by the name
    std::map<uint32_t, std::set<Ranked>> wanted_;  // the same
};

}  // namespace souk::market
