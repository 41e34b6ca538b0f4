// SPDX-License-Identifier: GPL-2.0-or-later
// SubmitDesk: asks the operator's submit filter about new jobs of this site (docs/filters.md), and
// again, after growing pauses, about those for which it gave no answer. Homes and users take turns
// (SubmitTurns). Few questions are with the program at a time. Owned by Marketd.
#pragma once

#include "market/core/market.hpp"
#include "market/core/submit_turns.hpp"
#include "market/daemon/asked_program.hpp"
#include "market/daemon/step_taker.hpp"

namespace souk {

class SubmitDesk {
  public:
    static constexpr int asked_most = 8;  // questions that the program has

    SubmitDesk(Loop& loop, market::Market& market, AskedProgram& program, StepTaker& steps)
        : loop_(loop), market_(market), program_(program), steps_(steps) {}

    // After the market has decided: new jobs are asked about.
    void look();
    void close() { timer_.cancel(); }

  private:
    void add(const JobId& id);
    void feed();
    bool ask(const JobId& id);
    void answered(const JobId& id, const JobTerms& asked, const Result<std::string>& answer);
    void again_later(const JobId& id);
    void arm();

    Loop& loop_;
    market::Market& market_;
    AskedProgram& program_;
    StepTaker& steps_;
    SubmitTurns turns_;
    int asked_ = 0;
    Timer timer_;
};

}  // namespace souk
