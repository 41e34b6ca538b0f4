// SPDX-License-Identifier: GPL-2.0-or-later
// The registry of algorithms, and the greedy migration as one: it is the Allocator's own rule
// (allocator.hpp).
#include <algorithm>

#include "market/core/algorithm.hpp"
#include "market/core/least_bids.hpp"
#include "market/core/pricing_ranked.hpp"

namespace souk::market {
namespace {

class Greedy : public Algorithm {
  public:
    std::unique_ptr<Algorithm> copy() const override { return std::make_unique<Greedy>(*this); }
    void take_over(Allocator& market) override {
        market.lift_limits();
        market.rank_by_value(true);
    }
    void solve(Allocator& market, Nanos now, const SolverOptions&) override { market.solve(now); }
    std::vector<Money> closed_prices(Allocator& market, std::vector<bool>& done) override {
        return ranked_prices(market, done, true);
    }
    bool bidders_are_users() const override { return true; }
    std::optional<Money> least_bid(Allocator& market, int32_t cpus, int64_t memory_mb,
                                   std::span<const ProviderKey> barred,
                                   const Asker& asker) override {
        return least_bids_.find(market, cpus, memory_mb, barred, asker);
    }
    std::optional<Money> next_price(Allocator& market, uint32_t machine,
                                    const Rank& strongest) override {
        const Money reserve = market.machines()[machine].spec.reserve;
        if (strongest.is_top()) return reserve;
        const Money bid = std::max(reserve, above(Money{-strongest.first}));
        if (bid > money_max) return std::nullopt;
        return bid;
    }

  private:
    LeastBids least_bids_;
};

}  // namespace

std::unique_ptr<Algorithm> make_greedy() { return std::make_unique<Greedy>(); }

// One line for each algorithm: name, alias, the options that it reads, and the function that makes
// it, which the algorithm's own file defines in this namespace; whether it places gangs; whether it
// ranks by weight; whether it looks at how long jobs run.
#define SOUK_ALGORITHMS(X)                                                                     \
    X("greedy_migration", "mig", SOUK_MOVE_OPTIONS ", ageing", make_greedy, true, true, false) \
    X("proportional_share", "", "quantum", make_share, false, false, false)                    \
    X("welfare", "", SOUK_MOVE_OPTIONS, make_welfare, false, false, false)                     \
    X("balance", "", "min_stay", make_balance, false, false, false)                            \
    X("fcfs", "", "", make_fcfs, false, false, false)                                          \
    X("fpfs", "", "", make_fpfs, false, false, false)                                          \
    X("bounded_overtaking", "", "", make_bounded_overtaking, false, false, false)              \
    X("easy", "", "", make_easy, false, false, true)                                           \
    X("sjf", "", "", make_sjf, false, false, true)                                             \
    X("wfp", "", "", make_wfp, false, false, true)                                             \
    X("conservative", "", "", make_conservative, false, false, true)
#define SOUK_MOVE_OPTIONS "horizon, link_bytes_per_s, byte_cost_per_gb, min_stay, moves_max"

#define SOUK_MAKER(name, alias, options, make, gangs, ages, ahead) \
    std::unique_ptr<Algorithm> make();
SOUK_ALGORITHMS(SOUK_MAKER)
#undef SOUK_MAKER

std::span<const AlgorithmEntry> algorithm_registry() {
#define SOUK_ENTRY(name, alias, options, make, gangs, ages, ahead) \
    {name, alias, options, make, gangs, ages, ahead},
    static constexpr AlgorithmEntry all[] = {SOUK_ALGORITHMS(SOUK_ENTRY)};
#undef SOUK_ENTRY
    return all;
}

bool looks_ahead(std::string_view name) {
    return std::ranges::any_of(algorithm_registry(), [&](const AlgorithmEntry& one) {
        return one.looks_ahead && one.name == name;
    });
}

}  // namespace souk::market
