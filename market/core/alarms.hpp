// SPDX-License-Identifier: GPL-2.0-or-later
// Alarms: when time changes something about a job: one alarm a job, the first of all. The alarm is
// kept in the job itself as well, so that another takes its place. Pure; part of Market.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

class Alarms {
  public:
    // `alarm`: the job's own; never(): none.
    void set(Nanos& alarm, const JobId& id, Nanos at) {
        if (alarm == at) return;
        if (alarm != Nanos::never()) all_.erase({alarm, id});
        if (at != Nanos::never()) all_.insert({at, id});
        alarm = at;
    }
    // The first that is due by now; its alarm is to be set anew. nullopt: none is.
    std::optional<JobId> due(Nanos now) const {
        if (all_.empty() || all_.begin()->first > now) return std::nullopt;
        return all_.begin()->second;
    }
    Nanos next() const { return all_.empty() ? Nanos::never() : all_.begin()->first; }
    size_t size() const { return all_.size(); }

  private:
    std::set<std::pair<Nanos, JobId>> all_;
};

}  // namespace souk::market
