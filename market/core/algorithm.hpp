// SPDX-License-Identifier: GPL-2.0-or-later
// Algorithm: who gets which machine. The Solver owns one at a time and calls it; the Allocator
// holds the market and carries the decision out. A new algorithm is one .cpp file with a class, and
// one line in algorithm_registry(). Pure: the same calls give the same answers. Nothing here fails.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "market/core/allocator.hpp"
#include "market/core/solver_options.hpp"

namespace souk::market {

class Algorithm {
  public:
    virtual ~Algorithm() = default;
    // The same in all, and apart from it.
    virtual std::unique_ptr<Algorithm> copy() const = 0;

    // It takes the market over from another algorithm: jobs and places stay as they are.
    virtual void take_over(Allocator& market) = 0;
    // Makes the allocation right; the changes are market.changes().
    virtual void solve(Allocator& market, Nanos now, const SolverOptions& options) = 0;
    // When time alone asks for solve(), apart from what the Allocator waits for.
    virtual Nanos next_wake() const { return Nanos::never(); }

    // The critical prices per CPU-hour that a quick form gives, by job index; `done` says whose
    // they are. The Solver reckons the others by pricing_unit.hpp and pricing_integral.hpp.
    virtual std::vector<Money> closed_prices(Allocator& market, std::vector<bool>& done) = 0;
    // Whether jobs of one user do not price each other (pricing_integral.hpp).
    virtual bool bidders_are_users() const { return false; }
    // A job of this need must bid so much per CPU-hour to run at once. nullopt: no bid does it, or
    // it is not known.
    virtual std::optional<Money> least_bid(Allocator& market, int32_t cpus, int64_t memory_mb,
                                           std::span<const ProviderKey> barred,
                                           const Asker& asker) {
        (void)market, (void)cpus, (void)memory_mb, (void)barred, (void)asker;
        return std::nullopt;
    }
    // The same for one CPU and no memory on this machine, which accepts jobs. `strongest`: the best
    // guest that would have to leave; top: none has to.
    virtual std::optional<Money> next_price(Allocator& market, uint32_t machine,
                                            const Rank& strongest) {
        (void)strongest;
        return market.machines()[machine].spec.reserve;
    }
};

struct AlgorithmEntry {
    std::string_view name;
    std::string_view alias;    // another name for it, or empty
    std::string_view options;  // the fields of SolverOptions that it reads
    std::unique_ptr<Algorithm> (*make)();
    bool gangs = false;        // it places jobs of several components
    bool ages = false;         // it ranks by JobDemand::weight
    bool looks_ahead = false;  // it looks at JobDemand::ahead
};
// All there are; the first is the default.
std::span<const AlgorithmEntry> algorithm_registry();
// There is an algorithm of this name, and it looks ahead.
bool looks_ahead(std::string_view name);

}  // namespace souk::market
