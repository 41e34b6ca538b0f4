// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/pricing_integral.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "market/core/pricing_rooms.hpp"

namespace souk::market {

namespace {
using Wide = __int128;
using SolverJob = Allocator::Job;
using Machine = Allocator::Machine;

// The needs and the bid of a job, side by side for the greedy from nothing to read.
struct PayerBid {
    uint32_t job;
    int32_t cpus;
    int64_t memory_mb;
    Money value;
    Rank rank;
    int32_t weight;
    bool bars;
    uint32_t user;
    uint32_t gang = Allocator::none;  // of a component
    bool whole = false;               // stands for all its gang's required components
    bool named = false;               // it asks for named resources
};

PayerBid payer_bid_of(const Allocator& market, uint32_t j) {
    const SolverJob& job = market.jobs()[j];
    const Allocator::JobDetails& d = market.details(j);
    return {j,        job.cpus, job.memory_mb, job.value,          job.rank, market.weight_of(j),
            job.bars, d.user,   d.gang,        market.required(j), job.named};
}

// The bid with which `q` would rank as `bid` does: that itself, where both weigh the same. At most
// what `q` bids.
Money level_with(const PayerBid& q, const PayerBid& bid) {
    if (q.weight == bid.weight) return bid.value;
    return std::min(q.value, least_weighed(weighed(bid.value, bid.weight), q.weight));
}

// The needs and the bid of a gang in the greedy from nothing.
struct GangBid {
    std::vector<uint32_t> components;
    std::vector<ProviderKey> barred;
    int32_t cap = speed_max;                // the speed of those that are pinned
    std::map<uint32_t, uint32_t> siblings;  // by machine: so many of these
    uint64_t network = 0;                   // of these, if it wants all near each other
    NetworkPacking packing;
    bool placed = false;  // it has a place in the greedy that goes on now
};

// With the components that compete, beside those that are pinned; `all`: as if these competed too.
// None: it does not compete at all.
std::optional<GangBid> gang_bid_of(const Allocator& market, const Allocator::Gang& g, bool all) {
    std::vector<uint32_t> components;
    std::vector<ProviderKey> barred;
    std::vector<NetworkPacking::Need> needs;
    int32_t cap = speed_max;
    std::map<uint32_t, uint32_t> siblings;
    for (const uint32_t j : g.required) {
        const SolverJob& job = market.jobs()[j];
        if (market.details(j).barred)
            barred.insert(barred.end(), market.details(j).barred->begin(),
                          market.details(j).barred->end());
        if (job.competing || all) {
            components.push_back(j);
            needs.push_back({job.cpus, job.memory_mb, market.details(j).only.n});
        } else if (job.slot == Allocator::none) {
            return std::nullopt;
        } else {
            cap = std::min(cap, market.machines()[job.slot].spec.speed);
            if (g.layout != GangLayout{}) ++siblings[job.slot];
        }
    }
    if (needs.empty()) return std::nullopt;
    const uint64_t network =
        siblings.empty() ? 0 : market.network_of(siblings.begin()->first, g.layout);
    return GangBid{std::move(components),
                   std::move(barred),
                   cap,
                   std::move(siblings),
                   network,
                   NetworkPacking(std::move(needs), g.layout),
                   false};
}

class Integral {
  public:
    Integral(Allocator& market, bool by_user)
        : market_(market),
          by_user_(by_user),
          machines_(empty_machines(market)),
          named_(empty_named(market, machines_)) {
        for (const Allocator::Gang& g : market.gangs())
            gangs_.push_back(gang_bid_of(market, g, false));
        market.order().each_after(Rank::top(), [&](const JobOrder::Entry& e) {
            const PayerBid bid = payer_bid_of(market, e.job);
            if (!bid.whole || market.leader(market.gangs()[bid.gang]) == e.job)
                bids_.push_back(bid);
            return true;
        });
    }

    // `payers` by rank; no further one after `placements_max`. Returns how many it was.
    size_t prices_of(const std::vector<PayerBid>& payers, std::vector<Money>& prices,
                     uint64_t placements_max) {
        Rooms rooms(machines_, named_), without = rooms;
        size_t next = 0, done = 0;
        for (const PayerBid& q : payers) {
            if (done > 0 && placements_ >= placements_max) break;
            ++done;
            for (; next < bids_.size() && bids_[next].rank < q.rank; ++next)
                taken_.push_back(put(rooms, bids_[next]));
            without = rooms;
            // its room is not among the free: it is what it would compete for
            const std::vector<HeldRoom> held = held_by(q);
            if (is_wanted(q, held))
                leave_wanted(q, held, without);
            else
                for (const HeldRoom& h : held) give(without, h.place, h.job);
            if (q.whole)
                price_gang(q, without, next, prices);
            else
                prices[q.job] = price(q, without, next);
        }
        return done;
    }
    uint64_t placements() const { return placements_; }

