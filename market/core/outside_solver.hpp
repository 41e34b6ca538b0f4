// SPDX-License-Identifier: GPL-2.0-or-later
// OutsideSolver: another program decides on the allocation. One question at a time is under way.
// What changes meanwhile is left as it is by the answer, which knows nothing of it; the next
// question is about it. Pure; part of Market, which puts the questions and takes the answers.
#pragma once

#include <set>
#include <vector>

#include "market/core/solver.hpp"
#include "market/core/types.hpp"

namespace souk::market {

class OutsideSolver {
  public:
    // A question: what is free to be decided.
    struct Problem {
        struct Place {
            ProviderKey key;
            ProviderSpec spec;
        };  // with what pinned jobs leave
        struct Bid {
            JobKey key;
            JobDemand spec;
        };
        std::vector<Place> providers;
        std::vector<Bid> jobs;  // the free ones
    };
    struct KnownJob {
        JobKey key;
        JobDemand spec;
    };
    // `places`: all that take jobs, by key.
    static Problem problem(std::vector<Problem::Place> places, const std::vector<KnownJob>& jobs);

    void use(bool on) {
        on_ = on;
        asking_ = ask_again_ = false;
    }
    bool is_used() const { return on_; }
    bool is_asked() const { return asking_; }

    // A decision is wanted. True: it is the program's.
    bool decides() { return on_ && !std::exchange(own_once_, false); }
    // Something changed. True: a question is to be put now; else when the one under way is
    // answered.
    bool wants_question();
    // The question under way is about these jobs.
    void asked(const Problem& problem);

    // An answer has come. True: it is out of date, as something changed since the question.
    bool answered();
    // The solver is to adopt this: the answer for the jobs that it was asked about and that are
    // still free, the rest as it is. A job that it was not asked about is nonsense, and the solver
    // says so.
    std::vector<Solver::Assignment> whole(const std::vector<Solver::Assignment>& answer,
                                          const std::vector<KnownJob>& jobs) const;
    // It did not fit. True: as it was out of date, and not too often in a row; asked again at once.
    bool forgives(bool stale);
    void adopted() {
        stale_answers_ = 0;
        adopted_ = true;
    }
    bool is_adopted() const { return adopted_; }
    void take_adopted() { adopted_ = false; }
    // There is no answer: the market's own solver decides, once.
    void use_own() {
        asking_ = ask_again_ = false;
        own_once_ = true;
    }

  private:
    bool on_ = false, asking_ = false, ask_again_ = false, adopted_ = false, own_once_ = false;
    std::set<JobKey> asked_;
    int stale_answers_ = 0;  // in a row, that did not fit any more
};

}  // namespace souk::market
