// SPDX-License-Identifier: GPL-2.0-or-later
// Co-allocation: jobs of several components, each in one cluster, all started together. The types
// that placements (coallocation_placement.hpp), policies (coallocation_policy.hpp) and the run
// (coallocation_run.hpp) share. Values only: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::sim::coallocation {

struct Cluster {
    std::string name;
    int64_t cpus = 0;
};

// The kinds of requests. After each kind stands what the request fixes; after the semicolon stands
// what the scheduler chooses besides the time of the start.
enum class Kind : uint8_t {
    ordered,    // size and cluster of each component; nothing
    unordered,  // size of each component; the cluster of each
    flexible,   // the sum; number, sizes and clusters of the components
    total,      // the sum, all in one cluster; which, unless the request names it
};

struct Component {
    static constexpr uint32_t anywhere = UINT32_MAX;
    int64_t cpus = 0;
    uint32_t cluster = anywhere;
};

struct Job {
    int64_t submit_ms = 0;
    int64_t run_ms = 1;       // inside one cluster
    int64_t estimate_ms = 1;  // what its user expects of that, at least run_ms
    int64_t overhead_ms = 0;  // from its start until it runs; it holds its processors
    Kind kind = Kind::unordered;
    std::vector<Component> components;                     // total: one; flexible: none
    int64_t cpus = 0;                                      // the sum
    int64_t component_min = 1, component_max = INT64_MAX;  // flexible
    int64_t value = 1;                                     // only the market looks at it
};

// A component's place. Those of ordered and unordered jobs are in the order of the components.
struct Piece {
    uint32_t cluster = 0;
    int64_t cpus = 0;
    bool operator==(const Piece&) const = default;
};
using Allocation = std::vector<Piece>;

// The costs of each operation, in milliseconds. A job that spans several clusters runs `slowdown` /
// 1000 times as long, because its components talk over the network.
struct Terms {
    int64_t slowdown = 1000;
    int64_t move_ms = 0;    // the pause of the job, however many components move at once
    int64_t freeze_ms = 0;  // its processors are free at once; it cannot be thawed before
    int64_t thaw_ms = 0;    // its processors are held
};

// The number of clusters that it spans.
size_t spread(const Allocation& where);
// The time that `run_ms` inside one cluster takes there.
int64_t stretched_ms(int64_t run_ms, const Allocation& where, const Terms& terms);
int64_t cpus_of(const Allocation& where);

// Free processors by cluster.
using Idle = std::vector<int64_t>;
bool fits(const Allocation& where, std::span<const int64_t> idle);
void take(Idle& idle, const Allocation& where);
void give(Idle& idle, const Allocation& where);

// Checks that the request makes sense by itself: sizes, sums, clusters that exist, times. Says what
// is wrong.
Status check(const Job& job, std::span<const Cluster> clusters);
// The allocation is what the request asks for; `idle` does not matter.
bool answers(const Allocation& where, const Job& job);

// Says whether each component of the job may be in any cluster.
bool anywhere(const Job& job);

// An unordered job of so many processors with components of at most `limit`: as few as possible, as
// equal as possible, the larger ones first.
std::vector<Component> split(int64_t cpus, int64_t limit);

}  // namespace souk::sim::coallocation
