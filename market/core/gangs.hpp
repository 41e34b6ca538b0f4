// SPDX-License-Identifier: GPL-2.0-or-later
// Gangs: the jobs of several components that an Occupancy knows. It says which components make a
// gang, how they want to lie, how the gang ranks, and which gangs wait. It knows components by the
// indexes of their jobs, and asks nothing of them. GangTurns says what places a gang gets. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "market/core/rank.hpp"

namespace souk::market {

class Gangs {
  public:
    static constexpr uint32_t none = UINT32_MAX;

    // Its components have the keys from `first` to `last`, the optional ones behind the others, so
    // that their ranks follow each other. Those that have left are in no list.
    struct Gang {
        uint64_t first = 0, last = 0;  // 0: this index is not in use
        std::vector<uint32_t> required, optional;
        Rank rank;  // as guests, of all required ones: none displaces another
        GangLayout layout;
        bool alike = true;   // the required ones need the same, and lie as they come
        bool clean = false;  // has had its turn since one of them lost its place
    };
    using Ranked = std::pair<Rank, uint32_t>;  // a gang by its index

    const std::vector<Gang>& all() const { return all_; }
    const Gang& operator[](uint32_t g) const { return all_[g]; }
    size_t count() const { return by_first_key_.size(); }
    // The gang whose keys include this one; none: there is none.
    uint32_t with(uint64_t key) const;
    // All that have no place are among them, also those whose turn a pass has not come to.
    const std::set<Ranked>& waiting() const { return waiting_; }

    // Returns the index of a gang that has no components yet, and waits.
    uint32_t add(uint64_t first, size_t components, const Rank& rank, const GangLayout& layout);
    void add_component(uint32_t g, uint32_t job, bool optional);
    void remove_component(uint32_t g, uint32_t job);
    // Forgets a gang that has no components left.
    void remove(uint32_t g);
    // Gives it another rank, under which it waits.
    void rerank(uint32_t g, int64_t first);
    void note_waiting(const Gang& g, bool waits);
    void note_alike(const Gang& g, bool alike) { all_[index_of(g)].alike = alike; }
    void note_turn(const Gang& g, bool had_it) { all_[index_of(g)].clean = had_it; }

  private:
    uint32_t index_of(const Gang& g) const { return static_cast<uint32_t>(&g - all_.data()); }

    std::vector<Gang> all_;
    std::vector<uint32_t> free_;  // indexes
    std::map<uint64_t, uint32_t> by_first_key_;
    std::set<Ranked> waiting_;
};

}  // namespace souk::market
