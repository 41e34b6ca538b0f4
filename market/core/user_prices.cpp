// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/user_prices.hpp"

#include <algorithm>

#include "market/core/key_map.hpp"

namespace souk::market {
namespace {

// The part of the way from its reserves to its class prices that a user pays.
struct Part {
    Wide paid = 1, whole = 1;
    Money of(Money amount) const {
        return paid == whole ? amount : Money{static_cast<int64_t>(amount.micro * paid / whole)};
    }
};

struct User {
    std::vector<int64_t> at;  // its jobs, by rank among all
    size_t placed = 0;        // the first so many have a place
    Part part;
};

// The first jobs in rank order, and the users by number with theirs among these.
struct Ranked {
    std::vector<int64_t> values;
    std::vector<User> users;
    KeyMap index;  // by uid + 1: 0 is no key

    Part part_of(uint32_t uid) const {
        const uint32_t u = index.find(uint64_t{uid} + 1);
        return u == KeyMap::none ? Part{} : users[u].part;
    }
};

// Whoever goes, no more places are taken than now; so as many jobs of others as there are placed
// ones is all that can matter. Twice that many in rank order hold them, unless one user has more
// than half of these.
Ranked rank_users(const Allocator& market, const ClassMarket& classes) {
    const auto placed = static_cast<size_t>(classes.cuts().empty() ? 0 : classes.cuts().back());
    const auto all = static_cast<size_t>(classes.units());
    for (size_t limit = std::min(2 * placed, all);; limit = all) {
        Ranked r;
        r.values.reserve(limit);
        size_t most = 0;
        classes.each_job([&](const JobOrder::Entry& e) {
            if (r.values.size() == limit) return false;
            const uint64_t key = uint64_t{market.details(e.job).user} + 1;
            uint32_t u = r.index.find(key);
            if (u == KeyMap::none) {
                r.index.insert(key, u = static_cast<uint32_t>(r.users.size()));
                r.users.emplace_back();
            }
            User& user = r.users[u];
            user.placed += r.values.size() < placed;
            user.at.push_back(static_cast<int64_t>(r.values.size()));
            most = std::max(most, user.at.size());
            r.values.push_back(-e.rank.first);
            return true;
        });
        if (limit == all || most <= limit - placed) return r;
    }
}

class Pivot {
  public:
    Pivot(const ClassMarket& market, std::span<const int64_t> values, std::span<const Wide> prices)
        : market_(market), values_(values), prices_(prices) {}

    // What the others would gain without the user, over what it holds, is what it pays above the
    // reserves.
    Part part_of(const User& user) const {
        const auto& classes = market_.classes();
        Wide whole = 0;
        Cuts cuts = market_.cuts();
        size_t first = 0;
        for (size_t c = 0; c < cuts.size(); ++c) {
            size_t end = first;
            while (end < user.placed && user.at[end] < cuts[c]) ++end;
            whole += (prices_[c] - classes[c].cost) * static_cast<int64_t>(end - first);
            first = end;
            cuts[c] -= static_cast<int64_t>(end);
        }
        if (whole == 0) return {};
        const auto others = [&](int64_t t) {  // value of the t-th job of the others
            size_t low = 0, high = user.at.size();
            while (low < high) {
                const size_t mid = (low + high) / 2;
                if (user.at[mid] - static_cast<int64_t>(mid) <= t)
                    low = mid + 1;
                else
                    high = mid;
            }
            return values_[static_cast<size_t>(t) + low];
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

void reckon_parts(Ranked& r, const ClassMarket& classes, std::span<const Wide> prices) {
    int64_t steps = 0;
    const auto shares = [](const User& user) { return user.placed > 0 && user.at.size() > 1; };
    for (const User& user : r.users)
        if (shares(user))
            steps += static_cast<int64_t>((user.placed + 2) * classes.classes().size());
    if (steps > pivot_steps_max) return;
    const Pivot pivot(classes, r.values, prices);
    for (User& user : r.users)
        if (shares(user)) user.part = pivot.part_of(user);
}

}  // namespace

std::vector<Money> user_prices(const Allocator& market, const ClassMarket& classes) {
    const auto prices = lowest_prices(classes.classes(), classes.use(), classes.next_value());
    Ranked ranked = rank_users(market, classes);
    reckon_parts(ranked, classes, prices);
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
            price +=
                ranked.part_of(market.details(static_cast<uint32_t>(j)).user).of(whole - price);
            const Wide worth = static_cast<Wide>(job.value.micro) * machine.spec.speed / top;
            price =
                std::max(machine.spec.reserve, std::min(price, Money{static_cast<int64_t>(worth)}));
        }
        pays[j] = std::min(price, job.value);
    }
    return pays;
}

}  // namespace souk::market
