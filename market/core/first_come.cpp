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
#include "market/core/batch_queue.hpp"
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
        std::vector<JobKey> waiting;
        for (const uint32_t j : waiting_in_order(market)) waiting.push_back(market.jobs()[j].key());
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
        for (const uint32_t m : machines_in_order(market))
            if (const auto& machine = market.machines()[m]; machine.free_cpus > 0)
                rooms.push_back({m, machine.free_cpus, machine.free_mb});
        return rooms;
    }
    static bool fits(const Allocator& market, uint32_t j, const Room& room) {
        const auto& job = market.jobs()[j];
        return room.cpus >= job.cpus && room.mb >= job.memory_mb &&
               market.eligible(market.machines()[room.machine], j);
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
