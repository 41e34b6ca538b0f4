// SPDX-License-Identifier: GPL-2.0-or-later
// Named resources in the market's answers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel/base/json.hpp"
#include "market/core/resource_text.hpp"

namespace souk {

// Writes as `resources` of an open object what there is of each, and how much of it is free.
void write_resources(JsonWriter& w, const std::vector<ResourceOffer>& all,
                     const std::function<int64_t(const std::string& name)>& taken);

}  // namespace souk
