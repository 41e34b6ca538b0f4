// SPDX-License-Identifier: GPL-2.0-or-later
// EqualJobs: who of the equal jobs of a user ranks first. Jobs are equal that have one user, bid
// the same and ask for the same. Each has a turn of its own: its arrival, and what its wait makes
// of its bid. Among equal jobs the turns are handed out so that who has a place has an earlier turn
// than who has none, and who has the faster place an earlier one than who has a slower. So no job
// loses its place to an equal one of its user, whatever it was that kept that one from the place
// before: a start that failed, a node that left, a limit, a wait.
//
// Nobody else sees a difference: the turns of the user are the same ones, so others rank before and
// after as many equal jobs as ever. Two jobs that exchange their turns are both told to the solver
// before it decides. A change moves at most one job of each class of machines. The data lie in the
// jobs; it owns the lists of equal ones. Pure; part of Market.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "market/core/rank.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class EqualJobs {
  public:
    explicit EqualJobs(WorkList& work) : work_(work) {}

    // The job competes, or runs: `place` is the class of the machine that it has; class_none: it
    // has none.
    void take(Job& job, ClassKey place);
    // It does neither, or has ended. Whoever has its turn has the one that it had.
    void leave(Job& job);

    // The turn that the job has: its own, or that of an equal one.
    static Turn turn_of(const Job& job) {
        if (!job.equal.list) return {job.weight, job.record.arrived};
        return (job.equal.has_turn_of ? job.equal.has_turn_of : &job)->equal.own;
    }
    // The turn that a job which has no place would have with that bid: nobody equal who has a place
    // would come after it.
    Turn turn_at(const Job& job, Money bid) const;
    static bool are_equal(const Job& a, const Job& b) {
        return a.equal.list && a.equal.list == b.equal.list;
    }

  private:
    // Its user, bid, CPUs, memory, named resources and needs.
    using Key = std::tuple<uint32_t, int64_t, int32_t, int64_t, std::string, std::string>;
    struct Earlier {
        bool operator()(const Job* a, const Job* b) const {
            return place_in_turn(*a) < place_in_turn(*b);
        }
    };
    static std::tuple<int64_t, int64_t, uint64_t> place_in_turn(const Job& job) {
        const Turn turn = turn_of(job);
        return {-int64_t{turn.weight}, turn.arrival.ns, job.key.n};
    }
    struct Arrivals {
        size_t jobs = 0;   // now
        int64_t ever = 0;  // since there were none
    };
    // The jobs by the classes of their places. Those of a class have earlier turns than those of
    // the next one.
    struct List {
        std::map<ClassKey, std::set<Job*, Earlier>> places;
        std::map<Nanos, Arrivals> arrived;  // by the moment of the arrival
        Key key;
    };

    static Key key_of(const Job& job, Money bid);
    static void put(List& list, Job& job) { list.places[job.equal.place].insert(&job); }
    static void pull(List& list, Job& job);
    static Job& turn_owner(Job& job) {
        return job.equal.has_turn_of ? *job.equal.has_turn_of : job;
    }
    static Job& turn_holder(Job& job) {
        return job.equal.turn_is_with ? *job.equal.turn_is_with : job;
    }
    static void give_turn(Job& owner, Job& holder);
    void exchange(List& list, Job& a, Job& b);
    void sort(List& list, Job& job);

    WorkList& work_;
    std::map<Key, List> lists_;
};

}  // namespace souk::market
