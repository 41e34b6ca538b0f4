// SPDX-License-Identifier: GPL-2.0-or-later
// Greedy migration on one machine. With A(r) the processors that those ranked before r leave,
// exactly the jobs with procs <= A(r) run. An end or an arrival at rank r changes nothing before r;
// behind it, whole blocks of jobs in which nobody's answer changes are skipped.
#include <algorithm>
#include <numeric>
#include <queue>

#include "kernel/base/check.hpp"
#include "market/core/radix_sort.hpp"
#include "market/sim/ranked_jobs.hpp"
#include "market/sim/replay.hpp"

namespace souk::sim {
namespace {

class Greedy {
  public:
    Greedy(std::span<const ReplayJob> jobs, int64_t cpus, const ReplayTerms& terms)
        : jobs_(jobs),
          terms_(terms),
          free_(cpus),
          cpus_(cpus),
          rank_(jobs.size()),
          order_(jobs.size()),
          left_s_(jobs.size()) {
        order_by_value();
        for (size_t r = 0; r < order_.size(); ++r) rank_[order_[r]] = static_cast<int32_t>(r);
        for (size_t i = 0; i < jobs.size(); ++i) left_s_[i] = jobs[i].run_s;
        out_.end_s.assign(jobs.size(), not_running);
        frozen_at_.assign(jobs.size(), never_frozen);
    }

    Schedule run() {
        size_t next = 0;
        while (next < jobs_.size() || busy_ > 0) {
            drop_void_timers();
            now_ = next < jobs_.size() ? jobs_[next].submit_s : INT64_MAX;
            if (!timers_.empty()) now_ = std::min(now_, timers_.top().end_s);
            int32_t from = RankedJobs::none;
            for (; !timers_.empty() && timers_.top().end_s == now_; timers_.pop()) {
                const uint32_t i = timers_.top().job;
                if (out_.end_s[i] != now_) continue;
                active_.remove(rank_[i]);
                free_ += jobs_[i].procs;
                --busy_;
                from = std::min(from, rank_[i]);
            }
            for (; next < jobs_.size() && jobs_[next].submit_s == now_; ++next) {
                const auto i = static_cast<uint32_t>(next);
                // Free processors that no waiting job can use. A job that arrives alone takes some
                // of them, and changes nothing else.
                const bool alone = next + 1 == jobs_.size() || jobs_[next + 1].submit_s != now_;
                const bool at_once = alone && from == RankedJobs::none && jobs_[i].procs <= free_;
                active_.add(rank_[i], jobs_[i].procs, at_once);
                if (at_once)
                    start(i);
                else
                    from = std::min(from, rank_[i]);
            }
            if (from == RankedJobs::none) continue;
            active_.settle(from, static_cast<int32_t>(cpus_), [&](int32_t rank, bool runs) {
                runs ? start(order_[rank]) : freeze(order_[rank]);
            });
        }
        return std::move(out_);
    }

  private:
    static constexpr int64_t not_running = -1;
    static constexpr int64_t never_frozen = INT64_MIN;

    struct Timer {
        int64_t end_s;
        uint32_t job;
        bool operator>(const Timer& o) const { return end_s > o.end_s; }
    };

    // Descending values; equal ones by arrival, then place in the log, which is how jobs are
    // numbered.
    void order_by_value() {
        std::iota(order_.begin(), order_.end(), 0u);
        market::radix_sort(
            order_, [&](uint32_t i) { return -terms_.value[i].micro; },
            [&](uint32_t a, uint32_t b) {
                return terms_.value[a] != terms_.value[b] ? terms_.value[a] > terms_.value[b]
                                                          : a < b;
            });
    }

    void drop_void_timers() {
        while (!timers_.empty() && out_.end_s[timers_.top().job] != timers_.top().end_s)
            timers_.pop();
    }

    void freeze(uint32_t i) {
        // The end moves away from now: the work left is the work left at the last start, less the
        // time since. The time in which the job was being thawed is no progress.
        left_s_[i] = static_cast<int32_t>(std::min<int64_t>(left_s_[i], out_.end_s[i] - now_));
        out_.end_s[i] = not_running;
        free_ += jobs_[i].procs;
        --busy_;
        ++out_.freezes;
        frozen_at_[i] = now_;
    }

    void start(uint32_t i) {
        free_ -= jobs_[i].procs;
        int64_t from = now_;
        if (frozen_at_[i] != never_frozen) {
            const int64_t carry = terms_.carry_s.empty() ? 0 : terms_.carry_s[i];
            ++out_.freezes;
            from = std::max(now_, frozen_at_[i] + carry) + carry;
        }
        out_.end_s[i] = from + left_s_[i];
        timers_.push({out_.end_s[i], i});
        ++busy_;
    }

    std::span<const ReplayJob> jobs_;
    const ReplayTerms& terms_;
    int64_t now_ = 0, free_, cpus_;
    size_t busy_ = 0;
    std::vector<int32_t> rank_;    // of a job
    std::vector<uint32_t> order_;  // the job of a rank
    std::vector<int32_t> left_s_;  // run time left when it last went on or stopped
    std::vector<int64_t> frozen_at_;
    RankedJobs active_;
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
    Schedule out_;
};

}  // namespace

Schedule replay_greedy_migration(std::span<const ReplayJob> jobs, int64_t cpus,
                                 const ReplayTerms& terms) {
    MUST(cpus >= 0 && cpus < RankedJobs::none);
    MUST(terms.value.size() == jobs.size() &&
         (terms.carry_s.empty() || terms.carry_s.size() == jobs.size()));
    return Greedy(jobs, cpus, terms).run();
}

}  // namespace souk::sim
