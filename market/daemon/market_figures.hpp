// SPDX-License-Identifier: GPL-2.0-or-later
// MarketFigures: the figures of marketd for Prometheus, its status for scripts, and what its
// answers say of the daemon itself. They are sums alone: figures of one node are told by that
// node's agentd, so that a large market has a small page. Owned by Marketd.
#pragma once

#include <memory>
#include <vector>

#include "kernel/sys/host/status_file.hpp"
#include "kernel/sys/net/metrics_page.hpp"
#include "market/core/market.hpp"
#include "market/daemon/config.hpp"
#include "market/daemon/connections.hpp"
#include "market/daemon/decision_shell.hpp"
#include "market/daemon/decision_times.hpp"
#include "market/daemon/market_records.hpp"
#include "market/daemon/market_trust.hpp"
#include "market/daemon/operator_programs.hpp"
#include "market/daemon/replies.hpp"
#include "market/daemon/solver_program.hpp"
#include "market/daemon/step_taker.hpp"

namespace souk {

class MarketFigures {
  public:
    // `decision_log` and `program` hold null where there is none.
    MarketFigures(const MarketConfig& config, const market::Market& market,
                  const MarketRecords& records, const Connections& connections,
                  const MarketTrust& trust, const DecisionTimes& times, const Warnings& warnings,
                  const OperatorPrograms& programs,
                  const std::unique_ptr<DecisionShell>& decision_log,
                  const std::unique_ptr<SolverProgram>& program)
        : config_(config),
          market_(market),
          records_(records),
          connections_(connections),
          trust_(trust),
          times_(times),
          warnings_(warnings),
          programs_(programs),
          decision_log_(decision_log),
          program_(program) {}

    std::vector<Metric> metrics() const;
    std::vector<StatusLine> status_lines() const;
    MarketFace face() const;

  private:
    const MarketConfig& config_;
    const market::Market& market_;
    const MarketRecords& records_;
    const Connections& connections_;
    const MarketTrust& trust_;
    const DecisionTimes& times_;
    const Warnings& warnings_;
    const OperatorPrograms& programs_;
    const std::unique_ptr<DecisionShell>& decision_log_;
    const std::unique_ptr<SolverProgram>& program_;
};

}  // namespace souk
