// SPDX-License-Identifier: GPL-2.0-or-later
// Placement: which cluster each component of a job gets, of those that have room now. Pure, without
// state between two jobs. SOUK_PLACEMENTS in the .cpp is the table of them.
//
// Components of an ordered job (and of a total one that names its cluster) go where they say;
// those of an unordered one are placed by size, largest first, of equal ones the earlier first.
// Among clusters that are equal for a policy the first one is taken. All are greedy: a job may be
// refused that would fit by another choice.
//   worst_fit        the most idle cluster that this job does not use yet, if it has room, else the
//                    most idle one that it uses; when it uses all, as if it used none
//   worst_fit_lists  the same, but the clusters that it uses stay used
//   best_fit         as worst_fit, but the least idle that has room
//   first_fit        the first that has room
//   cluster_filling  the first that has room, by busy processors when the job comes, least first
//   load_balancing   the one that is least loaded (busy / size) with the component in it
// A flexible job has at most one component in a cluster, within its limits of size.
// cluster_filling takes all idle processors of each cluster in its order until the sum is met;
// worst_fit (both) and first_fit do so by idle processors, most first, and in the order of the
// clusters; best_fit takes the least idle cluster that holds the whole job, else it is worst_fit.
// load_balancing adds one processor after the other to the least loaded cluster.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "market/sim/coallocation.hpp"

namespace souk::sim::coallocation {

class Placement {
  public:
    virtual ~Placement() = default;
    // Nothing: it does not fit. What it returns fits `idle` and answers the job.
    virtual std::optional<Allocation> place(const Job& job,
                                            std::span<const int64_t> idle) const = 0;
};

struct PlacementEntry {
    std::string_view name;
    std::unique_ptr<Placement> (*make)(std::span<const Cluster> clusters);
};
// The first one is the default.
std::span<const PlacementEntry> placements();
// Null if there is no such placement. The clusters must outlive it.
std::unique_ptr<Placement> make_placement(std::string_view name, std::span<const Cluster> clusters);

// As many components as fit in as few clusters as possible: all in the least idle cluster that
// holds the whole job, else by cluster_filling with idle processors instead of busy ones. The
// market places so; it is not one of the reference's.
std::unique_ptr<Placement> make_near_placement(std::span<const Cluster> clusters);

}  // namespace souk::sim::coallocation
