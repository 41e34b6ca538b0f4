// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/queue_policies.hpp"

#include <algorithm>

namespace souk::sim {
namespace {

class QueuePolicy : public Decider {
  public:
    QueuePolicy(std::span<const SimJob> jobs, std::span<const SimProvider> providers,
                bool backfills)
        : jobs_(jobs), providers_(providers), backfills_(backfills) {}

    Result<std::vector<Placement>> decide(std::span<const Told>, const MarketView& view) override {
        begin(view);
        bool blocked = false;
        for (const JobView& v : view.jobs) {
            if (v.provider != JobView::nowhere || !could_run(v.job)) continue;
            if (!blocked) {
                const size_t p = first_free(v.job);
                if (p < machines_.size()) {
                    start(v, p);
                    continue;
                }
                if (!backfills_) break;
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
    struct Machine {
        uint32_t provider;
        Room free;
        std::vector<Held> held;
    };

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
    const bool backfills_;
    int64_t now_s_ = 0;
    std::vector<Machine> machines_;  // in order of choice
    std::vector<Placement> out_;
    size_t reserved_ = SIZE_MAX;
    int64_t shadow_s_ = 0;
    Room extra_;  // beside the reservation, from the shadow time on
};

}  // namespace

MakeDecider queue_policy(std::string_view name) {
    if (std::find(std::begin(queue_policies), std::end(queue_policies), name) ==
        std::end(queue_policies))
        return {};
    return [easy = name == "easy"](
               std::span<const SimJob> jobs,
               std::span<const SimProvider> providers) -> Result<std::unique_ptr<Decider>> {
        return std::make_unique<QueuePolicy>(jobs, providers, easy);
    };
}

}  // namespace souk::sim
