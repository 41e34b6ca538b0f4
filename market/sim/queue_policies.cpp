// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/queue_policies.hpp"

#include <algorithm>
#include <tuple>

namespace souk::sim {
namespace {

enum class QueueOrder : uint8_t { arrival, shortest, wfp };
enum class Backfill : uint8_t { easy, conservative };
struct QueueRule {
    QueueOrder order;
    Backfill backfill;
};

class QueuePolicy : public Decider {
  public:
    QueuePolicy(std::span<const SimJob> jobs, std::span<const SimProvider> providers,
                QueueRule rule)
        : jobs_(jobs), providers_(providers), rule_(rule) {}

    Result<std::vector<Placement>> decide(std::span<const Told>, const MarketView& view) override {
        begin(view);
        const std::vector<JobView> queue = queue_of(view);
        if (rule_.backfill == Backfill::conservative) return reserve_all(queue);
        bool blocked = false;
        for (const JobView& v : queue) {
            if (!blocked) {
                const size_t p = first_free(v.job);
                if (p < machines_.size()) {
                    start(v, p);
                    continue;
                }
                reserve(v.job);
                blocked = true;
            } else if (const size_t p = first_beside(v); p < machines_.size()) {
                if (p == reserved_ && ends(v, p) > shadow_s_) extra_.take(jobs_[v.job]);
                start(v, p);
            }
        }
        return std::move(out_);
    }

  private:
    struct Room {
        int64_t cpus = 0, memory_mb = 0;
        bool holds(const SimJob& j) const { return cpus >= j.cpus && memory_mb >= j.memory_mb; }
        void take(const SimJob& j) { cpus -= j.cpus, memory_mb -= j.memory_mb; }
        void give(const SimJob& j) { cpus += j.cpus, memory_mb += j.memory_mb; }
    };
    struct Held {
        int64_t end_s;
        uint32_t job;
    };
    struct Step {  // of a plan: so much is free from then on, until the next step
        int64_t from_s;
        Room free;
    };
    struct Machine {
        uint32_t provider;
        Room free;
        std::vector<Held> held;
    };
    using Plan = std::vector<Step>;

    std::vector<JobView> queue_of(const MarketView& view) const {
        std::vector<JobView> queue;
        for (const JobView& v : view.jobs)
            if (v.provider == JobView::nowhere && could_run(v.job)) queue.push_back(v);
        const auto urgency = [&](const JobView& v) {
            const auto wait = static_cast<double>(now_s_ - jobs_[v.job].start_s);
            const double ratio = wait / std::max(1.0, static_cast<double>(v.work) / 100);
            return ratio * ratio * ratio * jobs_[v.job].cpus;
        };
        if (rule_.order == QueueOrder::shortest)
            std::ranges::stable_sort(queue, {}, &JobView::work);
        if (rule_.order == QueueOrder::wfp)
            std::ranges::stable_sort(queue, std::greater<>(), urgency);
        return queue;
    }

    // Each job by arrival has a reservation; the ones that may start now do.
    std::vector<Placement> reserve_all(const std::vector<JobView>& queue) {
        std::vector<Plan> plans;
        for (Machine& m : machines_) plans.push_back(plan_of(m));
        for (const JobView& v : queue) {
            size_t best = machines_.size();
            int64_t starts = INT64_MAX;
            for (size_t m = 0; m < machines_.size(); ++m) {
                const SimProvider& p = providers_[machines_[m].provider];
                if (!suits(machines_[m], v.job) || !Room{p.cpus, p.memory_mb}.holds(jobs_[v.job]))
                    continue;
                const int64_t at = earliest(plans[m], v.job, ends(v, m) - now_s_);
                if (at < starts) std::tie(starts, best) = std::tie(at, m);
            }
            if (best == machines_.size()) continue;
            reserve_in(plans[best], v.job, starts, starts + ends(v, best) - now_s_);
            if (starts <= now_s_) out_.push_back({v.job, machines_[best].provider});
        }
        return std::move(out_);
    }
    Plan plan_of(Machine& m) const {
        std::ranges::sort(m.held, {}, &Held::end_s);
        Plan plan = {{now_s_, m.free}};
        for (const Held& h : m.held) {
            Room more = plan.back().free;
            more.give(jobs_[h.job]);
            if (h.end_s > plan.back().from_s)
                plan.push_back({h.end_s, more});
            else
                plan.back().free = more;
        }
        return plan;
    }
    // The first time from which on it has room for so long. The last step has all of the machine.
    int64_t earliest(const Plan& plan, uint32_t job, int64_t lasts_s) const {
        size_t first = 0;
        for (size_t i = 0; i < plan.size(); ++i) {
            if (!plan[i].free.holds(jobs_[job]))
                first = i + 1;
            else if (i + 1 == plan.size() || plan[i + 1].from_s - plan[first].from_s >= lasts_s)
                return plan[first].from_s;
        }
        return INT64_MAX;
    }
    void reserve_in(Plan& plan, uint32_t job, int64_t from_s, int64_t to_s) const {
        for (const int64_t edge : {from_s, to_s}) {
            const auto next = std::ranges::upper_bound(plan, edge, {}, &Step::from_s);
            const Step before = *std::prev(next);
            if (before.from_s != edge) plan.insert(next, {edge, before.free});
        }
        for (Step& step : plan)
            if (step.from_s >= from_s && step.from_s < to_s) step.free.take(jobs_[job]);
    }

