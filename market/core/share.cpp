// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/share.hpp"

#include <algorithm>
#include <queue>
#include <utility>

#include "market/core/algorithm.hpp"
#include "market/core/pricing_ranked.hpp"

namespace souk::market {

// Accounts what each user was owed and got since the last solve.
void Share::account(Nanos now) {
    if (last_.ns != INT64_MIN)
        for (auto& [id, u] : users_) u.owed += static_cast<Wide>(u.due - u.used) * (now - last_).ns;
    last_ = now;
}

void Share::gather(const Allocator& market) {
    for (auto& [id, u] : users_) {
        u.jobs.clear();
        u.weight = u.demand = 0;
        u.next = 0;
    }
    Money least = money_max;
    for (const auto& m : market.machines())
        if (m.key.n != 0 && m.spec.accepting) least = std::min(least, m.spec.reserve);
    for (uint32_t j = 0; j < market.jobs().size(); ++j) {
        const auto& job = market.jobs()[j];
        if (job.key().n == 0 || !job.competing) continue;
        User& u = users_[market.details(j).user];
        u.jobs.push_back(j);
        if (job.value < least) continue;
        // thousandths: sums stay in 64 bits
        u.weight += std::max<int64_t>(1, job.value.micro / 1000);
        u.demand += static_cast<int64_t>(job.cpus) * market.speed_top() * scale;
    }
    std::erase_if(users_, [](const auto& item) { return item.second.jobs.empty(); });
    for (auto& [id, u] : users_)
        std::sort(u.jobs.begin(), u.jobs.end(), [&](uint32_t a, uint32_t b) {
            const auto& x = market.jobs()[a];
            const auto& y = market.jobs()[b];
            return Rank::of(x.value, x.arrival(), x.key()) <
                   Rank::of(y.value, y.arrival(), y.key());
        });
}

// Capacity by weight; whoever needs less than its part leaves the rest to the others (water
// filling).
void Share::divide(int64_t capacity) {
    std::vector<User*> by_need;
    Wide weight = 0;
    for (auto& [id, u] : users_) {
        u.due = 0;
        if (u.weight == 0) continue;
        by_need.push_back(&u);
        weight += u.weight;
    }
    std::stable_sort(by_need.begin(), by_need.end(), [](const User* a, const User* b) {
        return static_cast<Wide>(a->demand) * b->weight < static_cast<Wide>(b->demand) * a->weight;
    });
    Wide left = static_cast<Wide>(capacity) * scale;
    for (User* u : by_need) {
        u->due = static_cast<int64_t>(std::min<Wide>(u->demand, left * u->weight / weight));
        left -= u->due;
        weight -= u->weight;
    }
}

std::vector<uint32_t> Share::turn(const Allocator& market, Nanos quantum, int64_t mean_speed,
                                  bool running_first) {
    std::vector<uint32_t> order;
    auto cost = [&](uint32_t j) {
        const auto& job = market.jobs()[j];
        const int64_t speed =
            job.slot != Allocator::none ? market.machines()[job.slot].spec.speed : mean_speed;
        return static_cast<Wide>(job.cpus) * speed * scale * quantum.ns;
    };
    using Claim = std::pair<Wide, uint32_t>;  // owed, user; at equal claims the lower user id first
    auto later = [](const Claim& a, const Claim& b) {
        return a.first != b.first ? a.first < b.first : a.second > b.second;
    };
    std::priority_queue<Claim, std::vector<Claim>, decltype(later)> claims(later);
    if (running_first) {
        market.machine_order().each([&](const MachineOrder::Entry& e) {
            for (const auto& g : market.machines()[e.machine].guests)
                if (market.jobs()[g.job].competing) order.push_back(g.job);
            return true;
        });
    }
    std::vector<bool> listed(market.jobs().size(), false);
    for (const uint32_t j : order) listed[j] = true;
    for (auto& [id, u] : users_) {
        u.claim = u.owed + static_cast<Wide>(u.due) * quantum.ns;
        for (const uint32_t j : u.jobs)
            if (listed[j]) u.claim -= cost(j);
        claims.push({u.claim, id});
    }
    while (!claims.empty()) {
        const uint32_t id = claims.top().second;
        claims.pop();
        User& u = users_[id];
        while (u.next < u.jobs.size() && listed[u.jobs[u.next]]) ++u.next;
        if (u.next == u.jobs.size()) continue;
        const uint32_t j = u.jobs[u.next++];
        order.push_back(j);
        u.claim -= cost(j);
        claims.push({u.claim, id});
    }
    return order;
}

void Share::solve(Allocator& market, Nanos now, Nanos quantum) {
    account(now);
    gather(market);
    int64_t capacity = 0, cpus = 0;
    int32_t cpus_max_job = 1;
    market.machine_order().each([&](const MachineOrder::Entry& e) {
        const ProviderSpec& p = market.machines()[e.machine].spec;
        capacity += static_cast<int64_t>(p.cpus) * p.speed;
        cpus += p.cpus;
        return true;
    });
    divide(capacity);
    const bool turn_over = turn_began_.ns == INT64_MIN || now - turn_began_ >= quantum;
    market.solve_in_order(turn(market, quantum, cpus > 0 ? capacity / cpus : 0, !turn_over), now);
    if (turn_over) turn_began_ = now;

    bool waiting = false;
    for (auto& [id, u] : users_) {
        u.used = 0;
        for (const uint32_t j : u.jobs) {
            const auto& job = market.jobs()[j];
            cpus_max_job = std::max(cpus_max_job, job.cpus);
            if (job.slot != Allocator::none)
                u.used +=
                    static_cast<int64_t>(job.cpus) * market.machines()[job.slot].spec.speed * scale;
            else
                waiting = true;
        }
    }
    // A place that cannot be had (memory in the way, slow machines only) is not owed for ever.
    const Wide most =
        static_cast<Wide>(64) * cpus_max_job * std::max(1, market.speed_top()) * scale * quantum.ns;
    for (auto& [id, u] : users_) u.owed = std::clamp(u.owed, -most, most);
    turn_end_ = waiting ? turn_began_ + quantum : Nanos::never();
}

namespace {
class ShareAlgorithm : public Algorithm {
  public:
    std::unique_ptr<Algorithm> copy() const override {
        return std::make_unique<ShareAlgorithm>(*this);
    }
    void take_over(Allocator& market) override {
        market.lift_limits();
        share_.clear();
    }
    void solve(Allocator& market, Nanos now, const SolverOptions& options) override {
        share_.solve(market, now, options.quantum);
    }
    Nanos next_wake() const override { return share_.next_wake(); }
    std::vector<Money> closed_prices(Allocator& market, std::vector<bool>& done) override {
        return ranked_prices(market, done);
    }

  private:
    Share share_;
};
}  // namespace

std::unique_ptr<Algorithm> make_share() { return std::make_unique<ShareAlgorithm>(); }

}  // namespace souk::market
