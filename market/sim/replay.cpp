// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/replay.hpp"

#include <algorithm>
#include <queue>

namespace souk::sim {

Workload workload_of(const SwfTrace& trace, int64_t cpus, Procs procs, Estimates estimates) {
    Workload out;
    out.jobs.reserve(trace.jobs.size());
    bool sorted = true;
    for (size_t i = 0; i < trace.jobs.size(); ++i) {
        const SwfJob& job = trace.jobs[i];
        const int32_t first = procs == Procs::requested ? job.requested : job.allocated;
        const int32_t second = procs == Procs::requested ? job.allocated : job.requested;
        const int32_t width = first > 0 ? first : second;
        if (job.submit_s < 0) {
            ++out.dropped.unknown_submit;
        } else if (job.run_s < 0) {
            ++out.dropped.unknown_run;
        } else if (width <= 0) {
            ++out.dropped.no_procs;
        } else if (width > cpus) {
            ++out.dropped.too_large;
        } else {
            const int32_t run = std::max(job.run_s, 1);
            const int32_t estimate =
                estimates == Estimates::user ? std::max(run, job.requested_s) : run;
            sorted &= out.jobs.empty() || out.jobs.back().submit_s <= job.submit_s;
            out.jobs.push_back({job.submit_s, run, estimate, width, static_cast<uint32_t>(i)});
        }
    }
    if (!sorted)
        std::stable_sort(
            out.jobs.begin(), out.jobs.end(),
            [](const ReplayJob& a, const ReplayJob& b) { return a.submit_s < b.submit_s; });
    return out;
}

Schedule replay_fcfs(std::span<const ReplayJob> jobs, int64_t cpus) {
    struct Running {
        int64_t end_s;
        int32_t procs;
        bool operator>(const Running& o) const { return end_s > o.end_s; }
    };
    std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
    Schedule out;
    out.end_s.reserve(jobs.size());
    int64_t free = cpus, now = 0;
    for (const ReplayJob& job : jobs) {
        now = std::max(now, job.submit_s);
        // the machine holds the job alone, so the heap cannot run dry first
        while (free < job.procs) {
            now = std::max(now, running.top().end_s);
            free += running.top().procs;
            running.pop();
        }
        free -= job.procs;
        running.push({now + job.run_s, job.procs});
        out.end_s.push_back(now + job.run_s);
    }
    return out;
}

ReplayTerms terms_of(const SwfTrace& trace, const Workload& workload, const Distribution& values,
                     uint64_t seed, int64_t disk_mb_per_s, int64_t memory_mb) {
    ReplayTerms out;
    Rng rng(seed);
    out.value.reserve(workload.jobs.size());
    for (size_t i = 0; i < workload.jobs.size(); ++i)
        out.value.push_back(Money::units(values.draw(rng, 1)));
    if (disk_mb_per_s <= 0) return out;
    out.carry_s.reserve(workload.jobs.size());
    const int64_t rate = disk_mb_per_s * 1024;  // KB per second
    for (const ReplayJob& job : workload.jobs) {
        const SwfJob& log = trace.jobs[job.source];
        const int64_t kb = log.used_kb > 0        ? log.used_kb
                           : log.requested_kb > 0 ? log.requested_kb
                                                  : memory_mb * 1024;
        out.carry_s.push_back(
            static_cast<int32_t>(std::min<int64_t>(INT32_MAX, (kb * job.procs + rate - 1) / rate)));
    }
    return out;
}

ReplayMetrics metrics_of(std::span<const ReplayJob> jobs, const Schedule& schedule, int64_t cpus) {
    ReplayMetrics m;
    if (jobs.empty()) return m;
    double wait = 0, slowdown = 0, bounded = 0, work = 0;
    int64_t last = 0;
    for (size_t i = 0; i < jobs.size(); ++i) {
        const int64_t stay = schedule.end_s[i] - jobs[i].submit_s;
        const auto run = static_cast<double>(jobs[i].run_s);
        wait += static_cast<double>(stay - jobs[i].run_s);
        slowdown += static_cast<double>(stay) / run;
        bounded += std::max(1.0, static_cast<double>(stay) / std::max(run, 10.0));
        work += run * jobs[i].procs;
        last = std::max(last, schedule.end_s[i]);
    }
    const auto n = static_cast<double>(jobs.size());
    m.jobs = jobs.size();
    m.mean_wait_s = wait / n;
    m.mean_slowdown = slowdown / n;
    m.mean_bounded_slowdown = bounded / n;
    m.makespan_s = last - jobs.front().submit_s;
    m.utilisation = work / (static_cast<double>(cpus) * static_cast<double>(m.makespan_s));
    return m;
}

}  // namespace souk::sim
