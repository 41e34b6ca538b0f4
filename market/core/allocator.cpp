// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/allocator.hpp"

#include <algorithm>
#include <utility>

#include "market/core/room_maker.hpp"
#include "market/core/turns.hpp"

namespace souk::market {

void Allocator::begin(Nanos now) {
    changes_.clear();
    changed_.clear();
    seats_.begin(now);
    if (budget_.begin(now, rules())) seats_.agenda().add_all();
}

// They are looked at, or the machines that have room for them.
void Allocator::let_in(const ClassLimits::Raise& raise) {
    constexpr size_t few = 64;
    std::vector<uint32_t> jobs;
    if (raise.last != rank_last)
        seats_.order().each_after(raise.after, [&](const JobOrder::Entry& e) {
            if (e.rank > raise.last || jobs.size() > few) return false;
            jobs.push_back(e.job);
            return true;
        });
    if (raise.last != rank_last && jobs.size() <= few) return seats_.agenda().add(jobs);
    std::vector<uint32_t> machines;
    machine_order().each_free(raise.cls,
                              [&](const MachineOrder::Entry& e) { machines.push_back(e.machine); });
    for (const uint32_t m : machines) seats_.open(m, raise.after);
}

// Guests beyond the limit leave.
void Allocator::let_go(const ClassLimit& limit) {
    std::vector<uint32_t> beyond;
    Rank bar = limit.last;
    seats_.machine_order().each_weaker(limit.cls, limit.cls + 1, bar,
                                       [&](const MachineOrder::Entry& e) {
                                           for (const Guest& g : machines()[e.machine].guests)
                                               if (g.rank > limit.last) beyond.push_back(g.job);
                                       });
    int32_t moves = 0;
    for (const uint32_t j : beyond) {
        if (rules().horizon.ns > 0 && !limits_.worth_leaving(seats_, j, machines()[jobs()[j].slot]))
            continue;
        if (!budget_.allows(moves++)) continue;
        seats_.evict(j, Cause::cheaper, none);
        seats_.agenda().add(j);
    }
}

void Allocator::set_limits(std::vector<ClassLimit> limits, const Rank& last,
                           std::vector<ClassLevel> levels) {
    if (limits != limits_.all()) seats_.note_change();
    for (const auto& raise : limits_.set(std::move(limits), last, std::move(levels))) let_in(raise);
    for (const ClassLimit& limit : limits_.all()) let_go(limit);
}

void Allocator::lift_limits() {
    limits_.lift();
    seats_.agenda().add_all();
    seats_.note_change();
}

void Allocator::solve(Nanos now) {
    begin(now);
    Turns turns(seats_, limits_, budget_);
    const Agenda& agenda = seats_.agenda();
    const size_t dirty = agenda.dirty().size();
    if (agenda.all_dirty() || (dirty > 64 && dirty * 4 > seats_.order().size()))
        turns.pass();
    else
        turns.repair();
    const bool by_bids = !seats_.ranks().assigned() && limits_.none();
    if (by_bids) RoomMaker(seats_, turns, budget_).make_room();
    turns.settle();
    emit(now);
}

void Allocator::solve_all(Nanos now) {
    seats_.agenda().add_all();
    solve(now);
}

void Allocator::solve_in_order(const std::vector<uint32_t>& jobs, Nanos now) {
    seats_.rank_in_order(jobs);
    solve_all(now);
}

void Allocator::adopt(const std::vector<uint32_t>& slots, Nanos now, Cause cause) {
    begin(now);
    std::vector<uint32_t> moving;
    for (uint32_t j = 0; j < jobs().size(); ++j) {
        const Job& job = jobs()[j];
        if (job.key().n == 0 || job.pin != Pin::free || job.slot == slots[j]) continue;
        if (job.held) seats_.unhold(j);
        moving.push_back(j);
    }
    seats_.flush();
    seats_.agenda().pause(true);
    for (const uint32_t j : moving)
        if (jobs()[j].slot != none) seats_.unseat(j);
    seats_.agenda().pause(false);
    for (const uint32_t j : moving) {
        seats_.explain(j, cause);
        seats_.touch(j);
        seats_.set_bound(j, class_none);
        if (slots[j] != none) seats_.seat(j, slots[j]);
    }
    seats_.agenda().clear();
    emit(now);
    seats_.agenda().add_all();
}

bool Allocator::would_run(const Gang& g, Money value) {
    return GangTurns(seats_).would_run(g, value);
}

// Freezes, moves, thaws and starts; each in rank order, which is how a pass finds them.
struct Allocator::Place {
    int group = 0;
    Rank rank;
    uint32_t change = 0;
    auto operator<=>(const Place&) const = default;
};

Allocator::Place Allocator::place_in_order(uint32_t change) const {
    const ChangeKind kind = changes_[change].kind;
    const int group = kind == ChangeKind::freeze ? 0 : kind == ChangeKind::move ? 1 : 2;
    return {group, jobs()[changed_[change]].rank, change};
}

void Allocator::sort_changes() {
    std::vector<Place> order;
    order.reserve(changes_.size());
    for (uint32_t i = 0; i < changes_.size(); ++i) order.push_back(place_in_order(i));
    std::sort(order.begin(), order.end());
    std::vector<Change> changes;
    std::vector<uint32_t> changed;
    changes.reserve(order.size());
    changed.reserve(order.size());
    for (const Place& p : order) {
        changes.push_back(changes_[p.change]);
        changed.push_back(changed_[p.change]);
    }
    changes_.swap(changes);
    changed_.swap(changed);
}

// From the plan to changes; the plan becomes the state.
void Allocator::emit(Nanos now) {
    constexpr size_t ahead = 12;
    const std::vector<uint32_t>& touched = seats_.touched();
    bool sorted = true;
    Place last;
    changes_.reserve(touched.size());
    changed_.reserve(touched.size());
    for (size_t i = 0; i < touched.size(); ++i) {
        if (i + ahead < touched.size()) __builtin_prefetch(&jobs()[touched[i + ahead]], 1);
        Change c;
        if (!seats_.take_change(touched[i], c)) continue;
        if (c.kind == ChangeKind::move) budget_.note(now);
        changes_.push_back(c);
        changed_.push_back(touched[i]);
        const Place place = place_in_order(static_cast<uint32_t>(changes_.size() - 1));
        sorted = sorted && (changes_.size() == 1 || last < place);
        last = place;
    }
    seats_.finish(!changes_.empty());
    if (!sorted) sort_changes();
    if (rules().min_stay.ns > 0) hold_placed(now);
}

// Whoever was placed stays for a while.
void Allocator::hold_placed(Nanos now) {
    for (size_t i = 0; i < changes_.size(); ++i) {
        const Job& job = jobs()[changed_[i]];
        if (changes_[i].kind == ChangeKind::freeze || job.pin != Pin::free || job.held ||
            job.component)
            continue;
        seats_.hold(changed_[i], now + rules().min_stay);
    }
    seats_.forget_touched();
}

}  // namespace souk::market
