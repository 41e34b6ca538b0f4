// SPDX-License-Identifier: GPL-2.0-or-later
// RunRates: what the jobs of a simulated market pay while they hold their places. As in the market
// itself, a job pays for each second in which it advances, its CPUs x the price of the solver's
// pricing, and for none in which it is carried. Surplus is reckoned over the same seconds: the
// consumers' is worth - price, the providers' price - reserve. Part of MarketRun, which says how
// the jobs stand. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "market/core/solver.hpp"
#include "market/sim/market_run.hpp"

namespace souk::sim {

class RunRates {
  public:
    // How a job stands that holds a place.
    struct Standing {
        bool runs;         // else it is carried
        int64_t since_s;   // it advances from here
        int64_t goes_on;   // the milliseconds of each second in which it advances there
        bool at_home;      // its files are there
        int32_t at_speed;  // of the machine
    };
    using StandingOf = std::function<Standing(uint32_t job)>;
    RunRates(std::span<const SimJob> jobs, std::span<const SimProvider> providers,
             const MarketRunOptions& options, StandingOf standing)
        : specs_(jobs), providers_(providers), options_(options), standing_(std::move(standing)) {}

    // Takes the rates that hold from now on, until the next event.
    void agree(const market::Solver& solver);
    // Sums, over the jobs that are here, what each would gain more at the best place of another
    // job. The sum holds from now on.
    void agree_on_envy(std::span<const uint32_t> here);
    // All that grows with time at these rates, from `now_s` to `t`, which is later.
    void grow(int64_t now_s, int64_t t, RunOutcome& out);

  private:
    // The price, worth and reserve of a job that holds a place, each per CPU-hour.
    struct Rate {
        uint32_t job, provider;
        Money price, worth, reserve;
    };
    Money charged(const Rate& rate, int64_t span);
    Money worth_of(const market::Solver& solver, uint32_t job) const;

    std::span<const SimJob> specs_;
    std::span<const SimProvider> providers_;
    const MarketRunOptions& options_;
    const StandingOf standing_;
    std::vector<Rate> rates_;
    std::map<uint32_t, double> averages_;  // by job: what it is charged, if prices are averaged
    Money envy_;
};

}  // namespace souk::sim
