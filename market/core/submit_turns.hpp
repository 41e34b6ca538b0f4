// SPDX-License-Identifier: GPL-2.0-or-later
// SubmitTurns: jobs about which the operator's submit filter is to be asked, each once. Their homes
// take turns, and the users of one home do: a node that reports many users holds up nobody else's.
// A job for which there was no answer comes back after a pause that grows; a job that only waits
// for its turn has none. Bounded by the jobs of the market. Pure; owned by SubmitDesk.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"
#include "kernel/base/turn_queue.hpp"

namespace souk {

class SubmitTurns {
  public:
    static constexpr Nanos pause_least = Nanos::from_s(5), pause_most = Nanos::from_s(300);

    // The job waits for its turn, unless it does already.
    void add(const JobId& id, uint32_t uid) {
        if (!waits_.insert(id).second) return;
        const auto [of, is_new] = homes_.try_emplace(id.home, no_bound, no_bound);
        if (is_new) turns_.push_back(id.home);
        of->second.add(std::to_string(uid), id);
    }

    // The next one, taken out; nullopt: none waits.
    std::optional<JobId> next() {
        if (turns_.empty()) return std::nullopt;
        NodeName home = std::move(turns_.front());
        turns_.pop_front();
        const auto of = homes_.find(home);
        std::optional<JobId> id = of->second.next();
        if (of->second.size() == 0)
            homes_.erase(of);
        else
            turns_.push_back(std::move(home));
        if (id) waits_.erase(*id);
        return id;
    }

    // There was no answer: its turn comes again, and not at once.
    void later(const JobId& id, uint32_t uid, Nanos now) {
        Nanos& pause = pauses_[id];
        pause = std::clamp(Nanos{pause.ns * 2}, pause_least, pause_most);
        due_.emplace(now + pause, Due{id, uid});
    }
    // There was one, or nobody wants it any more.
    void settled(const JobId& id) { pauses_.erase(id); }

    // Those whose pause is over wait for their turn.
    void tick(Nanos now) {
        while (!due_.empty() && due_.begin()->first <= now) {
            const Due one = std::move(due_.begin()->second);
            due_.erase(due_.begin());
            add(one.id, one.uid);
        }
    }
    // When the next pause is over; never: nothing pauses.
    Nanos wakes() const { return due_.empty() ? Nanos::never() : due_.begin()->first; }

  private:
    static constexpr size_t no_bound = std::numeric_limits<size_t>::max();
    struct Due {
        JobId id;
        uint32_t uid = 0;
    };
    std::map<NodeName, TurnQueue<JobId>> homes_;  // each with its users; none is empty
    std::deque<NodeName> turns_;                  // each of homes_ once
    std::set<JobId> waits_;
    std::map<JobId, Nanos> pauses_;  // the last one of jobs that had no answer
    std::multimap<Nanos, Due> due_;
};

}  // namespace souk
