// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/pricing.hpp"

#include <algorithm>
#include <optional>

namespace souk::market {

namespace {
using Wide = __int128;
using Job = Allocator::Job;
using Machine = Allocator::Machine;

// A machine as the competing jobs find it before the first of them is placed.
struct Place {
    uint32_t machine;
    int32_t speed;
    int32_t cpus;
    int64_t memory_mb;
    Money reserve;
};

std::vector<Place> empty_places(const Allocator& market) {
    std::vector<Place> places;
    market.machine_order().each([&](const MachineOrder::Entry& e) {
        const Machine& m = market.machines()[e.machine];
        Place p{e.machine, m.spec.speed, m.spec.cpus, m.spec.memory_mb, m.spec.reserve};
        for (const auto& g : m.guests) {
            if (!g.rank.is_top()) break;
            p.cpus -= g.cpus;
            p.memory_mb -= g.memory_mb;
        }
        places.push_back(p);
        return true;
    });
    return places;
}

// What a job asks for, side by side for the greedy from nothing to read.
struct Bid {
    uint32_t job;
    int32_t cpus;
    int64_t memory_mb;
    Money value;
    Rank rank;
    bool bars;
};

Bid bid_of(const Allocator& market, uint32_t j) {
    const Job& job = market.jobs()[j];
    return {j, job.cpus, job.memory_mb, job.value, job.rank, job.bars};
}

bool takes(const Allocator& market, const Place& p, const Bid& b) {
    return p.cpus >= b.cpus && p.memory_mb >= b.memory_mb && p.reserve <= b.value &&
           (!b.bars || !market.barred(market.machines()[p.machine].key, b.job));
}

bool is_running(const Job& j) { return j.key().n != 0 && j.slot != Allocator::none; }

Money bounded(Wide numerator, int32_t speed_top, const Machine& m, const Job& j) {
    const Money price{speed_top > 0 ? static_cast<int64_t>(numerator / speed_top) : 0};
    return std::min(std::max(price, m.spec.reserve), j.value);
}

// The greedy from nothing, under way: first fit over the places in order. Room only shrinks, so where a need once found
// its place, or none, no later need of at least that much has to look before.
class Filling {
  public:
    explicit Filling(std::vector<Place> places) : places_(std::move(places)) {}
    std::vector<Place>& places() { return places_; }
    const std::vector<Place>& places() const { return places_; }
    void forget() { std::fill(std::begin(hints_), std::end(hints_), Hint{}); }

    // The place that the job takes; SIZE_MAX: none.
    size_t put(const Allocator& market, const Bid& bid) {
        Hint& hint = hints_[std::min<int32_t>(bid.cpus, hints_max - 1)];
        const bool useful = bid.memory_mb >= hint.memory_mb && bid.cpus < hints_max - 1;
        size_t p = useful ? hint.from : 0;
        while (p < places_.size() && !takes(market, places_[p], bid)) ++p;
        if (!bid.bars && bid.cpus < hints_max - 1) hint = {bid.memory_mb, p};
        if (p == places_.size()) return SIZE_MAX;
        places_[p].cpus -= bid.cpus;
        places_[p].memory_mb -= bid.memory_mb;
        return p;
    }

  private:
    static constexpr int32_t hints_max = 64;
    struct Hint {
        int64_t memory_mb = 0;
        size_t from = 0;
    };
    std::vector<Place> places_;
    Hint hints_[hints_max];  // by CPUs
};

// What `q` pays: the greedy goes on without it, from bid `next` and the room left.
Money integral(const Allocator& market, const Bid& q, Filling filling, const std::vector<Bid>& bids, size_t next,
               int32_t speed_top) {
    const Job& job = market.jobs()[q.job];
    const Machine& own = market.machines()[job.slot];
    const int32_t speed = std::min(own.spec.speed, speed_top);
    size_t best = 0;
    auto best_speed = [&]() -> int32_t {
        const auto& places = filling.places();
        while (best < places.size() && !takes(market, places[best], q)) ++best;
        return best < places.size() ? places[best].speed : 0;
    };
    int32_t within = std::min(speed, best_speed());
    Wide sum = static_cast<Wide>(speed - within) * q.value.micro;  // more than its bid could win (pinned, held)
    for (; next < bids.size() && within > 0; ++next) {
        const Bid& bid = bids[next];
        if (bid.job == q.job || filling.put(market, bid) != best) continue;
        const int32_t left = std::min(speed, best_speed());
        sum += static_cast<Wide>(within - left) * bid.value.micro;
        within = left;
    }
    return bounded(sum, speed_top, own, job);
}

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
    int64_t memory_max = 0;
    bool simple = true;
    market.order().each_after(Rank::top(), [&](const JobOrder::Entry& e) {
        simple = e.cpus == 1 && !market.jobs()[e.job].bars;
        memory_max = std::max(memory_max, e.memory_mb);
        return simple;
    });
    if (!simple) return std::nullopt;
    std::vector<Class> classes;
    for (const Place& p : empty_places(market)) {
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
        prices[s.job] = bounded(sum, market.speed_top(), market.machines()[q.slot], q);
        done[s.job] = true;
    }
}

void integral_prices(Allocator& market, std::vector<Money>& prices, const std::vector<bool>& done) {
    std::vector<Bid> bids, payers;
    market.order().each_after(Rank::top(), [&](const JobOrder::Entry& e) {
        bids.push_back(bid_of(market, e.job));
        return true;
    });
    for (uint32_t j = 0; j < market.jobs().size(); ++j)
        if (is_running(market.jobs()[j]) && !done[j]) payers.push_back(bid_of(market, j));
    std::sort(payers.begin(), payers.end(), [](const Bid& a, const Bid& b) { return a.rank < b.rank; });
    Filling filling(empty_places(market));
    size_t next = 0;
    for (const Bid& q : payers) {
        for (; next < bids.size() && bids[next].rank < q.rank; ++next) filling.put(market, bids[next]);
        Filling without = filling;
        const Job& job = market.jobs()[q.job];
        if (!job.competing) {  // its room is not among the free: it is what it would compete for
            for (Place& p : without.places())
                if (p.machine == job.slot) p.cpus += job.cpus, p.memory_mb += job.memory_mb;
            without.forget();
        }
        prices[q.job] = integral(market, q, std::move(without), bids, next, market.speed_top());
    }
}
}  // namespace

std::vector<Money> critical_prices(Allocator& market) {
    std::vector<Money> prices(market.jobs().size());
    std::vector<bool> done(market.jobs().size(), false);
    if (auto classes = ranked_classes(market)) ranked_prices(market, *classes, prices, done);
    integral_prices(market, prices, done);
    return prices;
}

std::vector<Money> critical_prices_by_integral(Allocator& market) {
    std::vector<Money> prices(market.jobs().size());
    integral_prices(market, prices, std::vector<bool>(market.jobs().size(), false));
    return prices;
}

std::vector<Money> first_prices(const Allocator& market) {
    std::vector<Money> prices(market.jobs().size());
    for (size_t j = 0; j < prices.size(); ++j) prices[j] = market.jobs()[j].value;
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
