// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/coallocation_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>
#include <tuple>

#include "kernel/base/check.hpp"

namespace souk::sim::coallocation {
namespace {

// Kinds of events. Events of the same instant are handled in this order.
enum class What : uint8_t { job_ends, local_ends, local_comes, job_comes, notice };

struct Event {
    int64_t at_ms;
    What what;
    uint32_t index;
    uint32_t version;  // job_ends: of the job's plan; an older one is void
    bool operator>(const Event& o) const {
        return std::tie(at_ms, what, index) > std::tie(o.at_ms, o.what, o.index);
    }
};

class Run {
  public:
    Run(const World& world, Policy& policy) : world_(world), policy_(policy) {
        for (const Cluster& c : world.clusters) idle_.push_back(c.cpus);
        progress_.resize(world.jobs.size());
        plans_.resize(world.jobs.size());
        out_.jobs.resize(world.jobs.size());
        local_queues_.resize(world.clusters.size());
    }

    Result<Outcome> go() {
        for (uint32_t i = 0; i < world_.locals.size(); ++i)
            events_.push({world_.locals[i].submit_ms, What::local_comes, i, 0});
        if (world_.backlog == 0)
            for (uint32_t i = 0; i < world_.jobs.size(); ++i)
                events_.push({world_.jobs[i].submit_ms, What::job_comes, i, 0});
        else
            events_.push({0, What::notice, 0, 0});
        while (done_ < world_.jobs.size()) {
            if (events_.empty())
                return fail(fmt::format("{} jobs wait for ever at {} ms", queue_.size(), now_));
            now_ = events_.top().at_ms;
            bool act = false;
            while (!events_.empty() && events_.top().at_ms == now_) {
                const Event event = events_.top();
                events_.pop();
                act |= happens(event);
            }
            start_locals();
            if (act) decide();
        }
        out_.end_ms = now_;
        return std::move(out_);
    }

  private:
    // The run knows this about a job; its policy does not see it.
    struct Plan {
        int64_t run_left_ms = 0, estimate_left_ms = 0;  // inside one cluster
        int64_t pause_left_ms = 0;                      // before it goes on
        int64_t since_ms = 0;                           // holds its place
        uint32_t version = 0;
    };
    struct LocalHeld {
        int64_t until_ms;
        uint32_t local;
    };

    // Carries the event out, and says whether the policy is to act after it.
    bool happens(const Event& event) {
        switch (event.what) {
            case What::job_ends:
                if (plans_[event.index].version == event.version) return end_job(event.index);
                return false;
            case What::local_ends: return end_local(event.index);
            case What::local_comes:
                local_queues_[world_.locals[event.index].cluster].push_back(event.index);
                return false;
            case What::job_comes: come(event.index); return true;
            case What::notice: return true;
        }
        return false;
    }
    bool freed() {
        if (world_.notice_ms == 0) return true;
        events_.push({now_ + world_.notice_ms, What::notice, 0, 0});
        return false;
    }
    void come(uint32_t job) {
        const Job& j = world_.jobs[job];
        progress_[job].state = Progress::State::waiting;
        progress_[job].came_ms = out_.jobs[job].came_ms = out_.last_came_ms = now_;
        progress_[job].left_ms = j.estimate_ms;
        plans_[job] = {j.run_ms, j.estimate_ms, j.overhead_ms, now_, 0};
        queue_.push_back(job);
    }
    bool end_job(uint32_t job) {
        leave(job);
        progress_[job].state = Progress::State::done;
        out_.jobs[job].end_ms = now_;
        running_.erase(std::find(running_.begin(), running_.end(), job));
        ++done_;
        return freed();
    }
    bool end_local(uint32_t local) {
        const Local& l = world_.locals[local];
        idle_[l.cluster] += l.cpus;
        held_.erase(std::find_if(held_.begin(), held_.end(),
                                 [&](const LocalHeld& h) { return h.local == local; }));
        return freed();
    }
    void start_locals() {
        for (uint32_t c = 0; c < local_queues_.size(); ++c)
            for (std::deque<uint32_t>& queue = local_queues_[c]; !queue.empty();) {
                const uint32_t local = queue.front();
                const Local& l = world_.locals[local];
                if (l.cpus > idle_[c]) break;
                queue.pop_front();
                idle_[c] -= l.cpus;
                held_.push_back({now_ + l.run_ms, local});
                out_.locals.push_back({local, now_, now_ + l.run_ms, {{c, l.cpus}}});
                events_.push({now_ + l.run_ms, What::local_ends, local, 0});
            }
    }

