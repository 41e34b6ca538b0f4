// SPDX-License-Identifier: GPL-2.0-or-later
// EASY without rescanning: while the head of the queue stays blocked and nothing ends, its shadow
// time cannot change and a job that could not backfill before cannot now (less time is left before
// the shadow, and no processor more is free). So an arrival is tried alone, and only an end looks
// at the queue again, in blocks that one comparison can skip.
#include <algorithm>
#include <climits>
#include <queue>

#include "market/sim/release_profile.hpp"
#include "market/sim/replay.hpp"

namespace souk::sim {
namespace {

// The waiting jobs in order. Taken jobs leave holes; blocks know the least processors and estimate
// of theirs.
class WaitQueue {
  public:
    struct Limits {
        int64_t free;      // processors free now
        int64_t extra;     // of them, usable past the shadow time
        int64_t window_s;  // time left until the shadow time
        bool admits(int64_t procs, int64_t estimate_s) const {
            return procs <= free && (procs <= extra || estimate_s <= window_s);
        }
    };

    bool empty() const { return waiting_ == 0; }
    uint32_t head() const { return job_[head_]; }

    void push(uint32_t index, const ReplayJob& job) {
        if (job_.size() % block == 0) {
            least_procs_.push_back(hole);
            least_estimate_.push_back(hole);
        }
        procs_.push_back(job.procs);
        estimate_.push_back(job.estimate_s);
        job_.push_back(index);
        least_procs_.back() = std::min(least_procs_.back(), job.procs);
        least_estimate_.back() = std::min(least_estimate_.back(), job.estimate_s);
        ++waiting_;
    }

    void pop_head() {
        take(head_);
        while (head_ < job_.size() && procs_[head_] == hole) ++head_;
        if (head_ > 4096 && head_ > job_.size() / 2) compact();
    }
    void pop_back() { take(job_.size() - 1); }

    // Offers each job after the head that the limits admit, in order; `start` may tighten them.
    template <class Start>
    void backfill(Limits& limits, Start start) {
        for (size_t b = head_ / block; b < least_procs_.size() && limits.free > 0; ++b) {
            if (!limits.admits(least_procs_[b], least_estimate_[b])) continue;
            const size_t end = std::min(job_.size(), (b + 1) * block);
            for (size_t i = std::max(b * block, head_ + 1); i < end; ++i) {
                if (!limits.admits(procs_[i], estimate_[i])) continue;
                const uint32_t index = job_[i];
                take(i);
                start(index);
            }
        }
        if (job_.size() > 4096 && waiting_ < job_.size() / 2) compact();
    }

  private:
    static constexpr size_t block = 64;
    static constexpr int32_t hole = INT32_MAX;  // no machine has as many processors

    void take(size_t i) {
        const int32_t procs = procs_[i], estimate = estimate_[i];
        procs_[i] = estimate_[i] = hole;
        --waiting_;
        const size_t b = i / block;
        const size_t from = b * block, end = std::min(job_.size(), from + block);
        if (procs == least_procs_[b])
            least_procs_[b] = *std::min_element(&procs_[from], &procs_[from] + (end - from));
        if (estimate == least_estimate_[b])
            least_estimate_[b] =
                *std::min_element(&estimate_[from], &estimate_[from] + (end - from));
    }

    void compact() {
        WaitQueue dense;
        ReplayJob job;
        for (size_t i = head_; i < job_.size(); ++i) {
            if (procs_[i] == hole) continue;
            job.procs = procs_[i];
            job.estimate_s = estimate_[i];
            dense.push(job_[i], job);
        }
        *this = std::move(dense);
    }

    std::vector<int32_t> procs_, estimate_;
    std::vector<uint32_t> job_;
    std::vector<int32_t> least_procs_, least_estimate_;  // per block
    size_t head_ = 0, waiting_ = 0;
};

class Easy {
  public:
    Easy(std::span<const ReplayJob> jobs, int64_t cpus) : jobs_(jobs), free_(cpus) {
        out_.end_s.resize(jobs.size());
    }

    Schedule run() {
        size_t next = 0;
        while (next < jobs_.size() || !queue_.empty()) {
            now_ = next < jobs_.size() ? jobs_[next].submit_s : INT64_MAX;
            if (!running_.empty()) now_ = std::min(now_, running_.top().end_s);
            const bool ended = release();
            const bool was_blocked = !queue_.empty() && !ended;
            for (; next < jobs_.size() && jobs_[next].submit_s == now_; ++next) {
                queue_.push(static_cast<uint32_t>(next), jobs_[next]);
                if (was_blocked) offer_last(static_cast<uint32_t>(next));
            }
            if (!was_blocked) schedule();
        }
        return std::move(out_);
    }

  private:
    struct Running {
        int64_t end_s, expected_s;
        int32_t procs;
        bool operator>(const Running& o) const { return end_s > o.end_s; }
    };

    bool release() {
        bool ended = false;
        for (; !running_.empty() && running_.top().end_s == now_; running_.pop()) {
            free_ += running_.top().procs;
            profile_.remove(running_.top().expected_s, running_.top().procs);
            ended = true;
        }
        shadow_known_ &= !ended;
        return ended;
    }

    void start(uint32_t index) {
        const ReplayJob& job = jobs_[index];
        free_ -= job.procs;
        running_.push({now_ + job.run_s, now_ + job.estimate_s, job.procs});
        profile_.add(now_ + job.estimate_s, job.procs);
        out_.end_s[index] = now_ + job.run_s;
    }

    // A backfilled job leaves the head's shadow time as it is: it ends by then, or takes of the
    // extra processors.
    void start_backfilled(uint32_t index) {
        if (now_ + jobs_[index].estimate_s > shadow_s_) extra_ -= jobs_[index].procs;
        start(index);
    }

    WaitQueue::Limits limits() {
        if (!shadow_known_) {
            const int32_t need = jobs_[queue_.head()].procs;
            const ReleaseProfile::Release release = profile_.earliest(free_, need);
            shadow_s_ = release.time_s;
            extra_ = release.free - need;
            shadow_known_ = true;
        }
        return {free_, extra_, shadow_s_ - now_};
    }

    void offer_last(uint32_t index) {
        const ReplayJob& job = jobs_[index];
        if (job.procs > free_ || !limits().admits(job.procs, job.estimate_s)) return;
        queue_.pop_back();
        start_backfilled(index);
    }

    void schedule() {
        while (!queue_.empty() && jobs_[queue_.head()].procs <= free_) {
            start(queue_.head());
            queue_.pop_head();
            shadow_known_ = false;
        }
        if (queue_.empty() || free_ == 0) return;
        WaitQueue::Limits limit = limits();
        queue_.backfill(limit, [&](uint32_t index) {
            start_backfilled(index);
            limit = limits();
        });
    }

    std::span<const ReplayJob> jobs_;
    int64_t now_ = 0, free_;
    std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
    ReleaseProfile profile_;
    WaitQueue queue_;
    bool shadow_known_ = false;
    int64_t shadow_s_ = 0, extra_ = 0;
    Schedule out_;
};

}  // namespace

Schedule replay_easy(std::span<const ReplayJob> jobs, int64_t cpus) {
    return Easy(jobs, cpus).run();
}

}  // namespace souk::sim
