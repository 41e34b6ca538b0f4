// SPDX-License-Identifier: GPL-2.0-or-later
// PriceRounds: when prices are reckoned anew and put in force. A round reckons what a closed form
// gives, then one by one the jobs whose prices take an integral each. Both are done in pieces of
// about a millisecond: one piece comes with the change that it follows from; where more are needed
// they take a tenth of the time, and a round starts anew once a second at most. What is left of the
// rest then waits for its turn in the new round, so that every job's turn comes. Pure; part of
// Market, which has the jobs pay.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernel/base/time.hpp"
#include "market/core/solver.hpp"
#include "market/core/types.hpp"

namespace souk::market {

class PriceRounds {
  public:
    // Those who pay.
    class Payers {
      public:
        // Its price may be another now. (On its way a job pays what it was told.)
        virtual bool may_change(JobKey job) const = 0;
        // False: its price is what it was.
        virtual bool take(const Payment& payment, Nanos now) = 0;
        // Hear of prices before they are taken: of a round, and of some of its rest.
        virtual void reckoned(const Solver::PriceStart& /*round*/, Nanos /*now*/) const {}
        virtual void reckoned(std::span<const Payment> /*some*/, Nanos /*now*/) const {}

      protected:
        ~Payers() = default;
    };

    // The allocation, a bid or a reserve has changed.
    void changed() { due_ = true; }
    // A piece, if it is time for one.
    void refresh(const Solver& solver, Payers& payers, Nanos now);
    // When refresh() is to be called again; never(): all prices are in force.
    Nanos next_call() const;

  private:
    uint64_t reckon(const Solver& solver, const Payers& payers, uint64_t steps_max, Nanos now);
    void list_rest(std::vector<JobKey> all, const Payers& payers);

    bool due_ = false;
    Nanos at_{INT64_MIN / 2};
    Nanos pace_;                  // not before at_ + this again
    std::vector<Payment> round_;  // as reckoned; those before next_ are in force
    size_t next_ = 0;
    std::vector<JobKey> rest_;  // still to be reckoned, one by one
    JobKey reckoned_;           // the last that was
    Nanos round_at_{INT64_MIN / 2};
};

}  // namespace souk::market
