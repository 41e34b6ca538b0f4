// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/gang_packing.hpp"

#include <algorithm>
#include <tuple>

#include "kernel/base/check.hpp"

namespace souk::market {

GangPacking::GangPacking(std::vector<Need> needs, Layout layout)
    : layout_(layout), components_(needs.size()) {
    MUST(!needs.empty());
    least_ = needs.front();
    largest_ = {0, 0};
    for (uint32_t i = 0; i < needs.size(); ++i) {
        const Need& need = needs[i];
        least_ = {std::min(least_.cpus, need.cpus), std::min(least_.memory_mb, need.memory_mb)};
        if (need.machine != 0) {
            auto named = std::find_if(named_.begin(), named_.end(),
                                      [&](const Named& n) { return n.machine == need.machine; });
            if (named == named_.end())
                named = named_.insert(named, Named{need.machine, 0, 0, {}, UINT32_MAX});
            named->cpus += need.cpus;
            named->memory_mb += need.memory_mb;
            named->components.push_back(i);
            continue;
        }
        ++unnamed_;
        largest_ = {std::max(largest_.cpus, need.cpus),
                    std::max(largest_.memory_mb, need.memory_mb)};
        auto shape = std::find_if(shapes_.begin(), shapes_.end(),
                                  [&](const Shape& s) { return s.need == need; });
        if (shape == shapes_.end()) shape = shapes_.insert(shape, Shape{need, {}});
        shape->components.push_back(i);
    }
    std::sort(shapes_.begin(), shapes_.end(), [](const Shape& a, const Shape& b) {
        return std::tie(a.need.cpus, a.need.memory_mb) > std::tie(b.need.cpus, b.need.memory_mb);
    });
    if (shapes_.size() > 1) plan_states();
    all_as_largest_ = shapes_.size() > 1 && states_ == 0 && layout_.most_on_one > 0;
    if (shapes_.size() > 1 && states_ == 0 && !all_as_largest_) plan_units();
    begin();
}

void GangPacking::plan_states() {
    size_t states = 1;
    for (Shape& s : shapes_) {
        s.stride = states;
        states *= s.components.size() + 1;
        if (states > states_max) return;
    }
    states_ = states;
}

void GangPacking::plan_units() {
    // The part 1/2^k of the largest need that holds this one.
    const auto part = [&](const Need& need) {
        int k = 0;
        while (k < steps_max && static_cast<int64_t>(need.cpus) << (k + 1) <= largest_.cpus &&
               static_cast<__int128>(need.memory_mb) << (k + 1) <= largest_.memory_mb)
            ++k;
        return k;
    };
    for (const Shape& s : shapes_) steps_ = std::max(steps_, part(s.need));
    needed_.assign(static_cast<size_t>(steps_) + 1, 0);
    for (Shape& s : shapes_) {
        s.step = steps_ - part(s.need);
        for (int k = 0; k <= s.step; ++k)
            needed_[static_cast<size_t>(k)] += static_cast<int64_t>(s.components.size()) << s.step;
    }
    std::stable_sort(shapes_.begin(), shapes_.end(),
                     [](const Shape& a, const Shape& b) { return a.step > b.step; });
}

void GangPacking::begin() {
    rooms_.clear();
    before_.clear();
    rest_packed_ = unnamed_ == 0;
    named_left_ = named_.size();
    for (Named& named : named_) named.place = UINT32_MAX;
    held_ = 0;
    reached_.reset();
    reached_.set(0);
    offered_.assign(needed_.size(), 0);
}

bool GangPacking::add(int64_t cpus, int64_t memory_mb, uint64_t machine, uint32_t siblings) {
    Room room{std::max<int64_t>(cpus, 0), std::max<int64_t>(memory_mb, 0), INT64_MAX, siblings};
    if (layout_.most_on_one > 0)
        room.most = std::max<int64_t>(0, int64_t{layout_.most_on_one} - siblings);
    seat_named(room, machine);
    if (unnamed_ > 0)
        rest_packed_ = counted()     ? add_counted(room)
                       : states_ > 0 ? add_exact(room)
                                     : add_rounded(room);
    rooms_.push_back(room);
    return packed();
}

// Those that must be on it have its room first, if it holds them all.
void GangPacking::seat_named(Room& room, uint64_t machine) {
    const auto named = std::find_if(named_.begin(), named_.end(),
                                    [&](const Named& n) { return n.machine == machine; });
    if (named == named_.end() || machine == 0) return;
    const auto count = static_cast<int64_t>(named->components.size());
    if (named->cpus > room.cpus || named->memory_mb > room.memory_mb || count > room.most) return;
    room.cpus -= named->cpus;
    room.memory_mb -= named->memory_mb;
    if (room.most != INT64_MAX) room.most -= count;
    room.siblings += static_cast<uint32_t>(count);
    named->place = static_cast<uint32_t>(rooms_.size());
    --named_left_;
}

int64_t GangPacking::holds(const Room& room) const {
    const Need& need = counted_need();
    int64_t most = std::min(room.most, room.cpus / need.cpus);
    if (need.memory_mb > 0) most = std::min(most, room.memory_mb / need.memory_mb);
    return std::min(most, static_cast<int64_t>(unnamed_));
}

bool GangPacking::add_counted(const Room& room) {
    held_ += holds(room);
    return held_ >= static_cast<int64_t>(unnamed_);
}

template <class Visit>
bool GangPacking::each_held(const Room& room, size_t within, size_t shape, size_t state,
                            Visit&& visit) const {
    if (shape == shapes_.size()) return visit(state);
    const Shape& s = shapes_[shape];
    Room left = room;
    for (size_t n = 0; n <= number(within, s); ++n) {
        if (n > 0) {
            left.cpus -= s.need.cpus;
            left.memory_mb -= s.need.memory_mb;
            --left.most;
        }
        if (left.cpus < 0 || left.memory_mb < 0 || left.most < 0) return false;
        if (each_held(left, within, shape + 1, state + n * s.stride, visit)) return true;
    }
    return false;
}

bool GangPacking::add_exact(const Room& room) {
    before_.push_back(reached_);
    // Keeps only those combinations that the room holds and no other one contains.
    std::vector<size_t> held;
    const auto contains = [&](size_t a, size_t b) {
        return std::all_of(shapes_.begin(), shapes_.end(),
                           [&](const Shape& s) { return number(a, s) >= number(b, s); });
    };
    each_held(room, states_ - 1, 0, 0, [&](size_t state) {
        std::erase_if(held, [&](size_t other) { return contains(state, other); });
        if (std::none_of(held.begin(), held.end(),
                         [&](size_t other) { return contains(other, state); }))
            held.push_back(state);
        return false;
    });
    const auto less = [&](size_t state, size_t by) {  // no number below 0
        size_t rest = state;
        for (const Shape& s : shapes_) rest -= std::min(number(state, s), number(by, s)) * s.stride;
        return rest;
    };
    for (size_t state = 1; state < states_; ++state)
        if (!reached_[state])
            reached_[state] = std::any_of(held.begin(), held.end(), [&](size_t by) {
                return before_.back()[less(state, by)];
            });
    return reached_[states_ - 1];
}

int64_t GangPacking::units_of(const Room& room) const {
    const auto whole = [&](int64_t have, int64_t need) {
        const auto units = (static_cast<__int128>(have) << steps_) / std::max<int64_t>(need, 1);
        return static_cast<int64_t>(std::min<__int128>(units, needed_[0]));
    };
    const int64_t by_cpus = whole(room.cpus, largest_.cpus);
    if (largest_.memory_mb == 0) return by_cpus;
    return std::min(by_cpus, whole(room.memory_mb, largest_.memory_mb));
}

bool GangPacking::add_rounded(const Room& room) {
    const int64_t units = units_of(room);
    bool enough = true;
    for (size_t k = 0; k < needed_.size(); ++k) {
        offered_[k] += units >> k << k;
        enough = enough && offered_[k] >= needed_[k];
    }
    return enough;
}

std::vector<uint32_t> GangPacking::places() const {
    MUST(packed());
    std::vector<uint32_t> out(components_);
    for (const Named& named : named_)
        for (const uint32_t component : named.components) out[component] = named.place;
    if (unnamed_ == 0) return out;
    counted() ? places_counted(out) : states_ > 0 ? places_exact(out) : places_rounded(out);
    if (layout_.few) places_few(out);
    return out;
}

void GangPacking::places_counted(std::vector<uint32_t>& out) const {
    uint32_t machine = 0;
    int64_t left = holds(rooms_.front());
    for (const Shape& s : shapes_)
        for (const uint32_t component : s.components) {
            while (left == 0) left = holds(rooms_[++machine]);
            out[component] = machine;
            --left;
        }
}

// Those that none of the gang is on without these.
size_t GangPacking::machines_in(const std::vector<uint32_t>& places) const {
    std::vector<uint32_t> fresh;
    for (const Shape& s : shapes_)
        for (const uint32_t component : s.components)
            if (rooms_[places[component]].siblings == 0) fresh.push_back(places[component]);
    std::sort(fresh.begin(), fresh.end());
    return static_cast<size_t>(std::unique(fresh.begin(), fresh.end()) - fresh.begin());
}

void GangPacking::places_few(std::vector<uint32_t>& out) const {
    std::vector<Need> needs;
    std::vector<uint32_t> components, order(rooms_.size());
    for (const Shape& s : shapes_)
        for (const uint32_t component : s.components) {
            needs.push_back(s.need);
            components.push_back(component);
        }
    for (uint32_t m = 0; m < order.size(); ++m) order[m] = m;
    const auto worth = [&](const Room& r) {
        return counted() ? std::tuple(r.siblings > 0, holds(r), int64_t{0})
                         : std::tuple(r.siblings > 0, r.cpus, r.memory_mb);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return worth(rooms_[a]) > worth(rooms_[b]); });
    GangPacking largest_first(std::move(needs), {layout_.most_on_one, false});
    for (size_t i = 0; i < order.size() && !largest_first.packed(); ++i) {
        const Room& room = rooms_[order[i]];
        const int64_t there = std::max<int64_t>(0, int64_t{layout_.most_on_one} - room.most);
        largest_first.add(room.cpus, room.memory_mb, 0, static_cast<uint32_t>(there));
    }
    if (!largest_first.packed()) return;
    std::vector<uint32_t> fewer = out;
    const std::vector<uint32_t> at = largest_first.places();
    for (size_t i = 0; i < at.size(); ++i) fewer[components[i]] = order[at[i]];
    if (machines_in(fewer) < machines_in(out)) out = std::move(fewer);
}

void GangPacking::places_exact(std::vector<uint32_t>& out) const {
    size_t state = states_ - 1;
    for (size_t m = rooms_.size(); m-- > 0;) {
        size_t taken = 0;
        const bool found = each_held(rooms_[m], state, 0, 0, [&](size_t some) {
            taken = some;
            return before_[m][state - some];
        });
        MUST(found);
        for (const Shape& s : shapes_)
            for (size_t n = number(state, s) - number(taken, s); n < number(state, s); ++n)
                out[s.components[n]] = static_cast<uint32_t>(m);
        state -= taken;
    }
}

void GangPacking::places_rounded(std::vector<uint32_t>& out) const {
    std::vector<int64_t> units;
    units.reserve(rooms_.size());
    for (const Room& room : rooms_) units.push_back(units_of(room));
    for (const Shape& s : shapes_) {
        size_t m = 0;  // what one of this size finds full stays so for all of it
        for (const uint32_t component : s.components) {
            while (units[m] < int64_t{1} << s.step) ++m;
            units[m] -= int64_t{1} << s.step;
            out[component] = static_cast<uint32_t>(m);
        }
    }
}

}  // namespace souk::market
