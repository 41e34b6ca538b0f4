// SPDX-License-Identifier: GPL-2.0-or-later
// The named resources of a node as its guests get them: devices by their indexes, each of them to
// one guest, and counts. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/result.hpp"
#include "market/core/resource_text.hpp"

namespace souk {

inline constexpr size_t guest_devices_max = 1'024;  // of one guest

// As its owner has configured it. `files` are those of the devices, each with the index of its
// place; empty: a mere count.
struct NodeResource {
    ResourceOffer offer;
    std::vector<std::string> files;
    bool operator==(const NodeResource&) const = default;
};

// A guest has these: JobTerms::resources, and GuestJob::devices.
struct GuestHolds {
    std::string resources;
    std::vector<std::string> devices;
};
struct GivenResources {
    std::vector<std::string> devices;  // GuestJob::devices
    // for its environment: SOUK_RESOURCE_NAME with the indexes, and CUDA_VISIBLE_DEVICES
    std::vector<std::pair<std::string, std::string>> variables;
};
// Gives the lowest indexes that no other has. Names that the node does not have are of the market.
// Errors: too little is left.
Result<GivenResources> give_resources(const std::vector<ResourceNeed>& needs,
                                      const std::vector<NodeResource>& all,
                                      const std::vector<GuestHolds>& others);
// Sets its variables in an environment, in place of the values that they had.
void add_variables(std::vector<std::string>& env, const GivenResources& given);
// "gpu 0 and 1", of GuestJob::devices.
std::string devices_text(const std::vector<std::string>& devices);
// The variable that tells a job what it has of a resource: SOUK_RESOURCE_GPU.
std::string resource_variable(const std::string& name);

}  // namespace souk
