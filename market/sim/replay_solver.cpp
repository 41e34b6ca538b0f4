// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/replay_solver.hpp"

#include "kernel/base/check.hpp"
#include "market/sim/market_run.hpp"

namespace souk::sim {

Result<Schedule> replay_with_solver(const SwfTrace& trace, std::span<const ReplayJob> jobs,
                                    int64_t cpus, const ReplayTerms& terms,
                                    const market::SolverOptions& options) {
    MUST(terms.value.size() == jobs.size() &&
         (terms.carry_s.empty() || terms.carry_s.size() == jobs.size()));
    if (cpus > market::cpus_max)
        return fail("the solver takes at most " + std::to_string(market::cpus_max) + " processors");
    // Unknown users get numbers above all known ones.
    constexpr uint32_t unknown_user = 1u << 31;
    std::vector<SimJob> sim;
    sim.reserve(jobs.size());
    for (size_t i = 0; i < jobs.size(); ++i) {
        const int32_t user = trace.jobs[jobs[i].source].user;
        sim.push_back(
            {static_cast<int64_t>(i) + 1, jobs[i].submit_s, jobs[i].run_s, terms.value[i],
             terms.carry_s.empty() ? 0 : terms.carry_s[i], jobs[i].procs,
             user >= 0 ? static_cast<uint32_t>(user) : unknown_user + static_cast<uint32_t>(i)});
    }
    const SimProvider machine{1,
                              0,
                              -1,
                              Money{},
                              market::memory_mb_max,
                              static_cast<int32_t>(cpus),
                              market::speed_standard};
    MarketRunOptions run;
    run.solver = options;
    run.disk_mb_per_s = 1;
    run.prices = false;
    TRY_ASSIGN(const RunOutcome outcome, run_market(sim, {&machine, 1}, run));
    Schedule out;
    out.end_s.reserve(jobs.size());
    for (const JobOutcome& job : outcome.jobs) {
        out.end_s.push_back(job.end_s);
        out.migrations += job.moves;
        out.freezes += job.freezes + job.thaws;
    }
    return out;
}

}  // namespace souk::sim
