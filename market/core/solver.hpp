// SPDX-License-Identifier: GPL-2.0-or-later
// Solver: the allocation and the prices of one market. It holds jobs, providers and who runs where;
// add/change/remove tell it what happened, solve(now) answers with the changes that make the
// allocation right again. Pure and deterministic: the same calls give the same answers. One owner,
// one thread. Money is integer.
//
// What it assumes: the caller carries out every change of solve(). From then on the solver sees the
// job there; where that fails the caller says so with change_job (where the job really is, with a
// bar or a pin if that must hold).
//
// Named resources (named_resources.hpp) are hard constraints as CPUs and memory are. Their reserves
// count for each CPU-hour of who takes them. A component of a gang asks for none.
//
// Algorithms, by name (algorithm.hpp): greedy_migration (allocator.hpp states its properties),
// proportional_share (share.hpp), welfare (welfare.hpp), balance (balance.cpp). Pricings, by name:
// critical, first, uniform (pricing.hpp).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "market/core/rank.hpp"
#include "market/core/reason.hpp"
#include "market/core/solver_options.hpp"
#include "market/core/types.hpp"

namespace souk::market {

class Solver {
  public:
    Solver();
    ~Solver();
    Solver(Solver&&) noexcept;
    Solver& operator=(Solver&&) noexcept;
    // The same in all, and apart from it: for what would be if. Costs about as much as a walk over
    // all jobs.
    Solver copy() const;

    // Takes all options, or none and says what is wrong with which one. Switching keeps jobs,
    // providers and places.
    Status set_options(const SolverOptions& options);
    const SolverOptions& options() const;
    // SolverOptions::ageing where the algorithm ranks by weight, else 0.
    Nanos ageing() const;
    static std::span<const std::string_view> algorithms();
    static std::span<const std::string_view> pricings();
    // The name as algorithms() has it (mig is greedy_migration), or an error that names those there
    // are.
    static Result<std::string> algorithm_named(const std::string& name);
    // All of them for a line of help: "greedy_migration (mig), proportional_share".
    static std::string algorithms_help();
    bool looks_ahead() const;  // its algorithm goes by how long jobs run (JobDemand::ahead)
    static Result<std::string> pricing_named(const std::string& name);
    // One of the options by its name: "solver", "pricing", or as the table of options has it
    // ("min-stay", "min_stay_ms"); of a time a number alone is seconds. Errors: what is wrong with
    // the name or the value; nothing is set then.
    static Status set(SolverOptions& options, const std::string& what, const std::string& value);
    // Its value as set() takes it. There must be one of that name.
    static std::string get(const SolverOptions& options, std::string_view what);
    // Whether there is one of that name; the error names all.
    static Status can_set(std::string_view what);

    // False, and nothing changes: a key that is there already (add), or is not (change, remove), is
    // 0, or an attribute that is out of the range stated in types.hpp. change replaces every
    // attribute. A running job must name its place. A provider may come after the jobs that run
    // there (a market that restarts); until then they run nowhere known.
    bool add_job(JobKey key, const JobDemand& spec);
    bool change_job(JobKey key, const JobDemand& spec);
    bool change_value(JobKey key, Money value);
    bool change_weight(JobKey key, int32_t weight);
    bool remove_job(JobKey key);
    // A gang: a job of several components, all of its required ones at once or none
    // (gang_turns.hpp). The first `required` components are that; an optional one is a job of
    // its own right behind them, with a place only while they have theirs. They are jobs with the
    // keys from `first` on, of one value, weight, arrival and user; change_value() or
    // change_weight() of one changes all, a job that is removed leaves the gang. Their keys stay
    // the gang's while it has any component. `layout` is that of the required ones; with a bound on
    // how many may be on one machine none is optional. Errors: what is wrong with it; an algorithm
    // that places no gangs.
    Status add_gang(JobKey first, std::span<const JobDemand> components, size_t required,
                    const GangLayout& layout = {});
    static constexpr size_t gang_components_max = 1024;
    struct GangView {
        JobKey first;
        std::vector<JobKey> required, optional;  // those that are left
        int32_t speed = 0;  // of the slowest required component; 0: it has no place
    };
    // The gang that has this component; nullopt: no such job, or none of a gang.
    std::optional<GangView> gang(JobKey component) const;
    size_t gangs() const;
    bool add_provider(ProviderKey key, const ProviderSpec& spec);
    bool change_provider(ProviderKey key, const ProviderSpec& spec);
    bool remove_provider(ProviderKey key);
    // The named resources of the whole market, for JobDemand::licences; none at first. False, and
    // nothing changes: a count or a reserve is out of its range, or a name comes twice.
    bool set_licences(const NamedOffers& all);
    const NamedOffers& licences() const;
    size_t named_jobs() const;  // that ask for named resources
    void clear();

