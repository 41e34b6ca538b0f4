// SPDX-License-Identifier: GPL-2.0-or-later
// MarketPlan: what is to run where and until when, as far as that is known now.
//
// Places that were sold ahead are certain. A job that runs goes on, as long as nobody bids more,
// until its time limit or its run time is over, as stated or as the program took before
// (job_rest.hpp); without either nobody knows its end, and it is drawn to the end of the plan. Who
// waits, or is frozen, begins where room comes first, the higher bid before the lower one, as list
// scheduling has it (R. L. Graham, "Bounds on Multiprocessing Timing Anomalies", 1969): at each
// moment at which room comes, those who wait are tried in their order. A place that is sold ahead
// pushes nobody out of this drawing before it begins; then those who are in its room go back to
// those who wait, with the rest of their time.
//
// A node is there while its owner's time frames say so, those that are off now included.
//
// It is a drawing, and promises nothing: bids, owners and new jobs change it. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "market/core/book.hpp"
#include "market/core/places.hpp"
#include "market/core/run_times.hpp"

namespace souk::market {

struct PlanSpan {
    enum class Kind : uint8_t { reserved, runs, likely };
    NodeName node;
    JobId job;
    Nanos from, to;          // Unix time
    bool end_known = false;  // else it goes on after `to`, or may end before
    Kind kind = Kind::likely;
};
const char* to_string(PlanSpan::Kind kind);

struct MarketPlan {
    std::vector<PlanSpan> spans;  // by node, then by time
    std::vector<JobId> later;     // they wait, and nothing says that they begin before its end
};

// These nodes take nobody from then on (Unix time).
using NodesOff = std::map<NodeName, Nanos>;

// `unix`: now; `until`: the end of the plan. At most `tried_most` of those who wait are tried each
// time that room comes on a node.
inline constexpr size_t plan_tried_most = 256;
MarketPlan plan_of(const Book& book, const Places& places, Nanos unix, Nanos now, Nanos until,
                   const NodesOff& off, const RunTimes& learned);

}  // namespace souk::market