    void decide() {
        for (;;) {
            fill_backlog();
            const std::vector<Order> orders = policy_.act(view());
            apply(orders);
            if (world_.backlog == 0 || orders.empty()) break;
        }
        const std::optional<int64_t> wake = policy_.wake_ms();
        if (wake && *wake > now_) events_.push({*wake, What::notice, 0, 0});
    }
    void fill_backlog() {
        if (world_.backlog == 0) return;
        while (queue_.size() < world_.backlog && next_ < world_.jobs.size()) come(next_++);
    }
    View view() {
        background_.clear();
        for (const LocalHeld& h : held_)
            background_.push_back(
                {h.until_ms, {{world_.locals[h.local].cluster, world_.locals[h.local].cpus}}});
        for (const uint32_t job : running_) see_running(job);
        for (const uint32_t job : queue_)
            progress_[job].still_ms = still_before(job) + now_ - plans_[job].since_ms;
        return {now_, world_.jobs, progress_, queue_, running_, idle_, background_, &world_.terms};
    }
    // Tells the policy how much work is left by the estimate, and until when the job stays.
    void see_running(uint32_t job) {
        Progress& p = progress_[job];
        const Plan& plan = plans_[job];
        const int64_t resumes = plan.since_ms + plan.pause_left_ms;
        p.left_ms = std::max<int64_t>(1, plan.estimate_left_ms - ran_ms(job));
        p.until_ms = std::max(now_ + 1,
                              resumes + stretched_ms(plan.estimate_left_ms, p.where, world_.terms));
    }
    // Inside one cluster it would have run so long since it has this place.
    int64_t ran_ms(uint32_t job) const {
        const Plan& plan = plans_[job];
        const int64_t wall = now_ - plan.since_ms - plan.pause_left_ms;
        if (wall <= 0) return 0;
        const bool apart = spread(progress_[job].where) > 1;
        return apart ? wall * 1000 / world_.terms.slowdown : wall;
    }
    int64_t still_before(uint32_t job) const { return stills_.empty() ? 0 : stills_[job]; }

    // Frees the job's place, and notes how much work is left.
    void leave(uint32_t job) {
        Progress& p = progress_[job];
        Plan& plan = plans_[job];
        const int64_t ran = ran_ms(job);
        plan.run_left_ms = std::max<int64_t>(1, plan.run_left_ms - ran);
        plan.estimate_left_ms = std::max<int64_t>(1, plan.estimate_left_ms - ran);
        plan.pause_left_ms = std::max<int64_t>(0, plan.since_ms + plan.pause_left_ms - now_);
        give(idle_, p.where);
        if (plan.since_ms < now_) out_.stretches.push_back({job, plan.since_ms, now_, p.where});
        p.where.clear();
        plan.since_ms = now_;
        ++plan.version;
    }
    void apply(const std::vector<Order>& orders) {
        std::vector<Allocation> before(orders.size());
        for (size_t i = 0; i < orders.size(); ++i) {
            const uint32_t job = orders[i].job;
            if (progress_[job].state != Progress::State::running) continue;
            before[i] = progress_[job].where;
            leave(job);
        }
        for (size_t i = 0; i < orders.size(); ++i) place(orders[i], before[i]);
        for (const int64_t n : idle_) MUST(n >= 0 && "a policy that counts what is idle");
    }
    void place(const Order& order, const Allocation& before) {
        const uint32_t job = order.job;
        Progress& p = progress_[job];
        Plan& plan = plans_[job];
        if (order.where.empty()) return freeze(job);
        MUST(answers(order.where, world_.jobs[job]) && "a place that the request allows");
        switch (p.state) {
            case Progress::State::waiting: out_.jobs[job].start_ms = now_; break;
            case Progress::State::frozen:
                plan.pause_left_ms += std::max<int64_t>(0, p.thaw_from_ms - now_);
                plan.pause_left_ms += world_.terms.thaw_ms;
                break;
            case Progress::State::running: {
                const uint32_t moved = changed(before, order.where);
                out_.jobs[job].moves += moved;
                if (moved > 0) plan.pause_left_ms += world_.terms.move_ms;
                break;
            }
            default: MUST(false && "a job that is there");
        }
        if (p.state != Progress::State::running) dequeue(job);
        p.state = Progress::State::running;
        p.where = order.where;
        take(idle_, p.where);
        plan.since_ms = now_;
        events_.push(
            {now_ + plan.pause_left_ms + stretched_ms(plan.run_left_ms, p.where, world_.terms),
             What::job_ends, job, plan.version});
        out_.running_max = std::max(out_.running_max, static_cast<uint32_t>(running_.size()));
    }
    static uint32_t changed(const Allocation& before, const Allocation& after) {
        if (before.size() != after.size()) return static_cast<uint32_t>(after.size());
        uint32_t n = 0;
        for (size_t i = 0; i < after.size(); ++i) n += before[i] != after[i];
        return n;
    }
    void dequeue(uint32_t job) {
        if (stills_.empty()) stills_.resize(world_.jobs.size());
        stills_[job] += now_ - plans_[job].since_ms;
        queue_.erase(std::find(queue_.begin(), queue_.end(), job));
        running_.push_back(job);
    }
    void freeze(uint32_t job) {
        Progress& p = progress_[job];
        MUST(p.state == Progress::State::running && "only who runs is frozen");
        ++out_.jobs[job].freezes;
        p.state = Progress::State::frozen;
        p.thaw_from_ms = now_ + world_.terms.freeze_ms;
        p.left_ms = plans_[job].estimate_left_ms;
        running_.erase(std::find(running_.begin(), running_.end(), job));
        // All waiting jobs stand in the order of their arrival, so this one returns to its old
        // rank.
        queue_.insert(std::lower_bound(queue_.begin(), queue_.end(), job), job);
    }

