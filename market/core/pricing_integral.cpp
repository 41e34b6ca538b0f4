// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/pricing_integral.hpp"

#include <algorithm>

namespace souk::market {

namespace {
using Wide = __int128;
using Job = Allocator::Job;
using Machine = Allocator::Machine;

// What a job asks for, side by side for the greedy from nothing to read.
struct Bid {
    uint32_t job;
    int32_t cpus;
    int64_t memory_mb;
    Money value;
    Rank rank;
    bool bars;
    uint32_t user;
};

Bid bid_of(const Allocator& market, uint32_t j) {
    const Job& job = market.jobs()[j];
    return {j, job.cpus, job.memory_mb, job.value, job.rank, job.bars, market.details(j).user};
}

// Rooms in order of choice. Of each 16 of them, and each 256, it is known how much memory one with
// at least so many CPUs has at most. Room only shrinks, so that stays an upper bound, which a
// search that finds nothing there tightens; and a need that nobody holds is held by nobody ever
// after, nor is one of at least that much.
class Rooms {
  public:
    explicit Rooms(const std::vector<EmptyMachine>& machines)
        : cpus_(machines.size()), memory_mb_(machines.size()) {
        for (size_t p = 0; p < machines.size(); ++p)
            cpus_[p] = machines[p].cpus, memory_mb_[p] = machines[p].memory_mb;
        groups_.resize((machines.size() + width - 1) / width);
        for (size_t g = 0; g < groups_.size(); ++g) tighten_group(g);
        halls_.resize((groups_.size() + width - 1) / width);
        for (size_t h = 0; h < halls_.size(); ++h) tighten_hall(h);
        std::fill(std::begin(refused_), std::end(refused_), INT64_MAX);
    }
    size_t size() const { return cpus_.size(); }
    void take(size_t p, int32_t cpus, int64_t memory_mb) {
        cpus_[p] -= cpus;
        memory_mb_[p] -= memory_mb;
    }
    void give(size_t p, int32_t cpus, int64_t memory_mb) {
        take(p, -cpus, -memory_mb);
        tighten_group(p / width);
        tighten_hall(p / width / width);
        std::fill(std::begin(refused_), std::end(refused_), INT64_MAX);
    }
    bool holds(size_t p, int32_t cpus, int64_t memory_mb) const {
        return cpus_[p] >= cpus && memory_mb_[p] >= memory_mb;
    }

    // The first from `p` on that holds as much and that check(place) says yes to; size() if there
    // is none.
    template <class Check>
    size_t first(size_t p, int32_t cpus, int64_t memory_mb, Check&& check) {
        const int32_t column = std::min(cpus, columns - 1);
        if (refused_[column] <= memory_mb) return size();
        bool held = p > 0;  // or not known
        while (p < size()) {
            const size_t h = p / (width * width),
                         hall_end = std::min(size(), (h + 1) * width * width);
            if (!halls_[h].holds(cpus, memory_mb)) {
                p = hall_end;
                continue;
            }
            const bool whole_hall = p % (width * width) == 0;
            while (p < hall_end) {
                const size_t g = p / width, end = std::min(size(), (g + 1) * width);
                if (groups_[g].holds(cpus, memory_mb)) {
                    const bool whole = p % width == 0;
                    for (; p < end; ++p) {
                        if (!holds(p, cpus, memory_mb)) continue;
                        if (check(p)) return p;
                        held = true;
                    }
                    if (whole) tighten_group(g);
                }
                p = end;
            }
            if (whole_hall) tighten_hall(h);
        }
        for (int32_t c = cpus; !held && c < columns; ++c)
            refused_[c] = std::min(refused_[c], memory_mb);
        return p;
    }

