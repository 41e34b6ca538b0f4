// SPDX-License-Identifier: GPL-2.0-or-later
// balance: load balancing without prices, as MOSIX balances its nodes (Barak, Shiloh: "A
// distributed load-balancing policy for a multicomputer", 1985), for machines whose CPUs each serve
// one job. What the market's algorithms are compared with on a live system.
//
// The load of a machine is its CPUs in use / (its CPUs x its speed).
//   arrival   jobs that wait are taken in the order of their arrival; each goes where the load is
//             least once it is there. One that finds no room waits; a later, smaller one may pass
//             it. Nobody is displaced for anybody.
//   balance   as long as a job would find a lower load elsewhere (with it there) than it has now,
//             such a job of the most loaded machine moves, of several the one with the fewest
//             bytes. Each move makes the list of all loads, the highest first, smaller, so it ends.
// Values serve for one thing: nobody runs below the reserve of a provider, and everybody pays just
// that reserve. min_stay holds; horizon and moves_max are not looked at. A decision costs
// O(jobs + machines), as much again for each move, and O(machines) for each job that is placed.
#include <algorithm>
#include <tuple>

#include "market/core/at_reserve.hpp"
#include "market/core/named_rooms.hpp"

namespace souk::market {
namespace {

class Plan {
  public:
    explicit Plan(Allocator& market)
        : market_(market),
          slots_(market.jobs().size()),
          named_(named_left(market, [](const auto&) { return true; })) {
        for (const auto& m : market.machines()) rooms_.push_back({m.free_cpus, m.free_mb});
        for (uint32_t j = 0; j < market.jobs().size(); ++j) slots_[j] = market.jobs()[j].slot;
        for (uint32_t m = 0; m < rooms_.size(); ++m)
            if (market.machines()[m].key.n != 0 && market.machines()[m].spec.accepting)
                machines_.push_back(m);
    }

    // Returns whether somebody got a place.
    bool place_waiting() {
        bool placed = false;
        std::vector<uint32_t> waiting;
        for (uint32_t j = 0; j < slots_.size(); ++j) {
            const auto& job = market_.jobs()[j];
            if (job.key().n != 0 && job.competing && slots_[j] == Allocator::none)
                waiting.push_back(j);
        }
        std::sort(waiting.begin(), waiting.end(), [&](uint32_t a, uint32_t b) {
            const auto &x = market_.jobs()[a], &y = market_.jobs()[b];
            return std::tuple(x.arrival(), x.key()) < std::tuple(y.arrival(), y.key());
        });
        std::vector<uint32_t> open;
        for (const uint32_t m : machines_)
            if (rooms_[m].cpus > 0) open.push_back(m);
        for (const uint32_t j : waiting) {
            if (open.empty()) break;
            const uint32_t to = best(j, open);
            if (to == Allocator::none) continue;
            put(j, to);
            placed = true;
            if (rooms_[to].cpus == 0) std::erase(open, to);
        }
        return placed;
    }

    void level_out() {
        while (move_one()) {
        }
    }

    const std::vector<uint32_t>& slots() const { return slots_; }

  private:
    struct Room {
        int32_t cpus = 0;
        int64_t mb = 0;
    };
    // A load with so many more CPUs in use, as a fraction that is compared exactly.
    struct Load {
        int64_t used = 0, whole = 1;
        bool operator<(const Load& o) const {
            return static_cast<__int128>(used) * o.whole < static_cast<__int128>(o.used) * whole;
        }
    };

