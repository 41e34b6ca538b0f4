// SPDX-License-Identifier: GPL-2.0-or-later
// The named resources of a node as its guests get them: devices by their files, each of them to one
// guest, and counts. A guest keeps its files whatever the configuration becomes meanwhile. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/result.hpp"
#include "market/core/resource_text.hpp"

namespace souk {

inline constexpr size_t guest_devices_max = 1'024;  // of one guest

// As its owner has configured it. `files` are those of the devices; empty: a mere count.
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
    // for its environment: SOUK_RESOURCE_NAME with the files, and CUDA_VISIBLE_DEVICES with the
    // numbers of all that are NVIDIA's
    std::vector<std::pair<std::string, std::string>> variables;
};
// Gives the first files that no other has. Names that the node does not have are of the market.
// Errors: too little is left; or the job comes from an image, and would get a device: its programs
// have read their environment, so nothing can tell them which one.
Result<GivenResources> give_resources(const std::vector<ResourceNeed>& needs,
                                      const std::vector<NodeResource>& all,
                                      const std::vector<GuestHolds>& others, bool from_image);
// Sets its variables in an environment, in place of the values that they had.
void add_variables(std::vector<std::string>& env, const GivenResources& given);
// "gpu /dev/nvidia0 and /dev/nvidia1", of GuestJob::devices.
std::string devices_text(const std::vector<std::string>& devices);

}  // namespace souk
