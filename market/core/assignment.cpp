// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/assignment.hpp"

#include <algorithm>

namespace souk::market {

// F_c(x): the best welfare of classes 0 to c with x jobs in them, is concave; it is kept as its
// slopes. One more class puts zeros (its slots) where the slopes change sign, and then every slope
// gains what a job at that place brings.
Cuts best_cuts(std::span<const PlaceClass> classes, std::span<const int64_t> values) {
    std::vector<Wide> slopes;
    std::vector<int64_t> best;  // where F_(c-1) is greatest
    const auto rises = [&] {
        return std::partition_point(slopes.begin(), slopes.end(), [](Wide s) { return s >= 0; }) -
               slopes.begin();
    };
    for (size_t c = 0; c < classes.size(); ++c) {
        best.push_back(rises());
        const auto room = static_cast<int64_t>(values.size());
        const int64_t more = std::min(classes[c].slots, room - best.back());
        slopes.insert(slopes.begin() + best.back(), static_cast<size_t>(more), Wide{0});
        if (slopes.size() > values.size()) slopes.resize(values.size());
        for (size_t k = 0; k < slopes.size(); ++k) slopes[k] += gain_at(classes, c, values[k]);
    }
    Cuts cuts(classes.size());
    int64_t cut = rises();
    for (size_t c = classes.size(); c-- > 0;) {
        cuts[c] = cut;
        cut = std::clamp(best[c], std::max<int64_t>(0, cut - classes[c].slots), cut);
    }
    return cuts;
}

bool CutStep::choose(std::span<const PlaceClass> classes, Cuts& cuts, int step, Wide& gain) {
    from_.assign(classes.size(), 0);
    const auto better = [step](const Best& a, const Best& b) {  // on a tie: raise many, lower few
        if (a.possible != b.possible) return a.possible;
        if (a.gain != b.gain) return a.gain > b.gain;
        return step > 0 ? a.moved > b.moved : a.moved < b.moved;
    };
    // of the class before; there is none before the first, and it stays
    Best stays{true, 0, 0}, moves;
    int64_t before = 0;
    for (size_t c = 0; c < classes.size(); before = cuts[c++]) {
        const int64_t held = cuts[c] - before;
        const bool may_grow = held<classes[c].slots, may_shrink = held> 0;
        Best after_stays = stays, after_moves = moves;
        // it moves, the one before not
        after_stays.possible = stays.possible && (step > 0 ? may_grow : may_shrink);
        // it stays, the one before not
        after_moves.possible = moves.possible && (step > 0 ? may_shrink : may_grow);
        Best stay = stays, move = moves;
        if (better(after_moves, stay)) stay = after_moves, from_[c] |= 1;
        if (better(after_stays, move))
            move = after_stays;
        else
            from_[c] |= 2;
        move.possible = move.possible && gains_[c].first;
        move.gain += gains_[c].second;
        ++move.moved;
        stays = stay, moves = move;
    }
    const bool last_moves = better(moves, stays);
    const Best& best = last_moves ? moves : stays;
    if (!best.possible || best.moved == 0 || best.gain < 0 || (step < 0 && best.gain == 0))
        return false;
    gain = best.gain;
    bool moved = last_moves;
    for (size_t c = classes.size(); c-- > 0;) {
        if (moved) cuts[c] += step;
        moved = (from_[c] & (moved ? 2 : 1)) != 0;
    }
    return true;
}

// The longest path to a class leads down the line of classes (floor_levels) or up it: it never
// turns, as no circle gains.
std::vector<Wide> lowest_prices(std::span<const PlaceClass> classes, std::span<const ClassUse> uses,
                                int64_t next) {
    std::vector<Wide> prices = floor_levels(classes, uses);
    size_t slower = classes.size();  // the next one that is used
    for (size_t c = classes.size(); c-- > 0;) {
        prices[c] = std::max(prices[c], static_cast<Wide>(classes[c].speed) * next);
        if (slower < classes.size()) {
            const Wide step =
                static_cast<Wide>(classes[c].speed - classes[slower].speed) * uses[slower].most;
            prices[c] = std::max(prices[c], prices[slower] + step);
        }
        if (uses[c].used) slower = c;
    }
    return prices;
}

std::vector<Wide> floor_levels(std::span<const PlaceClass> classes,
                               std::span<const ClassUse> uses) {
    std::vector<Wide> levels;
    for (const PlaceClass& c : classes) levels.push_back(c.cost);
    size_t faster = classes.size();
    for (size_t c = 0; c < classes.size(); ++c) {
        if (faster < classes.size()) {
            const Wide step =
                static_cast<Wide>(classes[faster].speed - classes[c].speed) * uses[faster].least;
            levels[c] = std::max(levels[c], levels[faster] - step);
        }
        if (uses[c].used) faster = c;
    }
    return levels;
}

// A full class gives a place when one of its jobs goes elsewhere: its least to a slower class, its
// greatest to a faster one; further than to the next class in use it is never better to go.
std::vector<Wide> cost_of_one_more(std::span<const PlaceClass> classes,
                                   std::span<const ClassUse> uses) {
    const size_t n = classes.size();
    std::vector<Wide> costs(n, no_level);
    for (size_t c = 0; c < n; ++c)
        if (uses[c].room) costs[c] = classes[c].cost;
    const auto go = [&](size_t c, size_t to, int64_t value) {
        if (costs[to] == no_level) return;
        const Wide cost =
            costs[to] + static_cast<Wide>(classes[c].speed - classes[to].speed) * value;
        if (costs[c] == no_level || cost < costs[c]) costs[c] = cost;
    };
    for (size_t c = n; c-- > 0;) {
        if (!uses[c].used || uses[c].room) continue;
        for (size_t to = c + 1; to < n; ++to) {
            go(c, to, uses[c].least);
            if (uses[to].used) break;
        }
    }
    for (size_t c = 0; c < n; ++c) {
        if (!uses[c].used || uses[c].room) continue;
        for (size_t to = c; to-- > 0;) {
            go(c, to, uses[c].most);
            if (uses[to].used) break;
        }
    }
    return costs;
}

// A class is preferred from the steepest line on that leads to it from a slower one: from the lower
// hull of those.
std::vector<int64_t> entry_values(std::span<const PlaceClass> classes,
                                  std::span<const Wide> levels) {
    struct Point {
        int32_t speed;
        Wide level;
    };
    std::vector<int64_t> entry(classes.size(), INT64_MAX);
    std::vector<Point> hull{{0, 0}};
    // a to p than b to p; a is left of b
    const auto steeper = [](const Point& a, const Point& b, const Point& p) {
        return (p.level - a.level) * (p.speed - b.speed) >
               (p.level - b.level) * (p.speed - a.speed);
    };
    const auto touch = [&](const Point& p) {  // the hull point of the steepest line to p
        size_t h = hull.size() - 1;
        while (h > 0 && steeper(hull[h - 1], hull[h], p)) --h;
        return h;
    };
    for (size_t end = classes.size(); end > 0;) {
        size_t begin = end;  // of the classes of one speed
        Point lowest{classes[end - 1].speed, no_level};
        while (begin > 0 && classes[begin - 1].speed == lowest.speed) {
            const size_t c = --begin;
            if (levels[c] == no_level) continue;
            const Point p{lowest.speed, levels[c]};
            const Point& from = hull[touch(p)];
            const Wide rise = p.level - from.level, run = p.speed - from.speed;
            entry[c] =
                rise <= 0 ? 0
                          : static_cast<int64_t>(std::min<Wide>((rise + run - 1) / run, INT64_MAX));
            if (lowest.level == no_level || p.level < lowest.level) lowest.level = p.level;
        }
        if (lowest.level != no_level) {
            hull.resize(touch(lowest) + 1);
            hull.push_back(lowest);
        }
        end = begin;
    }
    return entry;
}

}  // namespace souk::market
