// SPDX-License-Identifier: GPL-2.0-or-later
// The assignment market of one-CPU jobs and classes of equal places: who gets which class so that
// welfare is greatest, and the lowest competitive prices. Pure mathematics over counts; knows
// nothing of machines and jobs.
//
// A job of value v gains v x speed from a place, which costs its reserve x the fastest speed (all
// amounts here are micro-units x speed, so that they are whole). Of such products the best
// assignment gives the higher value the higher speed (Edelman, Ostrovsky, Schwarz, "Internet
// advertising and the generalized second-price auction", 2007). So it is told by its cuts: cut[c]
// jobs, the most valuable, have a place of class c or a faster one. Welfare is then a sum of
// concave functions of single cuts, under 0 <= cut[c] - cut[c-1] <= slots: a function of the kind
// for which a point that no step of +1 or -1 on a set of cuts improves is the best of all
// (L-natural concavity: Murota, "Discrete convex analysis", 2003). Among equals the greatest cuts
// are taken: rather placed than not, rather fast than slow.
//
// The lowest competitive prices are the longest paths over "nobody prefers another class" (Shapley
// and Shubik, "The assignment game", 1971; Demange, Gale, Sotomayor, "Multi-item auctions", 1986).
// On a line of classes they take two passes. For one job they are what it costs the others
// (Leonard, "Elicitation of honest preferences", 1983).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "market/core/rank.hpp"

namespace souk::market {

using Wide = __int128;

// Classes in the order of choice: the fastest first, at equal speed the lowest reserve.
struct PlaceClass {
    ClassKey cls = 0;
    int32_t speed = 0;
    int64_t slots = 0;
    Wide cost = 0;  // reserve x fastest speed
};
using Cuts = std::vector<int64_t>;

// Cut c gains so much from one more job, which has this value.
inline Wide gain_at(std::span<const PlaceClass> classes, size_t c, int64_t value) {
    const bool last = c + 1 == classes.size();
    const int32_t speed = classes[c].speed - (last ? 0 : classes[c + 1].speed);
    const Wide cost = classes[c].cost - (last ? 0 : classes[c + 1].cost);
    return static_cast<Wide>(speed) * value - cost;
}

// The best cuts for these values (micro-units, falling), from nothing: O(classes x values). Only
// the first values, as many as there are slots, matter.
Cuts best_cuts(std::span<const PlaceClass> classes, std::span<const int64_t> values);

// One step of the search: the set of cuts that gains most when each is raised (step 1) or lowered
// (step -1) by one.
class CutStep {
  public:
    // `value(t)`: the value of job t, from 0 to jobs - 1. True if the cuts were changed; `gain` is
    // then the welfare won.
    template <class Value>
    bool take(std::span<const PlaceClass> classes, Cuts& cuts, int64_t jobs, int step,
              Value&& value, Wide& gain) {
        gains_.resize(classes.size());
        for (size_t c = 0; c < classes.size(); ++c) {
            const int64_t at = step > 0 ? cuts[c] : cuts[c] - 1;
            const bool possible = at >= 0 && at < jobs;
            gains_[c] = {possible, possible ? step * gain_at(classes, c, value(at)) : 0};
        }
        return choose(classes, cuts, step, gain);
    }

  private:
    bool choose(std::span<const PlaceClass> classes, Cuts& cuts, int step, Wide& gain);

    struct Best {
        bool possible = false;
        Wide gain = 0;
        int64_t moved = 0;  // how many cuts move
    };
    std::vector<std::pair<bool, Wide>> gains_;
    // by class, two bits: the state of the class before, if this one stays, if it moves
    std::vector<uint8_t> from_;
};

// Makes feasible cuts the best ones. False: `steps_max` steps were not enough. `gain`: the welfare
// won.
template <class Value>
bool improve_cuts(std::span<const PlaceClass> classes, Cuts& cuts, int64_t jobs, int64_t steps_max,
                  Value&& value, Wide& gain) {
    CutStep step;
    gain = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (const int direction : {1, -1}) {
            for (Wide won = 0; step.take(classes, cuts, jobs, direction, value, won);
                 moved = true) {
                gain += won;
                if (--steps_max < 0) return false;
            }
        }
    }
    return true;
}

// The best cuts use each class so: its jobs' greatest and least value.
struct ClassUse {
    bool used = false;
    bool room = false;  // a slot is free
    int64_t most = 0, least = 0;
};
template <class Value>
std::vector<ClassUse> use_of(std::span<const PlaceClass> classes, const Cuts& cuts, Value&& value) {
    std::vector<ClassUse> uses(classes.size());
    int64_t before = 0;
    for (size_t c = 0; c < classes.size(); before = cuts[c++]) {
        uses[c].used = cuts[c] > before;
        uses[c].room = cuts[c] - before < classes[c].slots;
        if (uses[c].used) uses[c].most = value(before), uses[c].least = value(cuts[c] - 1);
    }
    return uses;
}

// The lowest competitive price of each class. `next`: the greatest value that has no place, 0 if
// none waits.
std::vector<Wide> lowest_prices(std::span<const PlaceClass> classes, std::span<const ClassUse> uses,
                                int64_t next);

// The lowest levels, at least the costs, at which nobody who has a place prefers a slower class:
// prices as long as who comes first in rank has a full class.
std::vector<Wide> floor_levels(std::span<const PlaceClass> classes, std::span<const ClassUse> uses);

inline constexpr Wide no_level = -1;
// One more place of each class would cost those who have one so much, if nobody loses his;
// no_level: somebody must.
std::vector<Wide> cost_of_one_more(std::span<const PlaceClass> classes,
                                   std::span<const ClassUse> uses);

// The least value (micro-units, rounded up) that prefers each class to all slower ones and to none,
// at these levels. A class of no_level is no choice; its own is INT64_MAX.
std::vector<int64_t> entry_values(std::span<const PlaceClass> classes,
                                  std::span<const Wide> levels);

}  // namespace souk::market
