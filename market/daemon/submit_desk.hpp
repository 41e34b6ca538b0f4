// SPDX-License-Identifier: GPL-2.0-or-later
// SubmitDesk: asks the operator's submit filter about new jobs of this site (docs/filters.md), and
// again, after growing pauses, about those for which it gave no answer. Users take turns. Owned by
// Marketd.
#pragma once

#include <map>

#include "market/core/market.hpp"
#include "market/daemon/asked_program.hpp"
#include "market/daemon/step_taker.hpp"

namespace souk {

class SubmitDesk {
  public:
    static constexpr Nanos pause_least = Nanos::from_s(5), pause_most = Nanos::from_s(300);

    SubmitDesk(Loop& loop, market::Market& market, AskedProgram& program, StepTaker& steps)
        : loop_(loop), market_(market), program_(program), steps_(steps) {}

    // After the market has decided: new jobs are asked about.
    void look();
    void close() { timer_.cancel(); }

  private:
    void ask(const JobId& id);
    void answered(const JobId& id, const JobTerms& asked, const Result<std::string>& answer);
    void again_later(const JobId& id);
    void tick();

    Loop& loop_;
    market::Market& market_;
    AskedProgram& program_;
    StepTaker& steps_;
    std::map<JobId, Nanos> pauses_;    // the last one of jobs that had no answer
    std::multimap<Nanos, JobId> due_;  // when they are asked about again
    Timer timer_;
};

}  // namespace souk
