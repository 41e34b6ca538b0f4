// SPDX-License-Identifier: GPL-2.0-or-later
// The queues of batch systems, without prices: jobs wait in one queue by arrival, and whoever has a
// place keeps it (overtaking.hpp).
//   fcfs                nobody starts before a job that came earlier
//   fpfs                the first in the queue that fits starts
//   bounded_overtaking  fpfs, but nobody passes a job that was passed 20 times
// Each starts on the first machine by speed, then reserve, then key that has room for it and whose
// reserve is not above its value. A job that no machine could hold, even if it were empty, is
// passed over. Nobody is displaced or moved; a machine that leaves or shrinks sends its jobs back
// to their place in the queue. Everybody pays just the reserve. None of it looks at run times, and
// no rule of the others (horizon, min_stay, moves_max, ageing). A decision costs O(waiting x
// machines).
#include <algorithm>
#include <optional>
#include <tuple>

#include "market/core/at_reserve.hpp"
#include "market/core/named_rooms.hpp"
#include "market/core/overtaking.hpp"

namespace souk::market {
namespace {

constexpr uint32_t overtakes_most = 20;

class FirstCome : public AtReserve {
  public:
    explicit FirstCome(uint32_t passes_max) : queue_(passes_max) {}
    std::unique_ptr<Algorithm> copy() const override { return std::make_unique<FirstCome>(*this); }
    void solve(Allocator& market, Nanos now, const SolverOptions&) override {
        market.begin(now);
        std::vector<uint32_t> slots(market.jobs().size());
        for (uint32_t j = 0; j < slots.size(); ++j) slots[j] = market.jobs()[j].slot;
        std::vector<Room> rooms = rooms_of(market);
        NamedRooms named = named_left(market, [](const auto&) { return true; });
        const std::vector<JobKey> waiting = waiting_of(market);
        queue_.keep([&](JobKey key) {
            const uint32_t j = market.find_job(key);
            return j != Allocator::none && slots[j] == Allocator::none;
        });
        bool full = rooms.empty();
        queue_.pass(waiting, false, [&](JobKey key) {
            if (full) return false;
            const uint32_t j = market.find_job(key);
            const auto to = std::find_if(rooms.begin(), rooms.end(), [&](const Room& room) {
                return fits(market, j, room) &&
                       (!market.jobs()[j].named ||
                        named.holds(room.machine, market.takes_named(j), market.takes_licences(j)));
            });
            if (to == rooms.end()) return false;
            if (market.jobs()[j].named)
                named.take(to->machine, market.takes_named(j), market.takes_licences(j));
            to->cpus -= market.jobs()[j].cpus;
            to->mb -= market.jobs()[j].memory_mb;
            slots[j] = to->machine;
            if (to->cpus == 0) rooms.erase(to);
            full = rooms.empty();
            return true;
        });
        const auto blocked = std::find_if(waiting.begin(), waiting.end(), [&](JobKey key) {
            return slots[market.find_job(key)] == Allocator::none && queue_.blocks(key);
        });
        blocked_.reset();
        if (blocked != waiting.end())
            blocked_.emplace(market.jobs()[market.find_job(*blocked)].arrival(), *blocked);
        market.adopt(slots, now, Cause::placed);
    }
    // No bid passes somebody whom nobody may pass.
    std::optional<Money> least_bid(Allocator& market, int32_t cpus, int64_t memory_mb,
                                   std::span<const ProviderKey> barred,
                                   const Asker& asker) override {
        if (blocked_ && *blocked_ < std::tuple(asker.arrival, asker.key)) return std::nullopt;
        return AtReserve::least_bid(market, cpus, memory_mb, barred, asker);
    }

  private:
    struct Room {
        uint32_t machine = 0;
        int32_t cpus = 0;
        int64_t mb = 0;
    };
    // Lists what is free on the machines that take jobs, in the order of choice.
    static std::vector<Room> rooms_of(const Allocator& market) {
        std::vector<Room> rooms;
        for (uint32_t m = 0; m < market.machines().size(); ++m) {
            const auto& machine = market.machines()[m];
            if (machine.key.n != 0 && machine.spec.accepting && machine.free_cpus > 0)
                rooms.push_back({m, machine.free_cpus, machine.free_mb});
        }
        const auto rank = [&](const Room& room) {
            const auto& machine = market.machines()[room.machine];
            return std::tuple(-machine.spec.speed, machine.spec.reserve, machine.key);
        };
        std::sort(rooms.begin(), rooms.end(),
                  [&](const Room& a, const Room& b) { return rank(a) < rank(b); });
        return rooms;
    }
    static bool fits(const Allocator& market, uint32_t j, const Room& room) {
        const auto& job = market.jobs()[j];
        return room.cpus >= job.cpus && room.mb >= job.memory_mb &&
               market.eligible(market.machines()[room.machine], j);
    }
    // Those who compete and have no place, by arrival, but for those that no machine could hold.
    static std::vector<JobKey> waiting_of(const Allocator& market) {
        std::vector<std::tuple<Nanos, JobKey>> waiting;
        for (uint32_t j = 0; j < market.jobs().size(); ++j) {
            const auto& job = market.jobs()[j];
            if (job.key().n == 0 || !job.competing || job.slot != Allocator::none) continue;
            const bool could =
                std::any_of(market.machines().begin(), market.machines().end(), [&](const auto& m) {
                    return m.key.n != 0 && m.spec.cpus >= job.cpus &&
                           m.spec.memory_mb >= job.memory_mb && market.eligible(m, j) &&
                           (!job.named || market.has_named(m, j));
                });
            if (could) waiting.emplace_back(job.arrival(), job.key());
        }
        std::sort(waiting.begin(), waiting.end());
        std::vector<JobKey> keys;
        for (const auto& [arrival, key] : waiting) keys.push_back(key);
        return keys;
    }

    Overtaking<JobKey> queue_;
    std::optional<std::tuple<Nanos, JobKey>> blocked_;  // the first whom nobody may pass
};

}  // namespace

std::unique_ptr<Algorithm> make_fcfs() { return std::make_unique<FirstCome>(0); }
std::unique_ptr<Algorithm> make_fpfs() {
    return std::make_unique<FirstCome>(Overtaking<JobKey>::any);
}
std::unique_ptr<Algorithm> make_bounded_overtaking() {
    return std::make_unique<FirstCome>(overtakes_most);
}

}  // namespace souk::market
