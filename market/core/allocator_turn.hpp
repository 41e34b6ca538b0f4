// SPDX-License-Identifier: GPL-2.0-or-later
// A gang's turn, which those parts of the Allocator share that find places for gangs.
#pragma once

#include <map>
#include <vector>

#include "market/core/allocator.hpp"

namespace souk::market {

// How things stand for a gang when its turn comes.
struct Allocator::GangTurn {
    bool able = true;             // no required component is pinned where it does not run
    std::vector<uint32_t> free;   // the required components that are not pinned
    std::vector<uint32_t> stays;  // where each of these may stay, or none
    bool all_stay = true;         // each of them
    int32_t cap = speed_max;      // of the pinned ones
    int32_t slowest = speed_max;  // of those that may stay, and of the pinned ones
    std::vector<ProviderKey> barred;
    std::vector<uint32_t> machines;         // that the packing was offered, in its order
    std::map<uint32_t, uint32_t> siblings;  // by machine: required components that are not `free`
    uint64_t network = 0;  // GangLayout::near: that of the siblings; 0: there are none

    std::vector<NetworkPacking::Need> needs(const Chunks<Job>& jobs,
                                            const Chunks<JobDetails>& details) const {
        std::vector<NetworkPacking::Need> all;
        all.reserve(free.size());
        for (const uint32_t j : free)
            all.push_back({jobs[j].cpus, jobs[j].memory_mb, details[j].only.n});
        return all;
    }
};

}  // namespace souk::market
