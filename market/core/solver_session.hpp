// SPDX-License-Identifier: GPL-2.0-or-later
// SolverSession: one run of the solver program: commands in, answers out (solver_protocol.hpp), a
// Solver behind them. Nothing fails: what cannot be taken is answered by an error line.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "market/core/solver.hpp"
#include "market/core/solver_protocol.hpp"

namespace souk::market {

class SolverSession {
  public:
    SolverSession() = default;
    // With options that a solver takes.
    explicit SolverSession(const SolverOptions& options) { (void)solver_.set_options(options); }
    // The answer to one line without its newline: nothing, or whole lines. Blank lines and "# ..."
    // are passed over.
    std::string take(std::string_view line);
    // exit was taken.
    bool ended() const { return ended_; }

  private:
    Status carry_out(const Command& command, std::string& out);
    Status add_gang(const command::AddGang& a);
    Status known(JobKey id) const;
    Status known(ProviderKey id) const;
    void list_jobs(std::string& out) const;
    void list_providers(std::string& out) const;

    Solver solver_;
    std::map<JobKey, ProviderKey> pending_;  // decided, not yet read by alloc
    // starts, moves, thaws and freezes not told to be done
    std::map<JobKey, ChangeKind> under_way_;
    std::map<JobKey, uint32_t> jobs_;  // and the user of each
    std::map<ProviderKey, int64_t> providers_;
    int64_t time_s_ = 0;
    bool ended_ = false;
};

}  // namespace souk::market