  private:
    struct HeldRoom {
        size_t place;
        uint32_t job;
    };
    // The rooms that the payer has without competing for them.
    std::vector<HeldRoom> held_by(const PayerBid& q) const {
        const std::vector<uint32_t> own{q.job};
        std::vector<HeldRoom> held;
        for (const uint32_t j : q.whole ? market_.gangs()[q.gang].required : own) {
            const SolverJob& job = market_.jobs()[j];
            for (size_t p = 0; !job.competing && p < machines_.size(); ++p)
                if (machines_[p].machine == job.slot) held.push_back({p, j});
        }
        return held;
    }
    bool is_own(const PayerBid& bid, const PayerBid& q) const {
        return by_user_ && bid.user == q.user;
    }
    // Whether one that ranks before q might take such a room if it were free. At worst a yes is
    // wrong, which costs time alone. Of gangs it is not known which places they take, so none says
    // anything about its own components and those of its user.
    bool is_wanted(const PayerBid& q, const std::vector<HeldRoom>& held) const {
        const auto is_own_gang = [&](const PayerBid& b) { return b.whole && is_own(b, q); };
        if (q.gang != Allocator::none ||
            (!held.empty() &&
             std::any_of(bids_.begin(), bids_.begin() + std::ssize(taken_), is_own_gang)))
            return false;
        for (const HeldRoom& h : held)
            for (size_t i = 0; i < taken_.size(); ++i)
                if (taken_[i] > h.place && machines_[h.place].reserve <= bids_[i].value &&
                    !is_own(bids_[i], q))
                    return true;
        return false;
    }
    // The rooms that are left when those who rank before q choose from nothing and q's own is among
    // the free. Jobs of its user have what they have without it, so that they do not price q.
    void leave_wanted(const PayerBid& q, const std::vector<HeldRoom>& held, Rooms& rooms) {
        std::vector<bool> placed(gangs_.size());
        for (size_t g = 0; g < gangs_.size(); ++g) placed[g] = gangs_[g] && gangs_[g]->placed;
        rooms = Rooms(machines_, named_);
        for (size_t i = 0; i < taken_.size(); ++i)
            if (is_own(bids_[i], q) && taken_[i] < rooms.size()) take(rooms, taken_[i], bids_[i]);
        for (const HeldRoom& h : held) give(rooms, h.place, h.job);
        for (size_t i = 0; i < taken_.size(); ++i)
            if (!is_own(bids_[i], q)) put(rooms, bids_[i]);
        for (size_t g = 0; g < gangs_.size(); ++g)
            if (gangs_[g]) gangs_[g]->placed = placed[g];
    }

    static NamedRooms empty_named(const Allocator& market, const std::vector<EmptyMachine>& all) {
        std::vector<uint32_t> places;
        places.reserve(all.size());
        for (const EmptyMachine& one : all) places.push_back(one.machine);
        return named_left(market, places, [](const auto& guest) { return guest.rank.is_top(); });
    }
    void give(Rooms& rooms, size_t p, uint32_t j) const {
        const SolverJob& job = market_.jobs()[j];
        rooms.give(p, job.cpus, job.memory_mb);
        if (job.named) rooms.named.take(p, market_.takes_named(j), market_.takes_licences(j), -1);
    }
    bool holds_named(const Rooms& rooms, size_t p, const PayerBid& b) const {
        return !b.named ||
               rooms.named.holds(p, market_.takes_named(b.job), market_.takes_licences(b.job));
    }
    // The least bid with which it may be there.
    Money reserve(size_t p, const PayerBid& b) const {
        const Machine& m = market_.machines()[machines_[p].machine];
        return b.named ? machines_[p].reserve + (market_.reserve_at(m, b.job) - m.spec.reserve)
                       : machines_[p].reserve;
    }
    bool admits(const Rooms& rooms, size_t p, const PayerBid& b) const {
        return reserve(p, b) <= b.value && holds_named(rooms, p, b) &&
               (!b.bars || !market_.barred(market_.machines()[machines_[p].machine].key, b.job));
    }
    size_t first(Rooms& rooms, size_t from, const PayerBid& b) const {
        return rooms.first(from, b.cpus, b.memory_mb,
                           [&](size_t p) { return admits(rooms, p, b); });
    }
    // The last place that the bid takes; as many as there are machines: none.
    size_t put(Rooms& rooms, const PayerBid& b) {
        ++placements_;
        if (b.whole) return put_gang(rooms, b);
        if (b.gang != Allocator::none && !with_gang(b.gang)) return rooms.size();
        const size_t p = first(rooms, 0, b);
        if (p < rooms.size()) take(rooms, p, b);
        return p;
    }
    void take(Rooms& rooms, size_t p, const PayerBid& b) const {
        rooms.take(p, b.cpus, b.memory_mb);
        if (b.named) rooms.named.take(p, market_.takes_named(b.job), market_.takes_licences(b.job));
    }
    bool with_gang(uint32_t gang) const {
        return gangs_[gang] ? gangs_[gang]->placed : market_.runs(market_.gangs()[gang]);
    }

