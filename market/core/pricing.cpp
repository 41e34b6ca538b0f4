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

// Machines of one class, and whom the greedy from nothing gives them to.
struct Class {
    ClassKey cls;
    int32_t speed;
    Money reserve;
    int64_t slots = 0;
    int64_t used = 0;
    Money last{};            // used: the bid that took a slot last
    bool contested = false;  // full, and the next job in line would have taken a slot
    Money threshold{};       // contested: that job's bid
    Money lost_at() const { return used == slots ? last : reserve; }
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
        if (classes.empty() || classes.back().cls != cls)
            classes.push_back({.cls = cls, .speed = p.speed, .reserve = p.reserve});
        classes.back().slots += p.cpus;
    }
    return classes;
}

struct Seated {
    uint32_t job;
    size_t cls;
};

// One walk down the ranks: who sits where, and what becomes of each class.
std::vector<Seated> seat_ranked(Allocator& market, std::vector<Class>& classes) {
    std::vector<Seated> seated;
    size_t c = 0;
    market.order().each_after(Rank::top(), [&](const JobOrder::Entry& e) {
        const Money value = market.jobs()[e.job].value;
        for (; c < classes.size() &&
               (classes[c].used == classes[c].slots || value < classes[c].reserve);
             ++c) {
            classes[c].contested =
                classes[c].used == classes[c].slots && value >= classes[c].reserve;
            classes[c].threshold = value;
        }
        if (c == classes.size()) return false;
        seated.push_back({e.job, c});
        ++classes[c].used;
        classes[c].last = value;
        return true;
    });
    return seated;
}

// The sum over all steps of speed x bid that a job has to beat for a slot of each class; the same
// for all its jobs.
//
// Who is taken away from a class leaves a slot. Where the class is contested the next job in line
// takes it, and leaves one in the next class that is in use; so a bid loses a contested class at
// that job's bid, and the free slot ends in the first class in use that is not contested, which a
// bid loses at its reserve alone. Below that reserve the slot is no use: there is what the others
// leave of the classes after it, each lost to the bid that filled it or at its reserve (lost_at). A
// class that is lost at no lower bid than one before it is never the best that is left.
std::vector<Wide> sums_of(const std::vector<Class>& classes) {
    const size_t n = classes.size();
    // `without`: of a bid that finds no slot but what the others leave
    std::vector<Wide> sums(n, 0), without(n, 0);
    // classes after this one, each lost at a lower bid than those before it
    std::vector<size_t> falling;
    size_t next_used = n;
    const auto speed = [&](size_t c) { return c < n ? classes[c].speed : 0; };
    const auto step = [&](size_t from, size_t to, Money bid) {
        return static_cast<Wide>(speed(from) - speed(to)) * bid.micro;
    };
    for (size_t c = n; c-- > 0;) {
        const Class& cls = classes[c];
        const auto first_below = [&](Money bid) {
            const auto at = std::partition_point(falling.begin(), falling.end(), [&](size_t k) {
                return classes[k].lost_at() < bid;
            });
            return at == falling.begin() ? n : *std::prev(at);
        };
        if (cls.contested) {
            sums[c] = step(c, next_used, cls.threshold) + (next_used < n ? sums[next_used] : 0);
        } else {
            const size_t next = first_below(cls.reserve);
            sums[c] = step(c, next, cls.reserve) + (next < n ? without[next] : 0);
        }
        const size_t next = first_below(cls.lost_at());
        without[c] = step(c, next, cls.lost_at()) + (next < n ? without[next] : 0);
        while (!falling.empty() && classes[falling.back()].lost_at() >= cls.lost_at())
            falling.pop_back();
        falling.push_back(c);
        if (cls.used > 0) next_used = c;
    }
    return sums;
}

void ranked_prices(Allocator& market, std::vector<Class>& classes, std::vector<Money>& prices,
                   std::vector<bool>& done) {
    const std::vector<Seated> seated = seat_ranked(market, classes);
    const std::vector<Wide> sums = sums_of(classes);
    for (const Seated& s : seated) {
        const Job& q = market.jobs()[s.job];
        if (!is_running(q) || market.machines()[q.slot].cls != classes[s.cls].cls) continue;
        prices[s.job] =
            bounded_price(sums[s.cls], market.speed_top(), market.machines()[q.slot], q);
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
    if (steps)
        *steps = placements + static_cast<uint64_t>(std::count(done.begin(), done.end(), true));
    return prices;
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
        prices[j] =
            bounded_price(static_cast<Wide>(job.value.micro) * std::min(machine.spec.speed, top),
                          top, machine, job);
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
        if (is_running(job))
            prices[j] =
                std::min(std::max(one, market.machines()[job.slot].spec.reserve), job.value);
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
        providers +=
            static_cast<Wide>((prices[j] - market.machines()[job.slot].spec.reserve).micro) *
            job.cpus;
    }
    // a quarter of the range, so that sums of these stay in it too
    const auto money = [](Wide sum) {
        return Money{static_cast<int64_t>(std::clamp<Wide>(sum, INT64_MIN / 4, INT64_MAX / 4))};
    };
    return {money(consumers), money(providers), money(consumers) + money(providers)};
}

}  // namespace souk::market
