// SPDX-License-Identifier: GPL-2.0-or-later
// Decider: who decides in a simulated market in place of the market's own solver: somebody's
// program. It is told what happened, and says where every job is to be. One for each run, owned by
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernel/base/result.hpp"
#include "market/core/solver.hpp"
#include "market/sim/market_files.hpp"

namespace souk::sim {

// An event that a decider is told: something happened to a job or provider, named by its index.
struct Told {
    enum class What : uint8_t {
        job_came,
        job_ended,
        job_frozen,
        job_placed,
        provider_came,
        provider_left
    };
    What what;
    uint32_t index;
};

struct Placement {
    uint32_t job, provider;
};

class Decider {
  public:
    virtual ~Decider() = default;
    // Says where every job is to be. A job that is not named does not run. A job that is being
    // moved is moved on after it has arrived.
    virtual Result<std::vector<Placement>> decide(std::span<const Told> told, int64_t now_s) = 0;
};

// Makes one for a run over these jobs and providers, which outlive it.
using MakeDecider = std::function<Result<std::unique_ptr<Decider>>(std::span<const SimJob>,
                                                                   std::span<const SimProvider>)>;

// The part of a decision that can be carried out now, in the form that the solver takes. A job
// whose operation is under way keeps its place until that operation ends. A job whose new place is
// still held stays where it is, or waits, until the next decision. Fails on an impossible decision:
// a job or provider that is not there, a job named twice, a job below the reserve, more jobs than a
// provider has room for. `under_way` are the jobs that are on their way to the place that they
// hold. Keys are indices + 1.
Result<std::vector<market::Solver::Assignment>> possible_now(const market::Solver& solver,
                                                             std::span<const Placement> wanted,
                                                             std::span<const uint32_t> under_way);

}  // namespace souk::sim