    size_t next_place(Rooms& rooms, const GangBid& gang, const PayerBid& need, size_t from) const {
        return rooms.first(from, need.cpus, need.memory_mb, [&](size_t at) {
            const ProviderKey key = market_.machines()[machines_[at].machine].key;
            return machines_[at].reserve <= need.value &&
                   std::find(gang.barred.begin(), gang.barred.end(), key) == gang.barred.end();
        });
    }
    void add_place(const Rooms& rooms, GangBid& gang, size_t p, std::vector<size_t>& places) const {
        const auto [cpus, memory_mb] = rooms.at(p);
        const uint32_t machine = machines_[p].machine;
        const auto there = gang.siblings.find(machine);
        places.push_back(p);
        gang.packing.add(cpus, memory_mb, market_.machines()[machine].key.n,
                         there == gang.siblings.end() ? 0 : there->second,
                         market_.network_of(machine, gang.packing.layout()));
    }
    // The places that hold the gang, the fastest first; none: it fits nowhere.
    std::vector<size_t> places_of(Rooms& rooms, GangBid& gang, PayerBid need) const {
        const NetworkPacking::Need least = gang.packing.least();
        need.cpus = least.cpus;
        need.memory_mb = least.memory_mb;
        std::vector<size_t> places;
        gang.packing.begin(gang.network);
        for (size_t p = 0; !gang.packing.packed(); ++p) {
            p = next_place(rooms, gang, need, p);
            if (p == rooms.size()) return {};
            add_place(rooms, gang, p, places);
        }
        // Machines of the class of the last, or of one before, are those that `few` may choose.
        const EmptyMachine& last = machines_[places.back()];
        for (size_t p = places.back() + 1; gang.packing.layout().few; ++p) {
            p = next_place(rooms, gang, need, p);
            if (p == rooms.size() || machines_[p].speed != last.speed ||
                machines_[p].reserve != last.reserve)
                break;
            add_place(rooms, gang, p, places);
        }
        return places;
    }
    size_t put_gang(Rooms& rooms, const PayerBid& b) {
        if (!gangs_[b.gang]) return rooms.size();
        GangBid& gang = *gangs_[b.gang];
        const std::vector<size_t> places = places_of(rooms, gang, b);
        gang.placed = !places.empty();
        if (!gang.placed) return rooms.size();
        const std::vector<uint32_t> at = gang.packing.places();
        for (size_t i = 0; i < at.size(); ++i) {
            const SolverJob& job = market_.jobs()[gang.components[i]];
            rooms.take(places[at[i]], job.cpus, job.memory_mb);
        }
        return places.back();
    }

    // As price(), for all required components of a gang: its speed is that of the slowest one.
    void price_gang(const PayerBid& q, Rooms& rooms, size_t next, std::vector<Money>& prices) {
        const Allocator::Gang& all = market_.gangs()[q.gang];
        const int32_t top = market_.speed_top(), speed = std::min(market_.speed_of(all), top);
        std::optional<GangBid> gang = gang_bid_of(market_, all, true);
        PayerBid falling = q;
        std::vector<size_t> places;
        int32_t within = speed;
        Wide sum = 0;
        const auto lose = [&](Money at, Money left_with) {
            falling.value = std::min(falling.value, left_with);
            places = places_of(rooms, *gang, falling);
            const int32_t left =
                places.empty() ? 0 : std::min(within, machines_[places.back()].speed);
            sum += static_cast<Wide>(within - left) * at.micro;
            within = left;
        };
        const auto dearest = [&] {
            Money most;
            for (const size_t p : places) most = std::max(most, machines_[p].reserve);
            return most;
        };
        const auto fall_to = [&](Money bid) {
            for (Money most = dearest(); within > 0 && most > bid; most = dearest())
                lose(most, Money{most.micro - 1});
        };
        lose(q.value, q.value);
        for (; next < bids_.size() && within > 0; ++next) {
            const PayerBid& bid = bids_[next];
            if (bid.gang == q.gang || (by_user_ && bid.user == q.user)) continue;
            const Money level = level_with(q, bid);
            fall_to(level);
            const size_t last = within > 0 ? places.back() : 0;
            if (within > 0 && first_taken(rooms, bid) <= last) lose(level, level);
        }
        fall_to(Money{});
        for (const uint32_t j : all.required) {
            const SolverJob& job = market_.jobs()[j];
            if (job.slot != Allocator::none)
                prices[j] = bounded_price(sum, top, market_.machines()[job.slot], job);
        }
    }
    // Puts the bid; the first place that it takes, or as many as there are machines.
    size_t first_taken(Rooms& rooms, const PayerBid& bid) {
        const size_t last = put(rooms, bid);
        // a gang may have taken earlier ones
        return bid.whole && last < rooms.size() ? 0 : last;
    }

