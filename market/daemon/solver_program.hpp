// SPDX-License-Identifier: GPL-2.0-or-later
// SolverProgram: anybody's program that speaks the solver's text protocol on stdin and stdout, as
// the market's solver. It is told the whole market each time (`reset`, `ap`, `aj`, `go`, `alloc`),
// so that it need not remember anything, and its answer ends where a line of two numbers does not
// follow: `info` is asked after `alloc` to make sure of one. A program that is told places (`rj`,
// `fj`) need not name a job that stays where it runs. Its prices are not asked for: the market's
// pricing prices its allocation, so that nobody pays above his bid, no provider gets less than its
// reserve, and receipts can be recomputed without the program.
//
// One question at a time. The answer is an allocation, or why there is none: the program cannot be
// started, died, spoke nonsense or was late (it is killed then). It is started again when it is
// asked next, after a growing pause. Owned by Marketd; a child process that ends with it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "market/core/market.hpp"

namespace souk {

using Allocation = std::vector<market::Solver::Assignment>;

class SolverProgram {
  public:
    // `answer` is called once for each ask(), never inside it.
    SolverProgram(Loop& loop, Log& log, std::vector<std::string> argv, bool tell_places,
                  Nanos patience, std::function<void(Result<Allocation>)> answer);
    ~SolverProgram();

    void ask(const market::Market::Problem& problem);
    bool works() const { return static_cast<bool>(child_); }

  private:
    Status start();
    void stop();
    void received(std::string_view text);
    void line(std::string_view text);
    void failed(const std::string& why);
    void deliver(Result<Allocation> allocation);

    Loop& loop_;
    Log& log_;
    std::vector<std::string> argv_;
    bool tell_places_;
    Nanos patience_;
    std::function<void(Result<Allocation>)> answer_;
    Pidfd child_;
    Stream stream_;
    Timer late_;
    std::string partial_;                  // a line that has not ended
    std::optional<Allocation> answering_;  // asked, and what has come of the answer
    bool ended_ = true;                    // the rest of what it says belongs to no question
    size_t lines_max_ = 0;
    std::map<market::JobKey, market::ProviderKey> runs_;  // as it was told, and not yet answered
    Nanos pause_, start_again_{INT64_MIN};
};

// The questions for one problem, as text. Prices in units, exact.
std::string solver_question(const market::Market::Problem& problem, bool tell_places);

}  // namespace souk
