// SPDX-License-Identifier: GPL-2.0-or-later
// GangPacking: which machines the components of one gang (a job of several components) get, of
// rooms that are offered one after the other, the best first. It takes rooms until all components
// can be packed into those that came. The question is monotone: with more room anywhere all are
// packed after the same machine or an earlier one. A plain greedy packing is not (with more room it
// may fail), and prices and repairs of the allocation rest on it (allocator_gangs.cpp).
//
//   like components      counted: exact
//   unlike ones          exact, by the numbers of components of each shape that the rooms up to
//                        here can hold, if there are at most 256 such combinations (one and 127;
//                        15 and 15; three shapes of 5)
//   more than that       each component counts as the whole of the largest need, a half, a quarter,
//                        ... down to 1/64: such sizes pack greedily without loss. What fits only
//                        by exact sizes is refused.
//
// Where each goes: back from the last machine to the first, each takes the fewest components of the
// largest shape, then of the next, with which those before it hold the rest; of equal components
// the first go to the first machines. Pure; owned by who asks.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

namespace souk::market {

class GangPacking {
  public:
    struct Need {
        int32_t cpus = 1;
        int64_t memory_mb = 0;
        bool operator==(const Need&) const = default;
    };
    explicit GangPacking(std::vector<Need> needs);

    // No room has come.
    void begin();
    // One more machine; true: all are packed, and nothing is to be added any more.
    bool add(int64_t cpus, int64_t memory_mb);
    bool packed() const { return packed_; }
    // When all are packed: of each component the machine, counted from 0 in the order of add().
    std::vector<uint32_t> places() const;

    // The least of CPUs, and of memory, that any component needs: less room is of no use.
    Need least() const { return least_; }
    bool alike() const { return shapes_.size() == 1; }

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
    };

    void plan_states();
    void plan_units();
    bool add_alike(const Room& room);
    bool add_exact(const Room& room);
    bool add_rounded(const Room& room);
    void places_exact(std::vector<uint32_t>& out) const;
    void places_rounded(std::vector<uint32_t>& out) const;
    int64_t units_of(const Room& room) const;
    size_t number(size_t state, const Shape& s) const {
        return state / s.stride % (s.components.size() + 1);
    }
    // Calls visit(state) for every combination that the room holds, `within` the numbers of another
    // state, the fewest of the largest shape first, until it returns true.
    template <class Visit>
    bool each_held(const Room& room, size_t within, size_t shape, size_t state,
                   Visit&& visit) const;

    std::vector<Shape> shapes_;  // the largest first
    size_t components_ = 0;
    Need least_;
    size_t states_ = 0;  // 0: rounded
    std::vector<Room> rooms_;
    bool packed_ = false;
    int64_t held_ = 0;            // alike: how many
    std::vector<States> before_;  // exact: what the machines before each hold
    States reached_;
    int steps_ = 0;  // rounded: the largest need is 2^steps_ units
    Need largest_;
    std::vector<int64_t> needed_, offered_;  // by step: units in pieces of at least that
};

}  // namespace souk::market