    void begin(const MarketView& view) {
        now_s_ = view.now_s;
        out_.clear();
        machines_.clear();
        for (const uint32_t p : view.providers)
            machines_.push_back({p, {providers_[p].cpus, providers_[p].memory_mb}, {}});
        std::stable_sort(
            machines_.begin(), machines_.end(), [&](const Machine& a, const Machine& b) {
                const SimProvider &x = providers_[a.provider], &y = providers_[b.provider];
                return x.speed != y.speed ? x.speed > y.speed : x.reserve < y.reserve;
            });
        for (const JobView& v : view.jobs) {
            if (v.provider == JobView::nowhere) continue;
            out_.push_back({v.job, v.provider});
            for (Machine& m : machines_)
                if (m.provider == v.provider) hold(m, v.job, v.end_s);
        }
    }
    void hold(Machine& m, uint32_t job, int64_t end_s) {
        m.free.take(jobs_[job]);
        m.held.push_back({end_s, job});
    }
    bool suits(const Machine& m, uint32_t job) const {
        return providers_[m.provider].reserve <= jobs_[job].value;
    }
    bool could_run(uint32_t job) const {
        return std::any_of(machines_.begin(), machines_.end(), [&](const Machine& m) {
            const SimProvider& p = providers_[m.provider];
            return suits(m, job) && Room{p.cpus, p.memory_mb}.holds(jobs_[job]);
        });
    }
    size_t first_free(uint32_t job) const {
        size_t m = 0;
        while (m < machines_.size() &&
               !(suits(machines_[m], job) && machines_[m].free.holds(jobs_[job])))
            ++m;
        return m;
    }
    int64_t ends(const JobView& v, size_t m) const {
        const int32_t speed = providers_[machines_[m].provider].speed;
        return now_s_ + (v.work + speed - 1) / speed;
    }
    // The first place where the job does not delay the one that has the reservation.
    size_t first_beside(const JobView& v) const {
        for (size_t m = 0; m < machines_.size(); ++m) {
            if (!suits(machines_[m], v.job) || !machines_[m].free.holds(jobs_[v.job])) continue;
            if (m != reserved_ || ends(v, m) <= shadow_s_ || extra_.holds(jobs_[v.job])) return m;
        }
        return machines_.size();
    }
    void start(const JobView& v, size_t m) {
        out_.push_back({v.job, machines_[m].provider});
        hold(machines_[m], v.job, ends(v, m));
    }
    // Finds where the job can start earliest and when, and how much room is left beside it then.
    void reserve(uint32_t job) {
        shadow_s_ = INT64_MAX;
        for (size_t m = 0; m < machines_.size(); ++m) {
            if (!suits(machines_[m], job)) continue;
            std::vector<Held>& held = machines_[m].held;
            std::sort(held.begin(), held.end(),
                      [](const Held& a, const Held& b) { return a.end_s < b.end_s; });
            Room room = machines_[m].free;
            for (size_t i = 0; i < held.size(); ++i) {
                room.give(jobs_[held[i].job]);
                // all jobs that end at the same time go together
                if (i + 1 < held.size() && held[i + 1].end_s == held[i].end_s) continue;
                if (!room.holds(jobs_[job])) continue;
                if (held[i].end_s < shadow_s_) {
                    shadow_s_ = held[i].end_s;
                    reserved_ = m;
                    extra_ = room;
                }
                break;
            }
        }
        if (shadow_s_ == INT64_MAX)
            reserved_ = SIZE_MAX;
        else
            extra_.take(jobs_[job]);
    }

    std::span<const SimJob> jobs_;
    std::span<const SimProvider> providers_;
    const QueueRule rule_;
    int64_t now_s_ = 0;
    std::vector<Machine> machines_;  // in order of choice
    std::vector<Placement> out_;
    size_t reserved_ = SIZE_MAX;
    int64_t shadow_s_ = 0;
    Room extra_;  // beside the reservation, from the shadow time on
};

}  // namespace

MakeDecider queue_policy(std::string_view name) {
    constexpr QueueRule rules[] = {{QueueOrder::arrival, Backfill::easy},
                                   {QueueOrder::shortest, Backfill::easy},
                                   {QueueOrder::wfp, Backfill::easy},
                                   {QueueOrder::arrival, Backfill::conservative}};
    static_assert(std::size(rules) == std::size(queue_policies));
    const auto* const found = std::ranges::find(queue_policies, name);
    if (found == std::end(queue_policies)) return {};
    return [rule = rules[found - std::begin(queue_policies)]](
               std::span<const SimJob> jobs,
               std::span<const SimProvider> providers) -> Result<std::unique_ptr<Decider>> {
        return std::make_unique<QueuePolicy>(jobs, providers, rule);
    };
}

bool knows_run_times(std::string_view name) {
    return std::ranges::find(queue_policies, name) != std::end(queue_policies);
}

}  // namespace souk::sim
