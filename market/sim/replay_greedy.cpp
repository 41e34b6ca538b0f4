// SPDX-License-Identifier: GPL-2.0-or-later
// Greedy migration on one machine, without walking over who runs and who waits. With A(r) the processors that those
// ranked before r leave, exactly the jobs with procs <= A(r) run. An end or an arrival at rank r changes nothing before
// r. From there the first waiting job that fits into its A is admitted; if that overcommits the machine, the last
// running ones are put back (they alone can be the ones that no longer fit, as A falls with the rank by what is held),
// and the pass goes on with them among the waiting. A job that was put back and admitted in one pass never stopped.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <queue>

#include "kernel/base/check.hpp"
#include "market/sim/ranked_procs.hpp"
#include "market/sim/replay.hpp"

namespace souk::sim {
namespace {

class Greedy {
  public:
    Greedy(std::span<const ReplayJob> jobs, int64_t cpus, const ReplayTerms& terms)
        : jobs_(jobs), terms_(terms), free_(cpus), cpus_(cpus), rank_(jobs.size()), order_(jobs.size()),
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
            int32_t from = RankedProcs::none;
            for (; !timers_.empty() && timers_.top().end_s == now_; timers_.pop()) {
                const uint32_t i = timers_.top().job;
                if (out_.end_s[i] != now_) continue;
                running_.remove(rank_[i]);
                free_ += jobs_[i].procs;
                --busy_;
                from = std::min(from, rank_[i]);
            }
            for (; next < jobs_.size() && jobs_[next].submit_s == now_; ++next) {
                const auto i = static_cast<uint32_t>(next);
                // Free processors that nobody who waits can use: a lone arrival takes of them and changes nothing else.
                const bool alone = next + 1 == jobs_.size() || jobs_[next + 1].submit_s != now_;
                if (alone && from == RankedProcs::none && jobs_[i].procs <= free_) {
                    hold(rank_[i], i);
                    start(i);
                    continue;
                }
                waiting_.add(rank_[i], jobs_[i].procs);
                from = std::min(from, rank_[i]);
            }
            if (from != RankedProcs::none) allocate(from);
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

    // Descending values; the sort is stable, and jobs are by arrival, so equal values go by arrival, then place in the
    // log. A radix sort: values are few bits apart, and comparing would cost a tenth of the whole replay.
    void order_by_value() {
        constexpr int digit_bits = 11;
        int64_t high = INT64_MIN, low = INT64_MAX;
        for (const Money v : terms_.value) high = std::max(high, v.micro), low = std::min(low, v.micro);
        std::iota(order_.begin(), order_.end(), 0u);
        std::vector<uint32_t> next(order_.size());
        for (int shift = 0; !order_.empty() && (high - low) >> shift != 0; shift += digit_bits) {
            const auto digit = [&](uint32_t i) {
                return static_cast<size_t>((high - terms_.value[i].micro) >> shift & ((1 << digit_bits) - 1));
            };
            size_t begins[(1 << digit_bits) + 1] = {};
            for (const uint32_t i : order_) ++begins[digit(i) + 1];
            std::partial_sum(std::begin(begins), std::end(begins), std::begin(begins));
            for (const uint32_t i : order_) next[begins[digit(i)]++] = i;
            order_.swap(next);
        }
    }

    void drop_void_timers() {
        while (!timers_.empty() && out_.end_s[timers_.top().job] != timers_.top().end_s) timers_.pop();
    }

    void hold(int32_t rank, uint32_t i) {
        running_.add(rank, jobs_[i].procs);
        free_ -= jobs_[i].procs;
    }

    void allocate(int32_t from) {
        // `left` is A of the rank where the search goes on, an upper bound of A behind it.
        if (waiting_.empty()) return;
        int64_t left = cpus_ - running_.procs_before(from);
        for (int32_t r = from; (r = waiting_.first(r, left)) != RankedProcs::none; ++r) {
            const uint32_t i = order_[r];
            left = cpus_ - running_.procs_before(r);
            if (jobs_[i].procs > left) continue;
            left -= jobs_[i].procs;
            waiting_.remove(r);
            hold(r, i);
            if (out_.end_s[i] == not_running) admitted_.push_back(i);
            while (free_ < 0) put_back(running_.last());
        }
        for (const uint32_t i : put_back_)
            if (!running_.has(rank_[i])) freeze(i);
        for (const uint32_t i : admitted_) start(i);
        put_back_.clear();
        admitted_.clear();
    }

    void put_back(int32_t rank) {
        const uint32_t i = order_[rank];
        running_.remove(rank);
        free_ += jobs_[i].procs;
        waiting_.add(rank, jobs_[i].procs);
        if (out_.end_s[i] != not_running) put_back_.push_back(i);
    }

    void freeze(uint32_t i) {
        // What was left when it went on, less the time since; time in which it was being thawed is no progress.
        left_s_[i] = static_cast<int32_t>(std::min<int64_t>(left_s_[i], out_.end_s[i] - now_));
        out_.end_s[i] = not_running;
        --busy_;
        ++out_.freezes;
        frozen_at_[i] = now_;
    }

    void start(uint32_t i) {
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
    std::vector<int32_t> rank_;             // of a job
    std::vector<uint32_t> order_;           // the job of a rank
    std::vector<int32_t> left_s_;           // run time left when it last went on or stopped
    std::vector<int64_t> frozen_at_;
    RankedProcs waiting_, running_;
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
    std::vector<uint32_t> put_back_, admitted_;
    Schedule out_;
};

}  // namespace

Schedule replay_greedy_migration(std::span<const ReplayJob> jobs, int64_t cpus, const ReplayTerms& terms) {
    MUST(terms.value.size() == jobs.size() && (terms.carry_s.empty() || terms.carry_s.size() == jobs.size()));
    return Greedy(jobs, cpus, terms).run();
}

}  // namespace souk::sim