    Load load(uint32_t m, int32_t more = 0) const {
        const ProviderSpec& p = market_.machines()[m].spec;
        return {p.cpus - rooms_[m].cpus + more, int64_t{p.cpus} * p.speed};
    }
    // Finds the machine with the least load once the job is there; at equal loads the one with its
    // checkpoint, then the faster, the cheaper, the one of the lower key.
    uint32_t best(uint32_t j, const std::vector<uint32_t>& among) const {
        const auto& job = market_.jobs()[j];
        const ProviderKey own = market_.place_of(j);
        uint32_t found = Allocator::none;
        const auto rank = [&](uint32_t m) {
            const auto& machine = market_.machines()[m];
            return std::tuple(machine.key != own, -machine.spec.speed, machine.spec.reserve,
                              machine.key);
        };
        for (const uint32_t m : among) {
            if (rooms_[m].cpus < job.cpus || rooms_[m].mb < job.memory_mb || m == slots_[j] ||
                !market_.eligible(market_.machines()[m], j) || !has_named(j, m))
                continue;
            if (found == Allocator::none || load(m, job.cpus) < load(found, job.cpus) ||
                (!(load(found, job.cpus) < load(m, job.cpus)) && rank(m) < rank(found)))
                found = m;
        }
        return found;
    }
    // A job that has named resources where it is stays there.
    bool has_named(uint32_t j, uint32_t to) const {
        return !market_.jobs()[j].named ||
               (slots_[j] == Allocator::none &&
                named_.holds(to, market_.takes_named(j), market_.takes_licences(j)));
    }
    void put(uint32_t j, uint32_t to) {
        if (market_.jobs()[j].named)
            named_.take(to, market_.takes_named(j), market_.takes_licences(j));
        const auto& job = market_.jobs()[j];
        if (slots_[j] != Allocator::none) {
            rooms_[slots_[j]].cpus += job.cpus;
            rooms_[slots_[j]].mb += job.memory_mb;
        }
        rooms_[to].cpus -= job.cpus;
        rooms_[to].mb -= job.memory_mb;
        slots_[j] = to;
    }
    bool move_one() {
        std::vector<std::vector<uint32_t>> guests(rooms_.size());
        for (uint32_t j = 0; j < slots_.size(); ++j) {
            const auto& job = market_.jobs()[j];
            if (job.key().n != 0 && slots_[j] != Allocator::none && job.pin == Pin::free &&
                !job.held)
                guests[slots_[j]].push_back(j);
        }
        std::vector<uint32_t> from = machines_, open;
        std::sort(from.begin(), from.end(), [&](uint32_t a, uint32_t b) {
            if (load(b) < load(a)) return true;
            return !(load(a) < load(b)) && market_.machines()[a].key < market_.machines()[b].key;
        });
        for (const uint32_t m : machines_)
            if (rooms_[m].cpus > 0) open.push_back(m);
        for (const uint32_t m : from) {
            std::vector<uint32_t>& here = guests[m];
            std::sort(here.begin(), here.end(), [&](uint32_t a, uint32_t b) {
                return std::tuple(market_.bytes_of(a), market_.jobs()[a].key()) <
                       std::tuple(market_.bytes_of(b), market_.jobs()[b].key());
            });
            for (const uint32_t j : here) {
                const uint32_t to = best(j, open);
                if (to == Allocator::none || !(load(to, market_.jobs()[j].cpus) < load(m)))
                    continue;
                put(j, to);
                return true;
            }
        }
        return false;
    }

    Allocator& market_;
    std::vector<uint32_t> slots_;
    std::vector<Room> rooms_;
    NamedRooms named_;                // what is left, by machine
    std::vector<uint32_t> machines_;  // that accept jobs
};

class Balance : public AtReserve {
  public:
    std::unique_ptr<Algorithm> copy() const override { return std::make_unique<Balance>(*this); }
    void solve(Allocator& market, Nanos now, const SolverOptions&) override {
        market.begin(now);
        Plan plan(market);
        // A move may make room that somebody who waits can use.
        do plan.level_out();
        while (plan.place_waiting());
        market.adopt(plan.slots(), now, Cause::balanced);
    }
};

}  // namespace

std::unique_ptr<Algorithm> make_balance() { return std::make_unique<Balance>(); }

}  // namespace souk::market
