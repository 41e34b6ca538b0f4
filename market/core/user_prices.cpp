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

class Pivot {
  public:
    Pivot(const ClassMarket& market, std::span<const Wide> prices) : market_(market), prices_(prices) {}

    // What the others would gain without the user, over what it holds, is what it pays above the reserves.
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
                if (user.at[mid] - static_cast<int64_t>(mid) <= t) low = mid + 1;
                else high = mid;
            }
            return market_.value(t + static_cast<int64_t>(low));
        };
        Wide lost = 0;
        const int64_t jobs = market_.units() - static_cast<int64_t>(user.at.size());
        improve_cuts(classes, cuts, jobs, INT64_MAX, others, lost);
        Part part{std::min(lost, whole), whole};
        while (part.whole >= Wide{1} << 72) part.paid >>= 1, part.whole >>= 1;  // times an amount it fits
        return part;
    }

  private:
    const ClassMarket& market_;
    std::span<const Wide> prices_;
};

// The users by number, with their competing jobs.
std::vector<User> users_of(const Allocator& market, const ClassMarket& classes, KeyMap& index) {
    std::vector<User> users;
    const int64_t placed = classes.cuts().empty() ? 0 : classes.cuts().back();
    classes.each_job([&](int64_t t, uint32_t job) {
        const uint64_t key = uint64_t{market.details(job).user} + 1;
        uint32_t u = index.find(key);
        if (u == UINT32_MAX) {
            index.insert(key, u = static_cast<uint32_t>(users.size()));
            users.emplace_back();
        }
        users[u].at.push_back(t);
        users[u].placed += t < placed;
    });
    return users;
}

void reckon_parts(std::vector<User>& users, const ClassMarket& classes, std::span<const Wide> prices) {
    int64_t steps = 0;
    const auto shares = [](const User& user) { return user.placed > 0 && user.at.size() > 1; };
    for (const User& user : users)
        if (shares(user)) steps += static_cast<int64_t>((user.placed + 2) * classes.classes().size());
    if (steps > pivot_steps_max) return;
    const Pivot pivot(classes, prices);
    for (User& user : users)
        if (shares(user)) user.part = pivot.part_of(user);
}

}  // namespace

std::vector<Money> user_prices(const Allocator& market, const ClassMarket& classes) {
    const auto prices = lowest_prices(classes.classes(), classes.use(), classes.next_value());
    KeyMap index;
    std::vector<User> users = users_of(market, classes, index);
    reckon_parts(users, classes, prices);
    std::vector<Money> pays(market.jobs().size());
    const int32_t top = market.speed_top();
    for (size_t j = 0; j < pays.size(); ++j) {
        const auto& job = market.jobs()[j];
        if (job.key().n == 0 || job.slot == Allocator::none) continue;
        const auto& machine = market.machines()[job.slot];
        const auto c = std::lower_bound(classes.classes().begin(), classes.classes().end(), machine.cls,
                                        [](const PlaceClass& x, ClassKey cls) { return x.cls < cls; });
        Money price = machine.spec.reserve;
        if (c != classes.classes().end() && c->cls == machine.cls && top > 0) {
            const Money whole{static_cast<int64_t>(prices[static_cast<size_t>(c - classes.classes().begin())] / top)};
            const uint32_t u = index.find(uint64_t{market.details(static_cast<uint32_t>(j)).user} + 1);
            price += (u == UINT32_MAX ? Part{} : users[u].part).of(whole - price);
            const Wide worth = static_cast<Wide>(job.value.micro) * machine.spec.speed / top;
            price = std::max(machine.spec.reserve, std::min(price, Money{static_cast<int64_t>(worth)}));
        }
        pays[j] = std::min(price, job.value);
    }
    return pays;
}

}  // namespace souk::market
