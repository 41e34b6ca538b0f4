// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/pricing.hpp"

#include <algorithm>

#include "market/core/pricing_integral.hpp"
#include "market/core/pricing_unit.hpp"

namespace souk::market {

namespace {
using Wide = __int128;
using Job = Allocator::Job;
using Machine = Allocator::Machine;

bool is_running(const Job& j) { return j.key().n != 0 && j.slot != Allocator::none; }

// Machines of one class, and which jobs the greedy from nothing gives them.
struct Class {
    ClassKey cls;
    int32_t speed;
    Money reserve;
    int64_t slots = 0;
    bool contested = false;  // full, and the next job in line would have taken a slot
    Money threshold;         // contested: that job's bid
};

// The classes in order if the market is ranked: one-CPU jobs, no bars, memory never in the way.
std::optional<std::vector<Class>> ranked_classes(Allocator& market) {
    const auto [cpus_max, memory_max] = market.most_needed();
    if (cpus_max > 1 || market.competing_with_bars() > 0) return std::nullopt;
    std::vector<Class> classes;
    for (const EmptyMachine& p : empty_machines(market)) {
        if (p.cpus <= 0) continue;
        if (p.memory_mb / p.cpus < memory_max) return std::nullopt;
        const ClassKey cls = class_of(p.speed, p.reserve);
        if (classes.empty() || classes.back().cls != cls) classes.push_back({cls, p.speed, p.reserve, 0, false, {}});
        classes.back().slots += p.cpus;
    }
    return classes;
}

// The closed form, in one walk down the ranks. A class is contested, or it has room (at least after one of its jobs is
// gone) for whoever meets its reserve: then the sum of such a job ends there.
void ranked_prices(Allocator& market, std::vector<Class>& classes, std::vector<Money>& prices,
                   std::vector<bool>& done) {
    struct Seated {
        uint32_t job;
        size_t cls;
    };
    std::vector<Seated> seated;
    size_t c = 0;
    int64_t used = 0;
    market.order().each_after(Rank::top(), [&](const JobOrder::Entry& e) {
        const Money value = market.jobs()[e.job].value;
        for (; c < classes.size() && (used == classes[c].slots || value < classes[c].reserve); ++c, used = 0) {
            classes[c].contested = used == classes[c].slots && value >= classes[c].reserve;
            classes[c].threshold = value;
        }
        if (c == classes.size()) return false;
        seated.push_back({e.job, c});
        ++used;
        return true;
    });

    // below[c]: the sum over the contested classes from c to the last one, each step down to the next contested class.
    std::vector<Wide> below(classes.size() + 1, 0);
    std::vector<size_t> next_contested(classes.size() + 1, classes.size()),
        last_contested(classes.size() + 1, SIZE_MAX);
    for (size_t i = classes.size(); i-- > 0;) {
        const size_t n = next_contested[i + 1];
        const int32_t speed_next = n < classes.size() ? classes[n].speed : 0;
        next_contested[i] = classes[i].contested ? i : n;
        below[i] = classes[i].contested
                       ? below[i + 1] + static_cast<Wide>(classes[i].speed - speed_next) * classes[i].threshold.micro
                       : below[i + 1];
    }
    for (size_t i = 0; i < classes.size(); ++i) last_contested[i + 1] = classes[i].contested ? i : last_contested[i];

    size_t end = 0;  // the first class at or after the job's that is not contested and within its bid
    for (const Seated& s : seated) {
        const Job& q = market.jobs()[s.job];
        end = std::max(end, s.cls);
        while (end < classes.size() && (classes[end].contested || classes[end].reserve > q.value)) ++end;
        if (!is_running(q) || market.machines()[q.slot].cls != classes[s.cls].cls) continue;
        Wide sum = 0;
        if (classes[s.cls].contested) {
            sum = below[s.cls];
            if (end < classes.size()) {  // the last step before `end` ends at its speed, and nothing comes after
                const size_t last = last_contested[end];
                sum -= below[last];
                sum += static_cast<Wide>(classes[last].speed - classes[end].speed) * classes[last].threshold.micro;
            }
        }
        prices[s.job] = bounded_price(sum, market.speed_top(), market.machines()[q.slot], q);
        done[s.job] = true;
    }
}

}  // namespace

std::vector<Money> closed_prices(Allocator& market, std::vector<bool>& done) {
    std::vector<Money> prices(market.jobs().size());
    done.assign(market.jobs().size(), false);
    if (auto classes = ranked_classes(market)) ranked_prices(market, *classes, prices, done);
    return prices;
}

std::vector<Money> critical_prices(Allocator& market, uint64_t* steps) {
    std::vector<bool> done;
    std::vector<Money> prices = closed_prices(market, done);
    unit_prices(market, prices, done);
    const uint64_t placements = integral_prices(market, prices, done);
    if (steps) *steps = placements + static_cast<uint64_t>(std::count(done.begin(), done.end(), true));
    return prices;
}

std::optional<Money> critical_price_alone(Allocator& market, uint32_t job) {
    if (ranked_classes(market)) return std::nullopt;
    std::vector<Money> prices(market.jobs().size());
    std::vector<bool> done(market.jobs().size(), true);
    done[job] = false;
    integral_prices(market, prices, done);
    return prices[job];
}

std::vector<Money> critical_prices_by_integral(Allocator& market) {
    std::vector<Money> prices(market.jobs().size());
    integral_prices(market, prices, std::vector<bool>(market.jobs().size(), false));
    return prices;
}

std::vector<Money> first_prices(const Allocator& market) {
    std::vector<Money> prices(market.jobs().size());
    for (size_t j = 0; j < prices.size(); ++j) {
        const Job& job = market.jobs()[j];
        if (!is_running(job)) continue;
        const auto& machine = market.machines()[job.slot];
        const int32_t top = market.speed_top();
        prices[j] = bounded_price(static_cast<Wide>(job.value.micro) * std::min(machine.spec.speed, top), top, machine, job);
    }
    return prices;
}

std::vector<Money> uniform_prices(const Allocator& market, int32_t k_permille) {
    Money bid = money_max, reserve;
    for (const Job& j : market.jobs()) {
        if (!is_running(j)) continue;
        bid = std::min(bid, j.value);
        reserve = std::max(reserve, market.machines()[j.slot].spec.reserve);
    }
    const Wide part = static_cast<Wide>(bid.micro - reserve.micro) * k_permille / 1000;
    const Money one = reserve + Money{static_cast<int64_t>(part)};
    std::vector<Money> prices(market.jobs().size());
    for (size_t j = 0; j < prices.size(); ++j) {
        const Job& job = market.jobs()[j];
        if (is_running(job)) prices[j] = std::min(std::max(one, market.machines()[job.slot].spec.reserve), job.value);
    }
    return prices;
}

Money worth_of(const Allocator& market, uint32_t job) {
    const Job& j = market.jobs()[job];
    const int32_t top = market.speed_top();
    if (top == 0) return j.value;
    const int32_t speed = std::min(market.machines()[j.slot].spec.speed, top);
    return Money{static_cast<int64_t>(static_cast<Wide>(j.value.micro) * speed / top)};
}

Surplus surplus_of(const Allocator& market, const std::vector<Money>& prices) {
    Wide consumers = 0, providers = 0;
    for (uint32_t j = 0; j < market.jobs().size(); ++j) {
        const Job& job = market.jobs()[j];
        if (!is_running(job)) continue;
        consumers += static_cast<Wide>((worth_of(market, j) - prices[j]).micro) * job.cpus;
        providers += static_cast<Wide>((prices[j] - market.machines()[job.slot].spec.reserve).micro) * job.cpus;
    }
    const auto money = [](Wide sum) {  // a quarter of the range, so that sums of these stay in it too
        return Money{static_cast<int64_t>(std::clamp<Wide>(sum, INT64_MIN / 4, INT64_MAX / 4))};
    };
    return {money(consumers), money(providers), money(consumers) + money(providers)};
}

}  // namespace souk::market
