// SPDX-License-Identifier: GPL-2.0-or-later
// Settling: after a restart the market decides nothing before those have come back who were there,
// or a while is over. Pure; part of Market.
#pragma once

#include <map>

#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

class Settling {
  public:
    void begin(Nanos until) {
        on_ = true;
        end_ = until;
    }
    bool is_on() const { return on_; }
    Nanos end() const { return end_; }

    // True, once: it ends now. Whoever was waited for last is looked at first: not everybody again
    // at each report. `node_awaited` and `job_awaited` tell of one entry whether it is waited for.
    template <class Nodes, class Jobs, class NodeAwaited, class JobAwaited>
    bool ends(Nanos now, const Nodes& nodes, NodeAwaited node_awaited, const Jobs& jobs,
              JobAwaited job_awaited) {
        if (!on_ ||
            (now < end_ && (any(nodes, node_, node_awaited) || any(jobs, job_, job_awaited))))
            return false;
        on_ = false;
        return true;
    }

  private:
    template <class All, class Key, class Awaited>
    static bool any(const All& all, Key& last, Awaited awaited) {
        auto it = all.lower_bound(last);
        while (it != all.end() && !awaited(it->second)) ++it;
        if (it == all.end())
            for (it = all.begin(); it != all.end() && !awaited(it->second);) ++it;
        if (it != all.end()) last = it->first;
        return it != all.end();
    }

    bool on_ = false;
    Nanos end_ = Nanos::never();
    NodeName node_;  // whom it waited for last
    JobId job_;
};

}  // namespace souk::market
