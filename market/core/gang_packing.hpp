// SPDX-License-Identifier: GPL-2.0-or-later
// GangPacking: which machines the components of one gang (a job of several components) get, of
// rooms that are offered one after the other, the best first. It takes rooms until all components
// can be packed into those that came. The question is monotone: with more room anywhere all are
// packed after the same machine or an earlier one. A plain greedy packing is not (with more room it
// may fail), and prices and repairs of the allocation rest on it (gang_turns.hpp).
//
//   like components      counted: exact
//   unlike ones          exact, by the numbers of components of each shape that the rooms up to
//                        here can hold, if there are at most 256 such combinations (one and 127;
//                        15 and 15; three shapes of 5)
//   more than that       each component counts as the whole of the largest need, a half, a quarter,
//                        ... down to 1/64: such sizes pack greedily without loss. What fits only
//                        by exact sizes is refused.
//
// A component may be bound to one machine: it has its room there before the others. With a bound on
// how many may be on one machine (most_on_one), what is not packed exactly counts as the largest
// need, each.
//
// Where each goes: back from the last machine to the first, each takes the fewest components of the
// largest shape, then of the next, with which those before it hold the rest; of equal components
// the first go to the first machines. With `few`: into the largest rooms first, those with siblings
// before all, if that takes fewer machines (for like components the fewest there are). Pure; owned
// by who asks.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "market/core/types.hpp"

namespace souk::market {

class GangPacking {
  public:
    struct Need {
        int32_t cpus = 1;
        int64_t memory_mb = 0;
        uint64_t machine = 0;  // the only one for it; 0: any
        bool operator==(const Need&) const = default;
    };
    using Layout = GangLayout;
    explicit GangPacking(std::vector<Need> needs, Layout layout = {});

    // No room has come.
    void begin();
    // One more machine, on which so many of the gang are already; true: all are packed. What is
    // added from then on is of use for `few` alone.
    bool add(int64_t cpus, int64_t memory_mb, uint64_t machine = 0, uint32_t siblings = 0);
    bool packed() const { return rest_packed_ && named_left_ == 0; }
    const Layout& layout() const { return layout_; }
    // When all are packed: of each component the machine, counted from 0 in the order of add().
    std::vector<uint32_t> places() const;

    // The least of CPUs, and of memory, that any component needs: less room is of no use.
    Need least() const { return least_; }
    // All need the same, and any machine does for each.
    bool alike() const { return one_shape() && named_.empty() && layout_ == Layout{}; }

  private:
    static constexpr size_t states_max = 256;
    static constexpr int steps_max = 6;
    using States = std::bitset<states_max>;
    struct Shape {
        Need need;
        std::vector<uint32_t> components;
        size_t stride = 1;  // of its number in a state
        int step = 0;       // rounded: log2 of its units
    };
    struct Room {
        int64_t cpus = 0, memory_mb = 0;
        int64_t most = INT64_MAX;  // components
        uint32_t siblings = 0;
    };
    // Those that are bound to one machine.
    struct Named {
        uint64_t machine = 0;
        int64_t cpus = 0, memory_mb = 0;
        std::vector<uint32_t> components;
        uint32_t place = UINT32_MAX;  // of the machine, when it has come
    };

    void plan_states();
    void plan_units();
    bool one_shape() const { return shapes_.size() == 1; }
    bool counted() const { return one_shape() || all_as_largest_; }
    const Need& counted_need() const { return all_as_largest_ ? largest_ : shapes_[0].need; }
    int64_t holds(const Room& room) const;
    void seat_named(Room& room, uint64_t machine);
    bool add_counted(const Room& room);
    bool add_exact(const Room& room);
    bool add_rounded(const Room& room);
    void places_exact(std::vector<uint32_t>& out) const;
    void places_counted(std::vector<uint32_t>& out) const;
    void places_rounded(std::vector<uint32_t>& out) const;
    void places_few(std::vector<uint32_t>& out) const;
    size_t machines_in(const std::vector<uint32_t>& places) const;
    int64_t units_of(const Room& room) const;
    size_t number(size_t state, const Shape& s) const {
        return state / s.stride % (s.components.size() + 1);
    }
    // Calls visit(state) for every combination that the room holds, `within` the numbers of another
    // state, the fewest of the largest shape first, until it returns true.
    template <class Visit>
    bool each_held(const Room& room, size_t within, size_t shape, size_t state,
                   Visit&& visit) const;

    Layout layout_;
    std::vector<Shape> shapes_;  // of those that no machine is named for; the largest first
    std::vector<Named> named_;
    size_t named_left_ = 0;  // machines of these that have not come, or lack room
    size_t components_ = 0, unnamed_ = 0;
    Need least_;
    size_t states_ = 0;  // 0: rounded
    bool all_as_largest_ = false;
    std::vector<Room> rooms_;
    bool rest_packed_ = false;    // those of shapes_
    int64_t held_ = 0;            // counted: how many
    std::vector<States> before_;  // exact: what the machines before each hold
    States reached_;
    int steps_ = 0;  // rounded: the largest need is 2^steps_ units
    Need largest_;
    std::vector<int64_t> needed_, offered_;  // by step: units in pieces of at least that
};

}  // namespace souk::market
