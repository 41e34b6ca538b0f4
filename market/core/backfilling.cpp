// SPDX-License-Identifier: GPL-2.0-or-later
// The queues of batch systems that look ahead, without prices. Whoever has a place keeps it. A job
// that has to wait gets a reservation, where it can start earliest by what is known of how long
// others run, and a later job starts at once only where it delays no reservation.
//   easy          by arrival; the first job that has to wait has a reservation (D. Lifka: The
//                 ANL/IBM SP scheduling system, JSSPP 1995)
//   sjf           the same, but the job with the least work goes first
//   wfp           the same, but the greatest CPUs x (wait / work)^3 goes first (WFP3 of W. Tang, Z.
//                 Lan, N. Desai and D. Buettner: Fault-aware, utility-based job scheduling on Blue
//                 Gene/P systems, CLUSTER 2009)
//   conservative  by arrival; each of the first jobs that wait has a reservation, so that none of
//                 them is delayed by a later one (A. W. Mu'alem and D. G. Feitelson, IEEE Trans.
//                 Parallel Distrib. Syst. 12(6), 2001)
//
// How long a job takes is JobDemand::rest: its time limit, its stated run time, or what its program
// took before; of the simulator its true run time. One of which nothing is known counts as a day.
// One that has taken longer than that is taken to need as long again as it is late. Places that are
// sold ahead (JobDemand::ahead) are kept free from their start on.
//
// Each job starts on the first machine by speed, then reserve, then key, on which its start is the
// earliest. Nobody is displaced or moved; a machine that leaves sends its jobs back to the queue.
// Everybody pays just the reserve. Named resources are looked at for a start at once alone. A
// decision costs O(waiting x machines x jobs of a machine).
#include <algorithm>
#include <map>
#include <utility>

#include "market/core/at_reserve.hpp"
#include "market/core/batch_queue.hpp"
#include "market/core/named_rooms.hpp"

