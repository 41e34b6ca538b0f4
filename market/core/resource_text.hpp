// SPDX-License-Identifier: GPL-2.0-or-later
// Named resources as users and owners write them: what a job asks for (srun --resource), and what a
// node or the market offers (`resources` of their configurations). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"

namespace souk {

// A node or the market has so much of one resource.
struct ResourceOffer {
    std::string name;
    int64_t count = 0;
    Money reserve = {};   // of each one of it, per hour
    bool device = false;  // a job that has one is bound to its node
    bool operator==(const ResourceOffer&) const = default;
};
inline constexpr size_t resources_max = 32;  // of one job, node or market

struct ResourceNeed {
    std::string name;
    int64_t count = 1;
    bool operator==(const ResourceNeed&) const = default;
};
inline constexpr size_t resource_text_max = 2'000;

// NAME or NAME=COUNT, parted by commas. In the order of their names, each once, and no two of them
// with one variable. Errors: what is wrong with which of them.
Result<std::vector<ResourceNeed>> parse_resources(std::string_view text);
// As parse_resources() takes it, the same for the same needs.
std::string resources_text(const std::vector<ResourceNeed>& needs);
// Reads the offers of a configuration: counts by their names, and reserves of some, as texts.
// Errors: what is wrong with which of them.
using ResourceTable = std::map<std::string, std::string>;
Result<std::vector<ResourceOffer>> resource_offers(const ResourceTable& counts,
                                                   const ResourceTable& reserves);
// The variable that tells a job what it has of a resource: SOUK_RESOURCE_GPU, of gpu.
std::string resource_variable(const std::string& name);
// Whether it may be the name of a resource: letters, digits, '-' and '_', a letter first, at most
// 31 of them (it becomes part of the name of a variable).
bool valid_resource_name(std::string_view name);

}  // namespace souk
