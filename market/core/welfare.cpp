// SPDX-License-Identifier: GPL-2.0-or-later
// welfare: a job goes where value x speed / fastest speed - price is greatest; see welfare.hpp for
// what holds.
#include "market/core/welfare.hpp"

#include <algorithm>

#include "market/core/algorithm.hpp"
#include "market/core/class_market.hpp"
#include "market/core/least_bids.hpp"
#include "market/core/user_prices.hpp"

namespace souk::market {
namespace {

// A class that has room takes nobody after its cut: who comes after gains more elsewhere, or
// nothing anywhere. A full one needs no limit: who is first in rank has it.
std::vector<ClassLimit> limits_by_rank(const ClassMarket& market) {
    std::vector<ClassLimit> limits;
    int64_t before = 0;
    for (size_t c = 0; c < market.classes().size(); before = market.cuts()[c++]) {
        const int64_t cut = market.cuts()[c];
        if (cut - before == market.classes()[c].slots) continue;
        limits.push_back({market.classes()[c].cls, cut > 0 ? market.rank(cut - 1) : Rank::top()});
    }
    return limits;
}

// Finds a least value for each class where sizes differ, at levels at which the jobs of the relaxed
// market stay in theirs. Levels are at least the reserves, and an entry value is at least what each
// class costs more than a slower one, over what it is faster. So whatever steps of speed a bid
// takes, the sum of its critical prices covers the reserve.
std::vector<ClassLimit> limits_by_value(const ClassMarket& market) {
    std::vector<ClassLimit> limits;
    const auto levels = floor_levels(market.classes(), market.use());
    const auto entry = entry_values(market.classes(), levels);
    for (size_t c = 0; c < entry.size(); ++c)
        if (entry[c] > reserve_of(market.classes()[c].cls).micro)
            limits.push_back({market.classes()[c].cls, {-entry[c], INT64_MAX, UINT64_MAX}});
    return limits;
}

class Welfare : public Algorithm {
  public:
    std::unique_ptr<Algorithm> copy() const override { return std::make_unique<Welfare>(*this); }
    void take_over(Allocator& market) override {
        market.lift_limits();
        market.rank_by_value();
    }

    void solve(Allocator& market, Nanos now, const SolverOptions& options) override {
        market.begin(now);
        now_.follow(market);
        const bool ends = now_.exact() && !now_.cuts().empty();
        const int64_t placed = ends ? now_.cuts().back() : 0;
        const Rank last = !ends ? rank_last : placed > 0 ? now_.rank(placed - 1) : Rank::top();
        std::vector<ClassLevel> levels;
        if (options.horizon.ns > 0) {
            const auto prices = lowest_prices(now_.classes(), now_.use(), now_.next_value());
            for (size_t c = 0; c < prices.size(); ++c)
                levels.push_back({now_.classes()[c].cls, prices[c]});
        }
        market.set_limits(now_.exact() ? limits_by_rank(now_) : limits_by_value(now_), last,
                          std::move(levels));
        market.solve(now);
    }

    std::vector<Money> closed_prices(Allocator& market, std::vector<bool>& done) override {
        now_.follow(market);
        done.assign(market.jobs().size(), now_.exact());
        if (!now_.exact()) return std::vector<Money>(market.jobs().size());
        return user_prices(market, now_);
    }

    bool bidders_are_users() const override { return true; }
    std::optional<Money> least_bid(Allocator& market, int32_t cpus, int64_t memory_mb,
                                   std::span<const ProviderKey> barred,
                                   const Asker& asker) override {
        reckon_bids(market);
        if (!now_.exact() || cpus != 1 || memory_mb > now_.memory_per_cpu() || !barred.empty())
            return as_it_is_.find(market, cpus, memory_mb, barred, asker);
        return bid(least_bid_);
    }
    std::optional<Money> next_price(Allocator& market, uint32_t machine,
                                    const Rank& strongest) override {
        reckon_bids(market);
        const auto& classes = now_.classes();
        const auto& m = market.machines()[machine];
        const auto c =
            std::lower_bound(classes.begin(), classes.end(), m.cls,
                             [](const PlaceClass& x, ClassKey cls) { return x.cls < cls; });
        if (!now_.exact() || c == classes.end() || c->cls != m.cls) {
            const Money least = market.least_bid_at(m);
            return bid(
                (strongest.is_top() ? least : std::max(least, above(Money{-strongest.first})))
                    .micro);
        }
        return bid(class_bids_[static_cast<size_t>(c - classes.begin())]);
    }

  private:
    static std::optional<Money> bid(int64_t micro) {
        if (micro > money_max.micro) return std::nullopt;
        return Money{micro};
    }

    // The least bids that get one more job a place, in all and in each class. A place that somebody
    // else would lose needs a bid above his; one that is free, or becomes free because others go
    // elsewhere, is had for what that costs.
    void reckon_bids(Allocator& market) {
        if (version_ == market.version()) return;
        version_ = market.version();
        now_.follow(market);
        if (!now_.exact()) return;
        std::vector<PlaceClass> classes = now_.classes();
        std::vector<ClassUse> uses = now_.use();
        least_bid_ = INT64_MAX;
        const auto free = cost_of_one_more(classes, uses);
        for (size_t c = 0; c < classes.size(); ++c)
            if (free[c] != no_level && classes[c].slots > 0)
                least_bid_ =
                    std::min(least_bid_,
                             static_cast<int64_t>(std::min<Wide>(
                                 (free[c] + classes[c].speed - 1) / classes[c].speed, INT64_MAX)));
        const int64_t placed = now_.cuts().empty() ? 0 : now_.cuts().back();
        if (placed > 0)
            least_bid_ = std::min(least_bid_, above(Money{now_.value(placed - 1)}).micro);
        classes.push_back({class_none, 0, INT64_MAX, 0});  // to have no place
        uses.push_back({.room = true});
        auto costs = cost_of_one_more(classes, uses);
        classes.pop_back();
        costs.pop_back();
        class_bids_ = entry_values(classes, costs);
        for (size_t c = 0; c < class_bids_.size(); ++c)
            if (!uses[c].room && class_bids_[c] <= money_max.micro)
                class_bids_[c] = above(Money{class_bids_[c]}).micro;
    }

    ClassMarket now_;
    // where sizes differ: with the least values as they are now; a bid may move them
    LeastBids as_it_is_;
    uint64_t version_ = UINT64_MAX;
    int64_t least_bid_ = INT64_MAX;
    std::vector<int64_t> class_bids_;
};

}  // namespace

std::unique_ptr<Algorithm> make_welfare() { return std::make_unique<Welfare>(); }

}  // namespace souk::market