  private:
    static constexpr size_t width = 16;
    static constexpr int32_t columns = 64;
    static constexpr int32_t steps = 8;
    struct Most {
        int64_t memory_mb[steps];  // of those with at least 1, 2, .. 8 CPUs
        bool holds(int32_t cpus, int64_t mb) const {
            return memory_mb[std::clamp(cpus, 1, steps) - 1] >= mb;
        }
    };
    void tighten_group(size_t g) {
        Most& most = groups_[g];
        std::fill(std::begin(most.memory_mb), std::end(most.memory_mb), INT64_MIN);
        for (size_t p = g * width; p < std::min(size(), (g + 1) * width); ++p) {
            if (cpus_[p] < 1) continue;
            int64_t& step = most.memory_mb[std::min(cpus_[p], steps) - 1];
            step = std::max(step, memory_mb_[p]);
        }
        for (int32_t c = steps - 1; c > 0; --c)
            most.memory_mb[c - 1] = std::max(most.memory_mb[c - 1], most.memory_mb[c]);
    }
    void tighten_hall(size_t h) {
        halls_[h] = groups_[h * width];
        for (size_t g = h * width + 1; g < std::min(groups_.size(), (h + 1) * width); ++g)
            for (int32_t c = 0; c < steps; ++c)
                halls_[h].memory_mb[c] = std::max(halls_[h].memory_mb[c], groups_[g].memory_mb[c]);
    }

    std::vector<int32_t> cpus_;
    std::vector<int64_t> memory_mb_;
    std::vector<Most> groups_, halls_;
    // by CPUs (the last: of that many and more): the least memory that nobody holds
    int64_t refused_[columns];
};

class Integral {
  public:
    Integral(Allocator& market, bool by_user)
        : market_(market), by_user_(by_user), machines_(empty_machines(market)) {
        market.order().each_after(Rank::top(), [&](const JobOrder::Entry& e) {
            bids_.push_back(bid_of(market, e.job));
            return true;
        });
    }

    // `payers` by rank; no further one after `placements_max`. Returns how many it was.
    size_t prices_of(const std::vector<Bid>& payers, std::vector<Money>& prices,
                     uint64_t placements_max) {
        Rooms rooms(machines_), without = rooms;
        size_t next = 0, done = 0;
        for (const Bid& q : payers) {
            if (done > 0 && placements_ >= placements_max) break;
            ++done;
            for (; next < bids_.size() && bids_[next].rank < q.rank; ++next)
                put(rooms, bids_[next]);
            without = rooms;
            const Job& job = market_.jobs()[q.job];
            // its room is not among the free: it is what it would compete for
            if (!job.competing) {
                for (size_t p = 0; p < machines_.size(); ++p)
                    if (machines_[p].machine == job.slot) without.give(p, job.cpus, job.memory_mb);
            }
            prices[q.job] = price(q, without, next);
        }
        return done;
    }
    uint64_t placements() const { return placements_; }

  private:
    bool admits(size_t p, const Bid& b) const {
        return machines_[p].reserve <= b.value &&
               (!b.bars || !market_.barred(market_.machines()[machines_[p].machine].key, b.job));
    }
    size_t first(Rooms& rooms, size_t from, const Bid& b) const {
        return rooms.first(from, b.cpus, b.memory_mb, [&](size_t p) { return admits(p, b); });
    }
    // The place that the bid takes; as many as there are machines: none.
    size_t put(Rooms& rooms, const Bid& b) {
        ++placements_;
        const size_t p = first(rooms, 0, b);
        if (p < rooms.size()) rooms.take(p, b.cpus, b.memory_mb);
        return p;
    }

