// SPDX-License-Identifier: GPL-2.0-or-later
// Admission: which jobs of users with a limit of jobs or CPUs at once (users.hpp) compete for a
// place. Pure; part of Market, which has the jobs and users and tells the solver.
//
// A job that its user's limits leave no place for is held: the solver knows it as one that gets
// nothing, so it competes with nobody, and prices are those of the market without it. Who is held
// is defined by one walk over a user's jobs, the most valuable first: a job that has a place
// counts, one that lost its contest does not (so it keeps no lesser one from running), one that
// would pass the limit is held. As the solver gives places by rank, and who ranks lower changes
// nothing for who ranks higher, walk and solver in turn come to rest at what one pass over all jobs
// by rank would give that skips who would pass a limit: each round settles at least the next job.
// So whatever happened before, with greedy_migration and its plain rules:
//   - no user runs more jobs or CPUs than the limits say, at any moment (the market looks at what
//     really runs before it gives an order: has_room);
//   - no justified envy among those whose limits allow: who is not held envies nobody; who is held
//     would pass a limit beside the more valuable jobs of its user that run;
//   - the allocation is that of a market that was told everything at once (incremental = full).
// What is not to be decided about (in transit, not connected) counts first. With
// proportional_share, migration-aware rules and a solver program the limits hold all the same, and
// who of a user's jobs runs follows that algorithm's order until the walk finds a more valuable
// one. What an operator holds at a node is not above its user's limits.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "market/core/market_state.hpp"
#include "market/core/solver.hpp"
#include "market/core/users.hpp"

namespace souk::market {

class Admission {
  public:
    using Users = std::map<uint32_t, User>;
    // The jobs, as the market knows them.
    class Jobs {
      public:
        virtual const Job& at(const JobId& id) const = 0;
        virtual Job* of(JobKey key) const = 0;
        // Whether a job runs about which nothing is to be decided. nullopt: it is free.
        virtual std::optional<bool> runs_anyhow(const Job& job) const = 0;
        // The solver is told this of the job, if it is held so.
        virtual JobDemand spec_of(const Job& job, Job::Held held) const = 0;

      protected:
        ~Jobs() = default;
    };
    struct Decision {
        std::vector<Change> changes;                        // of the solver
        std::map<JobKey, std::pair<Job*, Job::Held>> held;  // otherwise than before
        std::map<uint32_t, int64_t> more_held;              // by user
        std::vector<Job*> turned;                           // the solver does not know it yet
        // unsettled: somebody was not let in for want of rounds
        bool again = false, unsettled = false;
        Job::Held held_of(const Job& job) const;
        void hold(Job& job, Job::Held why);
    };

    // The user's limits are others.
    void limits_changed(User& user);
    // Somebody's jobs, what runs of them, or what they bid changed: looked at by the next decide().
    void changed(uint32_t uid) { due_.insert(uid); }
    // A job that has not finished, with its bid of now; one that has.
    void list(Job& job);
    void unlist(Job& job);

    // The solver and the limits in turn, until both are content, and what became of it in the jobs
    // and users. Without `now` the solver is another program: one walk over what it said.
    Decision decide(const Jobs& jobs, const Users& users, Solver& solver, std::optional<Nanos> now);
    // The same without a trace, and with more jobs: `guests`, of one user, in the order of their
    // ranks, that the solver knows and no list does. `due`: whose jobs are looked at.
    Decision work_out(const Jobs& jobs, const Users& users, Solver& solver, std::span<Job> guests,
                      std::optional<Nanos> now, std::set<uint32_t> due) const;
    // The least bid, which weighs so, that gets a job past those of its own user that its limits
    // would prefer; nullopt: none does.
    static std::optional<Money> bid_within(const Jobs& jobs, const User& user, int32_t cpus,
                                           int32_t weight, const Solver& solver);
    // Beside what its user really runs now.
    static bool has_room(const Job& job);
    // Why the limits keep it from running; empty if they do not. `spent`: the user's day is over.
    static Reason why(const User& user, const Job& job, Job::Held held, bool spent);

    // The users that have any limit.
    const std::set<uint32_t>& limited() const { return limited_; }
    // When who was not admitted for want of rounds is looked at again; never(): nobody.
    Nanos next() const { return again_at_; }

  private:
    bool walk(const Jobs& jobs, const User& user, const Solver& solver, std::span<Job> guests,
              bool more, Decision& d) const;

    std::set<uint32_t> limited_, due_;
    Nanos again_at_ = Nanos::never();
};

// "user anna", or by its number.
std::string called(const User& user);

}  // namespace souk::market