    const World& world_;
    Policy& policy_;
    int64_t now_ = 0;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    Idle idle_;
    std::vector<Progress> progress_;
    std::vector<Plan> plans_;
    std::vector<int64_t> stills_;
    std::vector<uint32_t> queue_, running_;
    std::vector<std::deque<uint32_t>> local_queues_;  // by cluster
    std::vector<LocalHeld> held_;
    std::vector<Holding> background_;
    uint32_t next_ = 0;  // with a backlog: who comes next
    size_t done_ = 0;
    Outcome out_;
};

Status check_world(const World& world) {
    if (world.clusters.empty()) return fail("no cluster");
    for (size_t i = 0; i < world.jobs.size(); ++i) {
        const Job& job = world.jobs[i];
        if (const Status ok = check(job, world.clusters); !ok)
            return wrap(fmt::format("job {}", i + 1), Error(ok.error()));
        if (i > 0 && job.submit_ms < world.jobs[i - 1].submit_ms)
            return fail(fmt::format("job {} comes before the one before it", i + 1));
    }
    for (size_t i = 0; i < world.locals.size(); ++i) {
        const Local& l = world.locals[i];
        if (l.cluster >= world.clusters.size() || l.cpus < 1 || l.run_ms < 1 ||
            l.cpus > world.clusters[l.cluster].cpus)
            return fail(fmt::format("background job {} fits no cluster", i + 1));
    }
    return {};
}

struct Mean {
    double sum = 0, squares = 0;
    size_t n = 0;
    void add(double x) { sum += x, squares += x * x, ++n; }
    double mean() const { return n > 0 ? sum / static_cast<double>(n) : 0; }
    // The standard deviation of a sample: it divides by n - 1.
    double deviation() const {
        if (n < 2) return 0;
        const auto count = static_cast<double>(n);
        return std::sqrt(std::max(0.0, (squares - sum * sum / count) / (count - 1)));
    }
};

double held_cpu_ms(std::span<const Stretch> stretches, int64_t from_ms, int64_t to_ms) {
    double out = 0;
    for (const Stretch& s : stretches) {
        const int64_t ms = std::min(s.to_ms, to_ms) - std::max(s.from_ms, from_ms);
        if (ms > 0) out += static_cast<double>(ms) * static_cast<double>(cpus_of(s.where));
    }
    return out;
}

double all_cpus(const World& world) {
    int64_t sum = 0;
    for (const Cluster& c : world.clusters) sum += c.cpus;
    return static_cast<double>(sum);
}

double seconds(int64_t ms) { return static_cast<double>(ms) / 1000; }

}  // namespace

Result<Outcome> run(const World& world, Policy& policy) {
    TRY(check_world(world));
    return Run(world, policy).go();
}

Status all_fit(const World& world, const Placement& placement) {
    Idle empty;
    for (const Cluster& c : world.clusters) empty.push_back(c.cpus);
    for (size_t i = 0; i < world.jobs.size(); ++i)
        if (!placement.place(world.jobs[i], empty))
            return fail(fmt::format("job {} of {} processors does not fit the empty clusters",
                                    i + 1, world.jobs[i].cpus));
    return {};
}

Figures figures_of(const World& world, const Outcome& outcome) {
    Figures out;
    Mean response, wait, run, overhead;
    for (size_t i = 0; i < world.jobs.size(); ++i) {
        const JobOutcome& job = outcome.jobs[i];
        const int64_t before = world.jobs[i].overhead_ms;
        response.add(seconds(job.end_ms - job.came_ms));
        wait.add(seconds(job.start_ms - job.came_ms));
        run.add(seconds(job.end_ms - job.start_ms - before));
        overhead.add(seconds(before));
        out.wait_max_s = std::max(out.wait_max_s, seconds(job.start_ms - job.came_ms));
        out.moves += job.moves;
        out.freezes += job.freezes;
    }
    out.response_s = response.mean(), out.response_sd_s = response.deviation();
    out.wait_s = wait.mean();
    out.run_s = run.mean(), out.run_sd_s = run.deviation();
    out.overhead_s = overhead.mean();
    const double whole = all_cpus(world) * static_cast<double>(outcome.end_ms);
    if (whole > 0) {
        out.utilisation = held_cpu_ms(outcome.stretches, 0, outcome.end_ms) / whole;
        out.background = held_cpu_ms(outcome.locals, 0, outcome.end_ms) / whole;
    }
    out.running_max = outcome.running_max;
    out.end_s = seconds(outcome.end_ms);
    return out;
}

double steady_utilisation(const World& world, const Outcome& outcome) {
    const int64_t to = outcome.last_came_ms, from = to / 10;
    if (to == from) return 0;
    return held_cpu_ms(outcome.stretches, from, to) /
           (all_cpus(world) * static_cast<double>(to - from));
}

}  // namespace souk::sim::coallocation
