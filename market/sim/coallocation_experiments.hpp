// SPDX-License-Identifier: GPL-2.0-or-later
// The five experiments of the reference co-allocator (DCS on DAS-2, 2004) as worlds. Pure and
// seeded.
//
// Published of an experiment are clusters, requests, policy, and mean and deviation of response,
// run time and overhead. Its own jobs' run times and overheads are drawn from normal distributions
// with these means and deviations. Its background was real, and was not published; here it is jobs
// by a seed: each cluster has slots of 1 to 8 processors that are busy 600 s in the mean
// (exponential), then free 30 s; there are as many as DCS's counts leave room for: `others_large`
// processors of the large cluster and `others_small` of each small one, the same in all five.
#pragma once

#include "market/sim/coallocation_run.hpp"

namespace souk::sim::coallocation {

struct Normal {
    double mean_s, deviation_s;
};

struct Experiment {
    int number;
    size_t clusters;         // the first of 144 processors, the others of 64
    int64_t component_cpus;  // four of them a job
    int ordered_of_ten;      // of ten jobs so many are ordered, two components in each cluster
    std::string_view policy;
    Normal response, run, overhead;  // as published
};
std::span<const Experiment> experiments();

struct Background {
    int64_t others_large = 14, others_small = 26;
    int64_t busy_s = 600, free_s = 30;
};

// The 40 jobs of an experiment, all there at once.
World experiment_world(const Experiment& experiment, const Background& background, uint64_t seed,
                       const Terms& terms);

}  // namespace souk::sim::coallocation