namespace souk::market {
namespace {

enum class BatchOrder : uint8_t { arrival, shortest, wfp };
struct BatchRule {
    BatchOrder order;
    size_t reserved_most;  // so many of those that wait have reservations
};
constexpr size_t conservative_depth = 1'000;
constexpr Nanos unknown_run = Nanos::from_s(86'400), shortest_run = Nanos::from_ms(1),
                longest_run{INT64_MAX / 4};

class Backfilling : public AtReserve {
  public:
    explicit Backfilling(BatchRule rule) : rule_(rule) {}
    std::unique_ptr<Algorithm> copy() const override {
        return std::make_unique<Backfilling>(*this);
    }

    void solve(Allocator& market, Nanos now, const SolverOptions&) override {
        market.begin(now);
        now_ = now;
        note_places(market);
        note_sold(market);
        slots_.assign(market.jobs().size(), Allocator::none);
        for (uint32_t j = 0; j < slots_.size(); ++j) slots_[j] = market.jobs()[j].slot;
        machines_.clear();
        for (const uint32_t m : machines_in_order(market))
            machines_.push_back({m, plan_of(market, m)});
        named_ = named_left(market, [](const auto&) { return true; });
        size_t reserved = 0;
        for (const uint32_t j : queue_of(market)) {
            const bool may_reserve = reserved < rule_.reserved_most;
            const Choice best = choose(market, j, !may_reserve);
            if (best.machine == machines_.size()) continue;
            if (best.at <= now_)
                start(market, j, best.machine);
            else if (may_reserve)
                ++reserved;
            else
                continue;
            Plan& plan = machines_[best.machine].plan;
            take(plan, room_of(market, j), best.at, best.at + length(market, j, best.machine));
        }
        blocked_ = reserved > 0;
        market.adopt(slots_, now, Cause::placed);
        note_places(market);
    }
    // No bid passes somebody who has a reservation.
    std::optional<Money> least_bid(Allocator& market, int32_t cpus, int64_t memory_mb,
                                   std::span<const ProviderKey> barred,
                                   const Asker& asker) override {
        if (blocked_) return std::nullopt;
        return AtReserve::least_bid(market, cpus, memory_mb, barred, asker);
    }

  private:
    struct Room {
        int64_t cpus = 0, mb = 0;
        bool holds(const Room& o) const { return cpus >= o.cpus && mb >= o.mb; }
        void add(const Room& o, int64_t sign) { cpus += sign * o.cpus, mb += sign * o.mb; }
    };
    struct Step {  // of a plan: so much is free from then on, until the next step
        Nanos from;
        Room free;
    };
    using Plan = std::vector<Step>;
    struct Planned {
        uint32_t index;
        Plan plan;
    };
    struct Choice {
        size_t machine;  // of machines_; its size: none
        Nanos at;
    };
    // When a job was first seen, and where it has a place since when. All waits begin anew when
    // the algorithm is chosen.
    struct Known {
        Nanos came, placed;
        uint64_t at = 0;
    };

    static Room room_of(const Allocator& market, uint32_t j) {
        return {market.jobs()[j].cpus, market.jobs()[j].memory_mb};
    }

    void note_places(const Allocator& market) {
        std::erase_if(known_, [&](const auto& one) {
            return market.find_job(JobKey{one.first}) == Allocator::none;
        });
        for (const auto& job : market.jobs()) {
            if (job.key().n == 0) continue;
            Known& known = known_.try_emplace(job.key().n, Known{now_, now_}).first->second;
            const uint64_t at = job.slot == Allocator::none ? 0 : market.machines()[job.slot].key.n;
            if (std::exchange(known.at, at) != at) known.placed = now_;
        }
    }

    void note_sold(const Allocator& market) {
        sold_.clear();
        for (uint32_t j = 0; j < market.jobs().size(); ++j)
            if (market.jobs()[j].key().n != 0 && is_sold(market.details(j).ahead))
                sold_.push_back(j);
    }

    // How long it runs there yet, if it begins now.
    Nanos length(const Allocator& market, uint32_t j, size_t machine) const {
        return std::min(span_on(market, j, machines_[machine].index), leaves(market, j) - now_);
    }
    static Nanos span_on(const Allocator& market, uint32_t j, uint32_t m) {
        const auto& ahead = market.details(j).ahead;
        const int32_t speed = market.machines()[m].spec.speed;
        return ahead && ahead->rest.is_known()
                   ? std::clamp(ahead->rest.at(speed), shortest_run, longest_run)
                   : unknown_run;
    }
    // One to which a place is sold ahead goes there when that begins.
    Nanos leaves(const Allocator& market, uint32_t j) const {
        const auto& ahead = market.details(j).ahead;
        return is_sold(ahead) ? std::max(now_, ahead->from) : Nanos::never();
    }
    bool is_sold(const auto& ahead) const { return ahead && ahead->at.n != 0 && ahead->to > now_; }
    Nanos end_of(const Allocator& market, uint32_t j, uint32_t m) const {
        const auto& ahead = market.details(j).ahead;
        const auto known = known_.find(market.jobs()[j].key().n);
        Nanos from = known == known_.end() ? now_ : known->second.placed;
        if (ahead) from = std::max(from, ahead->rest_from);
        const Nanos end = from + span_on(market, j, m);
        return std::min(leaves(market, j),
                        end > now_ ? end : now_ + std::max(Nanos::from_s(1), now_ - end));
    }

    // The room of a machine from now on, as those that are there end, and without what is sold.
    Plan plan_of(const Allocator& market, uint32_t m) const {
        const auto& machine = market.machines()[m];
        std::vector<std::pair<Nanos, uint32_t>> ends;
        for (const Allocator::Guest& g : machine.guests)
            ends.emplace_back(end_of(market, g.job, m), g.job);
        std::sort(ends.begin(), ends.end());
        Plan plan = {{now_, {machine.free_cpus, machine.free_mb}}};
        for (const auto& [end, j] : ends) {
            Room more = plan.back().free;
            more.add(room_of(market, j), 1);
            if (end > plan.back().from)
                plan.push_back({end, more});
            else
                plan.back().free = more;
        }
        for (const uint32_t j : sold_) {
            const JobAhead& ahead = *market.details(j).ahead;
            if (ahead.at == machine.key)
                take(plan, room_of(market, j), std::max(now_, ahead.from), ahead.to);
        }
        return plan;
    }

    // The first time from which on the machine has room for so long. The last step goes on.
    static Nanos earliest(const Plan& plan, const Room& room, Nanos lasts) {
        size_t first = 0;
        for (size_t i = 0; i < plan.size(); ++i) {
            if (!plan[i].free.holds(room))
                first = i + 1;
            else if (i + 1 == plan.size() || plan[i + 1].from - plan[first].from >= lasts)
                return plan[first].from;
        }
        return Nanos::never();
    }
    static void take(Plan& plan, const Room& room, Nanos from, Nanos to) {
        for (const Nanos edge : {from, to}) {
            const auto next = std::upper_bound(plan.begin(), plan.end(), edge,
                                               [](Nanos t, const Step& s) { return t < s.from; });
            const Step before = *std::prev(next);
            if (before.from != edge) plan.insert(next, {edge, before.free});
        }
        for (Step& step : plan)
            if (step.from >= from && step.from < to) step.free.add(room, -1);
    }

    // The earliest start, on the first machine that has it. `now_only`: a later one is of no use.
    Choice choose(const Allocator& market, uint32_t j, bool now_only) const {
        const Room room = room_of(market, j);
        Choice best{machines_.size(), Nanos::never()};
        for (size_t m = 0; m < machines_.size() && best.at > now_; ++m) {
            const Planned& planned = machines_[m];
            const auto& machine = market.machines()[planned.index];
            if (now_only && !planned.plan.front().free.holds(room)) continue;
            if (!could_hold(market, machine, j)) continue;
            const Nanos at = earliest(planned.plan, room, length(market, j, m));
            if (at >= best.at || (now_only && at > now_)) continue;
            if (at <= now_ && market.jobs()[j].named &&
                !named_.holds(planned.index, market.takes_named(j), market.takes_licences(j)))
                continue;
            best = {m, at};
        }
        return best;
    }
    void start(const Allocator& market, uint32_t j, size_t machine) {
        slots_[j] = machines_[machine].index;
        if (market.jobs()[j].named)
            named_.take(slots_[j], market.takes_named(j), market.takes_licences(j));
    }

    std::vector<uint32_t> queue_of(const Allocator& market) const {
        std::vector<uint32_t> queue = waiting_in_order(market);
        const auto work = [&](uint32_t j) {
            const auto& ahead = market.details(j).ahead;
            return ahead && ahead->rest.is_known() ? ahead->rest.at(speed_standard) : unknown_run;
        };
        const auto urgency = [&](uint32_t j) {
            const Nanos wait = now_ - known_.at(market.jobs()[j].key().n).came;
            const double ratio = wait.seconds() / std::max(1.0, work(j).seconds());
            return ratio * ratio * ratio * market.jobs()[j].cpus;
        };
        if (rule_.order == BatchOrder::shortest) std::ranges::stable_sort(queue, {}, work);
        if (rule_.order == BatchOrder::wfp)
            std::ranges::stable_sort(queue, std::greater<>(), urgency);
        return queue;
    }

    BatchRule rule_;
    std::map<uint64_t, Known> known_;  // by the key of the job
    bool blocked_ = false;             // somebody who waits has a reservation
    // of the present decision
    Nanos now_;
    std::vector<uint32_t> slots_;
    std::vector<uint32_t> sold_;     // jobs to which places are sold ahead
    std::vector<Planned> machines_;  // in order of choice
    NamedRooms named_;
};

}  // namespace

std::unique_ptr<Algorithm> make_easy() {
    return std::make_unique<Backfilling>(BatchRule{BatchOrder::arrival, 1});
}
std::unique_ptr<Algorithm> make_sjf() {
    return std::make_unique<Backfilling>(BatchRule{BatchOrder::shortest, 1});
}
std::unique_ptr<Algorithm> make_wfp() {
    return std::make_unique<Backfilling>(BatchRule{BatchOrder::wfp, 1});
}
std::unique_ptr<Algorithm> make_conservative() {
    return std::make_unique<Backfilling>(BatchRule{BatchOrder::arrival, conservative_depth});
}

}  // namespace souk::market