    // What `q` pays: its bid falls, and the greedy goes on without it, from bid `next` and the room
    // left. The best place that its bid would get is lost when another bid takes it or when its own
    // falls below the reserve.
    Money price(const Bid& q, Rooms& rooms, size_t next) {
        const Job& job = market_.jobs()[q.job];
        const Machine& own = market_.machines()[job.slot];
        const int32_t top = market_.speed_top(), speed = std::min(own.spec.speed, top);
        Bid falling = q;
        size_t best = first(rooms, 0, falling);
        const auto within_now = [&] {
            return best < rooms.size() ? std::min(speed, machines_[best].speed) : 0;
        };
        int32_t within = within_now();
        // more than its bid could win (pinned, held)
        Wide sum = static_cast<Wide>(speed - within) * q.value.micro;
        const auto lose = [&](Money at, Money left_with) {
            falling.value = std::min(falling.value, left_with);
            best = first(rooms, best + 1, falling);
            const int32_t left = within_now();
            sum += static_cast<Wide>(within - left) * at.micro;
            within = left;
        };
        const auto fall_to = [&](Money bid) {  // through the reserves above it
            while (within > 0 && machines_[best].reserve > bid)
                lose(machines_[best].reserve, Money{machines_[best].reserve.micro - 1});
        };
        for (; next < bids_.size() && within > 0; ++next) {
            const Bid& bid = bids_[next];
            if (bid.job == q.job || (by_user_ && bid.user == q.user)) continue;
            if (machines_[best].reserve > bid.value) fall_to(bid.value);
            if (within > 0 && put(rooms, bid) == best && !rooms.holds(best, q.cpus, q.memory_mb))
                lose(bid.value, bid.value);
        }
        fall_to(Money{});
        return bounded_price(sum, top, own, job);
    }

    const Allocator& market_;
    const bool by_user_;
    const std::vector<EmptyMachine> machines_;
    std::vector<Bid> bids_;  // by rank
    uint64_t placements_ = 0;
};
}  // namespace

std::vector<EmptyMachine> empty_machines(const Allocator& market) {
    std::vector<EmptyMachine> empty;
    auto limit = market.limits().begin();
    market.machine_order().each([&](const MachineOrder::Entry& e) {
        const Machine& m = market.machines()[e.machine];
        EmptyMachine one{e.machine, m.spec.speed, m.spec.cpus, m.spec.memory_mb, m.spec.reserve};
        for (const auto& g : m.guests) {
            if (!g.rank.is_top()) break;
            one.cpus -= g.cpus;
            one.memory_mb -= g.memory_mb;
        }
        while (limit != market.limits().end() && limit->cls < e.cls) ++limit;
        if (limit != market.limits().end() && limit->cls == e.cls)
            one.reserve = std::max(one.reserve, Money{-std::max(limit->last.first, -INT64_MAX)});
        empty.push_back(one);
        return true;
    });
    return empty;
}

Money bounded_price(Wide numerator, int32_t speed_top, const Machine& m, const Job& j) {
    const Money price{speed_top > 0 ? static_cast<int64_t>(numerator / speed_top) : 0};
    return std::min(std::max(price, m.spec.reserve), j.value);
}

uint64_t integral_prices(Allocator& market, std::vector<Money>& prices,
                         const std::vector<bool>& done, bool by_user) {
    std::vector<Bid> payers;
    for (uint32_t j = 0; j < market.jobs().size(); ++j) {
        const Job& job = market.jobs()[j];
        if (job.key().n != 0 && job.slot != Allocator::none && !done[j])
            payers.push_back(bid_of(market, j));
    }
    if (payers.empty()) return 0;
    std::sort(payers.begin(), payers.end(),
              [](const Bid& a, const Bid& b) { return a.rank < b.rank; });
    Integral integral(market, by_user);
    integral.prices_of(payers, prices, UINT64_MAX);
    return integral.placements();
}

uint64_t integral_prices_of(Allocator& market, std::vector<Money>& prices,
                            std::vector<uint32_t>& jobs, uint64_t placements_max, bool by_user) {
    if (jobs.empty()) return 0;
    std::vector<Bid> payers;
    for (const uint32_t j : jobs) payers.push_back(bid_of(market, j));
    std::sort(payers.begin(), payers.end(),
              [](const Bid& a, const Bid& b) { return a.rank < b.rank; });
    Integral integral(market, by_user);
    const size_t done = integral.prices_of(payers, prices, placements_max);
    jobs.clear();
    for (size_t i = done; i < payers.size(); ++i) jobs.push_back(payers[i].job);
    return integral.placements();
}

}  // namespace souk::market
