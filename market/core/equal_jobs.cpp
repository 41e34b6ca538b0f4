// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/equal_jobs.hpp"

#include <iterator>
#include <utility>

namespace souk::market {

EqualJobs::Key EqualJobs::key_of(const Job& job, Money bid) {
    const JobReport& r = job.record.report;
    return {r.uid, bid.micro, r.terms.cpus, r.terms.memory_mb, *r.terms.resources, needs_of(job)};
}

Turn EqualJobs::turn_at(const Job& job, Money bid) const {
    if (job.equal.list && bid == job.bid) return turn_of(job);
    Turn turn{job.weight, job.record.arrived};
    const auto at = lists_.find(key_of(job, bid));
    if (at == lists_.end()) return turn;
    const List& list = at->second;
    if (const auto same = list.arrived.find(turn.arrival); same != list.arrived.end())
        turn.arrival += Nanos{same->second.ever};
    // The last of those that have a place.
    auto last = list.places.lower_bound(class_none);
    if (last == list.places.begin()) return turn;
    const Job& other = **std::prev(last)->second.rbegin();
    const std::tuple own{-int64_t{turn.weight}, turn.arrival.ns, job.key.n};
    if (place_in_turn(other) < own) return turn;
    // That one would have an earlier turn then, and still has this one.
    turn = turn_of(other);
    turn.arrival += Nanos{1};
    return turn;
}

void EqualJobs::pull(List& list, Job& job) {
    const auto block = list.places.find(job.equal.place);
    block->second.erase(&job);
    if (block->second.empty()) list.places.erase(block);
}

void EqualJobs::give_turn(Job& owner, Job& holder) {
    const bool own = &owner == &holder;
    owner.equal.turn_is_with = own ? nullptr : &holder;
    holder.equal.has_turn_of = own ? nullptr : &owner;
}

void EqualJobs::exchange(List& list, Job& a, Job& b) {
    pull(list, a);
    pull(list, b);
    Job &of_a = turn_owner(a), &of_b = turn_owner(b);
    give_turn(of_a, b);
    give_turn(of_b, a);
    put(list, a);
    put(list, b);
    work_.tell(a);
    work_.tell(b);
}

// The job has come into its block with a turn that may be too early or too late there.
void EqualJobs::sort(List& list, Job& job) {
    constexpr Earlier earlier;
    for (Job* one = &job;;) {
        const auto block = list.places.find(one->equal.place), next = std::next(block);
        Job* other = nullptr;
        if (block != list.places.begin() && earlier(one, *std::prev(block)->second.rbegin()))
            other = *std::prev(block)->second.rbegin();
        else if (next != list.places.end() && earlier(*next->second.begin(), one))
            other = *next->second.begin();
        if (!other || turn_of(*one) == turn_of(*other)) return;
        exchange(list, *one, *other);
        one = other;
    }
}

void EqualJobs::take(Job& job, ClassKey place) {
    Key key = key_of(job, job.bid);
    const Nanos at = job.record.arrived;
    if (const auto* const list = static_cast<List*>(job.equal.list);
        list && (list->key != key || job.equal.arrived != at))
        leave(job);
    if (!job.equal.list) {
        List& list = lists_[key];
        list.key = std::move(key);
        // Elements of an array come at one moment, and no two turns may be the same.
        Arrivals& same = list.arrived[at];
        ++same.jobs;
        job.equal = {&list, place, at, {job.weight, at + Nanos{same.ever++}}, nullptr, nullptr};
        put(list, job);
        sort(list, job);
        return;
    }
    List& list = *static_cast<List*>(job.equal.list);
    if (job.equal.place != place) {
        pull(list, job);
        job.equal.place = place;
        put(list, job);
        sort(list, job);
    }
    if (job.equal.own.weight == job.weight) return;
    Job& holder = turn_holder(job);
    pull(list, holder);
    job.equal.own.weight = job.weight;
    put(list, holder);
    work_.tell(holder);
    sort(list, holder);
}

void EqualJobs::leave(Job& job) {
    if (!job.equal.list) return;
    List& list = *static_cast<List*>(job.equal.list);
    Job &owner = turn_owner(job), &holder = turn_holder(job);
    pull(list, job);
    if (&holder != &job) {
        pull(list, holder);
        give_turn(owner, holder);
        put(list, holder);
        work_.tell(holder);
        sort(list, holder);
    }
    const auto arrived = list.arrived.find(job.equal.arrived);
    if (--arrived->second.jobs == 0) list.arrived.erase(arrived);
    job.equal = {};
    if (list.places.empty()) lists_.erase(lists_.find(list.key));
}

}  // namespace souk::market
