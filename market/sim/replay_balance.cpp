// SPDX-License-Identifier: GPL-2.0-or-later
// Two parts. Time: each process's progress is one clock for all (the machine is shared evenly), so
// a job's end is a fixed reading of it. Places: every processor has L or L + 1 processes; kept in
// one array, first the low ones, so that a change of load is a swap at the boundary.
#include <algorithm>
#include <numeric>
#include <queue>

#include "market/sim/replay.hpp"

namespace souk::sim {
namespace {

class Places {
  public:
    explicit Places(int64_t cpus) : order_(cpus), at_(cpus), first_(cpus, none), low_(cpus) {
        std::iota(order_.begin(), order_.end(), 0u);
        std::iota(at_.begin(), at_.end(), 0u);
    }

    // The head of the job's list of processes.
    uint32_t arrive(int32_t procs) {
        uint32_t of_job = none;
        for (; procs > 0; --procs) {
            if (low_ == 0) low_ = order_.size();  // all are at L + 1: the new L
            const uint32_t cpu = order_[--low_];
            of_job = put(cpu, of_job);
        }
        return of_job;
    }

    // Returns how many processes had to move.
    uint64_t leave(uint32_t of_job) {
        uint64_t moves = 0;
        while (of_job != none) {
            const uint32_t process = of_job;
            of_job = processes_[process].next_of_job;
            const uint32_t cpu = processes_[process].cpu;
            unlink(process);
            unused_.push_back(process);
            if (at_[cpu] >= low_) {  // it was at L + 1
                swap_to(cpu, low_++);
            } else if (low_ == order_.size()) {  // all were at L: it alone is at L - 1, the new L
                swap_to(cpu, 0);
                low_ = 1;
            } else {  // two below the fullest: one of theirs comes over
                const uint32_t full = order_[low_++];
                const uint32_t moved = first_[full];
                unlink(moved);
                link(moved, cpu);
                ++moves;
            }
        }
        return moves;
    }

  private:
    static constexpr uint32_t none = UINT32_MAX;
    struct Process {
        uint32_t cpu, next_of_job, next, previous;  // the latter two on its processor
    };

    uint32_t put(uint32_t cpu, uint32_t next_of_job) {
        uint32_t process;
        if (unused_.empty()) {
            process = static_cast<uint32_t>(processes_.size());
            processes_.emplace_back();
        } else {
            process = unused_.back();
            unused_.pop_back();
        }
        processes_[process].next_of_job = next_of_job;
        link(process, cpu);
        return process;
    }
    void link(uint32_t process, uint32_t cpu) {
        Process& p = processes_[process];
        p.cpu = cpu;
        p.previous = none;
        p.next = first_[cpu];
        if (p.next != none) processes_[p.next].previous = process;
        first_[cpu] = process;
    }
    void unlink(uint32_t process) {
        const Process& p = processes_[process];
        (p.previous == none ? first_[p.cpu] : processes_[p.previous].next) = p.next;
        if (p.next != none) processes_[p.next].previous = p.previous;
    }
    void swap_to(uint32_t cpu, size_t to) {
        const size_t from = at_[cpu];
        std::swap(order_[from], order_[to]);
        at_[order_[from]] = static_cast<uint32_t>(from);
        at_[order_[to]] = static_cast<uint32_t>(to);
    }

    std::vector<uint32_t> order_, at_;  // processors, low ones first; where each is in it
    std::vector<uint32_t> first_;       // of the processes on a processor, the newest
    std::vector<Process> processes_;
    std::vector<uint32_t> unused_;
    size_t low_;  // processors at L; the others are at L + 1
};

// Progress of every process since the beginning, in 2^-20 s.
constexpr int ticks_log2 = 20;

struct Running {
    int64_t done_at;  // in progress
    uint32_t job, processes;
    bool operator>(const Running& o) const {
        return done_at != o.done_at ? done_at > o.done_at : job > o.job;
    }
};

}  // namespace

Schedule replay_balance(std::span<const ReplayJob> jobs, int64_t cpus) {
    Schedule out;
    out.end_s.resize(jobs.size());
    Places places(cpus);
    std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
    int64_t now = 0, progress = 0, processes = 0;
    size_t next = 0;
    // Whole seconds until progress reaches a reading; and the progress of whole seconds, rounded
    // down alike.
    const auto seconds_to = [&](int64_t reading) {
        const __int128 left = reading - progress;
        const int64_t sharing = std::max(processes, cpus);
        return static_cast<int64_t>(((left * sharing + cpus - 1) / cpus + (1 << ticks_log2) - 1) >>
                                    ticks_log2);
    };
    const auto progress_in = [&](int64_t seconds) {
        const int64_t sharing = std::max(processes, cpus);
        return static_cast<int64_t>((static_cast<__int128>(seconds) << ticks_log2) * cpus /
                                    sharing);
    };
    while (next < jobs.size() || !running.empty()) {
        int64_t t = next < jobs.size() ? jobs[next].submit_s : INT64_MAX;
        if (!running.empty()) t = std::min(t, now + seconds_to(running.top().done_at));
        progress += progress_in(t - now);
        now = t;
        for (; !running.empty() && running.top().done_at <= progress; running.pop()) {
            out.end_s[running.top().job] = now;
            processes -= jobs[running.top().job].procs;
            out.migrations += places.leave(running.top().processes);
        }
        for (; next < jobs.size() && jobs[next].submit_s == now; ++next) {
            const ReplayJob& job = jobs[next];
            processes += job.procs;
            running.push({progress + (static_cast<int64_t>(job.run_s) << ticks_log2),
                          static_cast<uint32_t>(next), places.arrive(job.procs)});
        }
    }
    return out;
}

}  // namespace souk::sim