    // Finds the price of `q`: its bid falls, and the greedy goes on without it, from bid `next` and
    // the room left. The best place that its bid would get is lost when another bid takes it or
    // when its own falls below the reserve.
    Money price(const PayerBid& q, Rooms& rooms, size_t next) {
        const SolverJob& job = market_.jobs()[q.job];
        const Machine& own = market_.machines()[job.slot];
        const int32_t top = market_.speed_top(), speed = std::min(own.spec.speed, top);
        PayerBid falling = q;
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
            while (within > 0 && reserve(best, q) > bid) {
                const Money least = reserve(best, q);
                lose(least, Money{least.micro - 1});
            }
        };
        for (; next < bids_.size() && within > 0; ++next) {
            const PayerBid& bid = bids_[next];
            if (bid.job == q.job || (by_user_ && bid.user == q.user)) continue;
            const Money level = level_with(q, bid);
            if (reserve(best, q) > level) fall_to(level);
            if (within == 0) break;
            put(rooms, bid);
            if (!rooms.holds(best, q.cpus, q.memory_mb) || !holds_named(rooms, best, q))
                lose(level, level);
        }
        fall_to(Money{});
        return std::clamp(bounded_price(sum, top, own, job),
                          std::min(market_.reserve_at(own, q.job), job.value), job.value);
    }

    const Allocator& market_;
    const bool by_user_;
    const std::vector<EmptyMachine> machines_;
    const NamedRooms named_;
    std::vector<PayerBid> bids_;  // by rank
    std::vector<size_t> taken_;   // by bid: the last place that it takes; those before a payer
    std::vector<std::optional<GangBid>> gangs_;
    uint64_t placements_ = 0;
};
}  // namespace

namespace {
// Lists the payers by rank; the first required component of a gang stands for all.
std::vector<PayerBid> payers_of(const Allocator& market, const std::vector<uint32_t>& jobs) {
    std::vector<PayerBid> payers;
    std::vector<bool> named(market.gangs().size());
    for (const uint32_t j : jobs) {
        PayerBid bid = payer_bid_of(market, j);
        if (bid.whole) {
            if (named[bid.gang]) continue;
            named[bid.gang] = true;
            bid = payer_bid_of(market, market.gangs()[bid.gang].required.front());
        }
        payers.push_back(bid);
    }
    std::sort(payers.begin(), payers.end(),
              [](const PayerBid& a, const PayerBid& b) { return a.rank < b.rank; });
    return payers;
}
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

Money bounded_price(Wide numerator, int32_t speed_top, const Machine& m, const SolverJob& j) {
    const Money price{speed_top > 0 ? static_cast<int64_t>(numerator / speed_top) : 0};
    return std::min(std::max(price, m.spec.reserve), j.value);
}

uint64_t integral_prices(Allocator& market, std::vector<Money>& prices,
                         const std::vector<bool>& done, bool by_user) {
    std::vector<uint32_t> jobs;
    for (uint32_t j = 0; j < market.jobs().size(); ++j) {
        const SolverJob& job = market.jobs()[j];
        if (job.key().n != 0 && job.slot != Allocator::none && !done[j]) jobs.push_back(j);
    }
    return integral_prices_of(market, prices, jobs, UINT64_MAX, by_user);
}

uint64_t integral_prices_of(Allocator& market, std::vector<Money>& prices,
                            std::vector<uint32_t>& jobs, uint64_t placements_max, bool by_user) {
    if (jobs.empty()) return 0;
    const std::vector<PayerBid> payers = payers_of(market, jobs);
    Integral integral(market, by_user);
    const size_t done = integral.prices_of(payers, prices, placements_max);
    std::set<uint32_t> waiting, gangs;
    for (size_t i = done; i < payers.size(); ++i)
        payers[i].whole ? gangs.insert(payers[i].gang) : waiting.insert(payers[i].job);
    std::erase_if(jobs, [&](uint32_t j) {
        return market.required(j) ? !gangs.contains(market.details(j).gang) : !waiting.contains(j);
    });
    return integral.placements();
}

}  // namespace souk::market
