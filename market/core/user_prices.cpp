// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/user_prices.hpp"

#include <algorithm>

#include "market/core/ranked_users.hpp"

namespace souk::market {
namespace {

// The part of the way from its reserves to its class prices that a user pays.
struct Part {
    Wide paid = 1, whole = 1;
    Money of(Money amount) const {
        return paid == whole ? amount : Money{static_cast<int64_t>(amount.micro * paid / whole)};
    }
};

class Pivot {
  public:
    Pivot(const ClassMarket& market, std::span<const int64_t> values, std::span<const Wide> prices)
        : market_(market), values_(values), prices_(prices) {}

    // The user pays above the reserves what the others would gain without it, over what it holds.
    Part part_of(const RankedUsers::User& user, size_t placed) const {
        const auto& classes = market_.classes();
        Wide whole = 0;
        Cuts cuts = market_.cuts();
        size_t first = 0;
        for (size_t c = 0; c < cuts.size(); ++c) {
            size_t end = first;
            while (end < placed && user.at[end] < cuts[c]) ++end;
            whole += (prices_[c] - classes[c].cost) * static_cast<int64_t>(end - first);
            first = end;
            cuts[c] -= static_cast<int64_t>(end);
        }
        if (whole == 0) return {};
        const auto others = [&](int64_t t) {  // value of the t-th job of the others
            return values_[static_cast<size_t>(user.other(t))];
        };
        Wide lost = 0;
        improve_cuts(classes, cuts, static_cast<int64_t>(values_.size() - user.at.size()),
                     INT64_MAX, others, lost);
        Part part{std::min(lost, whole), whole};
        // times an amount it fits
        while (part.whole >= Wide{1} << 72) part.paid >>= 1, part.whole >>= 1;
        return part;
    }

  private:
    const ClassMarket& market_;
    std::span<const int64_t> values_;
    std::span<const Wide> prices_;
};

// The parts by index of users; empty: every job pays its class's price.
std::vector<Part> parts_of(const RankedUsers& r, const ClassMarket& classes,
                           std::span<const Wide> prices) {
    const int64_t cut = classes.cuts().empty() ? 0 : classes.cuts().back();
    const auto placed = [&](size_t u) { return static_cast<size_t>(r.user(u).before(cut, 0)); };
    const auto shares = [&](size_t u) { return r.user(u).at.size() > 1 && placed(u) > 0; };
    int64_t steps = 0;
    for (size_t u = 0; u < r.size(); ++u)
        if (shares(u)) steps += static_cast<int64_t>((placed(u) + 2) * classes.classes().size());
    if (steps > pivot_steps_max) return {};
    const Pivot pivot(classes, r.values(), prices);
    std::vector<Part> parts(r.size());
    for (size_t u = 0; u < parts.size(); ++u)
        if (shares(u)) parts[u] = pivot.part_of(r.user(u), placed(u));
    return parts;
}

}  // namespace

std::vector<Money> user_prices(const Allocator& market, const ClassMarket& classes) {
    const auto prices = lowest_prices(classes.classes(), classes.use(), classes.next_value());
    const auto placed = static_cast<size_t>(classes.cuts().empty() ? 0 : classes.cuts().back());
    const RankedUsers ranked = rank_users(market, classes.order(), placed);
    const std::vector<Part> parts = parts_of(ranked, classes, prices);
    const auto part_of = [&](uint32_t uid) {
        const auto user = parts.empty() ? std::nullopt : ranked.find(uid);
        return user ? parts[*user] : Part{};
    };
    std::vector<Money> pays(market.jobs().size());
    const int32_t top = market.speed_top();
    for (size_t j = 0; j < pays.size(); ++j) {
        const auto& job = market.jobs()[j];
        if (job.key().n == 0 || job.slot == Allocator::none) continue;
        const auto& machine = market.machines()[job.slot];
        const auto c =
            std::lower_bound(classes.classes().begin(), classes.classes().end(), machine.cls,
                             [](const PlaceClass& x, ClassKey cls) { return x.cls < cls; });
        Money price = machine.spec.reserve;
        if (c != classes.classes().end() && c->cls == machine.cls && top > 0) {
            const Money whole{static_cast<int64_t>(
                prices[static_cast<size_t>(c - classes.classes().begin())] / top)};
            price += part_of(market.details(static_cast<uint32_t>(j)).user).of(whole - price);
            const Wide worth = static_cast<Wide>(job.value.micro) * machine.spec.speed / top;
            price =
                std::max(machine.spec.reserve, std::min(price, Money{static_cast<int64_t>(worth)}));
        }
        pays[j] = std::min(price, job.value);
    }
    return pays;
}

}  // namespace souk::market