    // The job as the solver sees it now (state and place follow its own changes); nullopt: no such
    // job.
    std::optional<JobDemand> job(JobKey key) const;
    std::optional<ProviderSpec> provider(ProviderKey key) const;
    // The provider on which the job runs, or is to run, as job() has it; key 0: none, or no such
    // job.
    ProviderKey place(JobKey key) const;
    size_t jobs() const;
    size_t providers() const;
    // The guests of a provider, in rank order.
    std::vector<JobKey> guests(ProviderKey key) const;

    // The changes that make the allocation right, at most one a job, those that give room before
    // those that take it: first freezes, then moves, then thaws and starts, each in rank order.
    // `now` never steps back. The time is that of the change, not of the market; the span is valid
    // until the next call that is not const.
    std::span<const Change> solve(Nanos now);
    // The time at which solve() should be called even if nothing happens; never() if there is none.
    Nanos next_wake() const;

    // The same, with an allocation that somebody else worked out (job, provider; provider 0 or no
    // line: not running). An error (nothing changes): an unknown key, a job twice, a place without
    // room, below its reserve, barred, pinned elsewhere.
    struct Assignment {
        JobKey job;
        ProviderKey provider;
    };
    Result<std::span<const Change>> adopt(std::span<const Assignment> allocation, Nanos now);

    // As decided: the provider that the job is to run on (0: none), and whether min_stay keeps it
    // there.
    struct Standing {
        ProviderKey slot;
        bool held = false;
    };
    Standing standing(JobKey key) const;
    // The jobs that compete for places, in the order in which they choose.
    std::vector<JobKey> competing() const;
    // Whether jobs of one user do not price each other.
    bool bidders_are_users() const;

    // The price of a running job per CPU-hour under the pricing in force: at least its provider's
    // reserve, at most its bid (a pinned job whose bid is below the reserve: its bid). nullopt: not
    // running. Cached until something changes.
    std::optional<Money> price(JobKey key) const;
    // All running jobs, by key.
    std::vector<Payment> payments() const;
    // The same in pieces, for who must not spend long at once. First what a closed form gives (all,
    // but for critical prices where CPUs, memory, bars or pins break the ranking), and by key the
    // jobs whose prices take longer; then as many of `some` of these as about `steps_max` steps
    // allow, one at least: they leave it, as does what does not run.
    struct PriceStart {
        std::vector<Payment> payments;
        std::vector<JobKey> rest;
    };
    PriceStart start_prices() const;
    std::vector<Payment> more_prices(std::vector<JobKey>& some, uint64_t steps_max,
                                     uint64_t& steps) const;
    // price(), if it is known or the closed form gives it, or it is one of the first few that take
    // longer since something changed; nullopt otherwise.
    std::optional<Money> price_at_once(JobKey key) const;
    // The prices of all jobs took so many steps to reckon last, of up to 100 ns each. It is a count
    // and not a time, so that a caller that must do with less can decide by it and stay
    // deterministic.
    uint64_t pricing_steps() const;
    Surplus surplus() const;
    // The worth of a running job per CPU-hour where it runs: value x speed / fastest speed.
    // nullopt: not running.
    std::optional<Money> worth(JobKey key) const;
    // The least bid per CPU-hour that makes a job which does not run, run now (rounded up to what
    // beats the bid in the way); nullopt: it runs, is pinned, or no bid can.
    std::optional<Money> winning_bid(JobKey key) const;
    // The same if the job that `as` names had come then, and its bid weighed so.
    std::optional<Money> winning_bid(const Asker& as) const;
    // The same for a job that is not here; its value, state and place do not matter.
    std::optional<Money> winning_bid(const JobDemand& spec) const;
    // The least that a new job of one CPU and no memory must bid to get a place on this provider
    // ("Next Price"); nullopt: not accepting, pinned full, or no such provider.
    std::optional<Money> next_price(ProviderKey key) const;

  private:
    std::optional<Money> least_bid(int32_t cpus, int64_t memory_mb,
                                   std::span<const ProviderKey> barred, const Asker& asker) const;

    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace souk::market
