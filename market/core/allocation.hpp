// SPDX-License-Identifier: GPL-2.0-or-later
// Allocation: keeps the solver told of jobs and nodes, has it decide, and notes what it changed.
// Another program may decide in its place (outside_solver.hpp).
//
// The solver is told of a job with a pin where nothing is to be decided about it: it is in transit,
// its home or place is not connected, it refused to be frozen or moved a moment ago, an operator
// holds it. It is told of a gang as one when the market knows all of its components. Pure; part of
// Market.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "market/core/admission.hpp"
#include "market/core/book.hpp"
#include "market/core/equal_jobs.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/job_waits.hpp"
#include "market/core/lent_jobs.hpp"
#include "market/core/market_context.hpp"
#include "market/core/notes.hpp"
#include "market/core/outside_solver.hpp"
#include "market/core/places.hpp"
#include "market/core/prices_in_force.hpp"
#include "market/core/run_times.hpp"
#include "market/core/solver.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class Allocation final : public Admission::Jobs {
  public:
    using Problem = OutsideSolver::Problem;

    Allocation(const MarketContext& context, Book& book, const Places& places, Solver& solver,
               Admission& admission, JobWaits& waits, EqualJobs& equals, GangList& gangs,
               PricesInForce& prices, Notes& notes, WorkList& work, const RunTimes& learned,
               const LentJobs& lent)
        : context_(context),
          book_(book),
          places_(places),
          solver_(solver),
          admission_(admission),
          waits_(waits),
          equals_(equals),
          gangs_(gangs),
          prices_(prices),
          notes_(notes),
          work_(work),
          learned_(learned),
          lent_(lent) {}

    // Tells the solver of the nodes and jobs that were touched.
    void sync_nodes();
    void sync_jobs(Nanos now);
    // The limits of users decide who competes, then the solver decides, or (not `by_own_solver`)
    // what the other program said is looked at by the limits alone.
    void decide(Nanos now, bool by_own_solver);
    // The place that the solver has for the job; null: none.
    const Node* target_of(const Job& job) const {
        // A job that the solver does not know has no place, whoever had its key before.
        return job.in_solver ? book_.node_of(solver_.place(job.key)) : nullptr;
    }

    // -- another program decides

    void use_program(bool on);
    OutsideSolver& outside() { return outside_; }
    const OutsideSolver& outside() const { return outside_; }
    Problem problem() const;
    Status adopt(const std::vector<Solver::Assignment>& allocation, Nanos now);
    void use_own();

    // -- Admission::Jobs

    const Job& at(const JobId& id) const override { return book_.jobs().at(id); }
    Job* of(JobKey key) const override { return book_.job_of(key); }
    std::optional<bool> runs_anyhow(const Job& job) const override;
    JobDemand spec_of(const Job& job, Job::Held held) const override;

  private:
    // The solver takes this for granted about a job.
    struct Wish {
        JobState state = JobState::waiting;
        NodeName place;
        Pin pin = Pin::free;
        bool waits() const { return pin == Pin::free && state != JobState::running; }
    };
    std::optional<Wish> fact(const Job& job) const;
    Wish wish(const Job& job) const { return wish(job, job.held); }
    Wish wish(const Job& job, Job::Held held) const;
    JobDemand spec_of(const Job& job, const Wish& wish) const;
    JobAhead ahead_of(const Job& job) const;
    void tell_jobs(Nanos now);
    void tell_job(Job& job, Nanos now);
    void tell_solver(Job& job, const Wish& wish);
    void rank_among_equals(Job& job);
    bool is_to_leave(const Job& job) const;
    bool loses_place(const Job& job) const;
    std::set<Job*> give_back_to_equals(std::span<const Change> changes);
    void rank_by_place(Job& job);
    void take_held(const Admission::Decision& decision, Nanos now);
    void seat_inside(Job& job, const Wish& wish);
    void place_is_known(const Wish& wish);
    void leave(Job& job);
    void leave_gang(Job& job);
    bool enter_gang(Job& job, Nanos now);
    bool may_enter(const std::string& gang, const std::vector<Job*>& all);
    std::vector<JobDemand> specs_of(const std::vector<Job*>& gang, Nanos now);
    void wake_gang(const Job& job, Nanos now);
    void take_changes(std::span<const Change> changes);
    Names names() const;
    std::vector<OutsideSolver::KnownJob> known_jobs() const;

    const MarketContext& context_;
    Book& book_;
    const Places& places_;
    Solver& solver_;
    Admission& admission_;
    JobWaits& waits_;
    EqualJobs& equals_;
    GangList& gangs_;
    PricesInForce& prices_;
    Notes& notes_;
    WorkList& work_;
    OutsideSolver outside_;
    const RunTimes& learned_;
    const LentJobs& lent_;
    Nanos now_{};                       // of the last sync_jobs()
    std::set<std::string> gangs_seen_;  // by the present sync_jobs()
};

}  // namespace souk::market
