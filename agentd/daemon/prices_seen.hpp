// SPDX-License-Identifier: GPL-2.0-or-later
// What the market's answer to `prices` says of places that are as fast as this node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"

namespace souk {

struct PriceSeen {
    int64_t from_unix_s = 0, minutes = 0;
    Money price;
    bool operator==(const PriceSeen&) const = default;
};
// Of each row the price at the greatest speed that is not above `speed`. Errors: it is no such
// list.
Result<std::vector<PriceSeen>> read_prices(const std::string& json, int64_t speed);

}  // namespace souk
