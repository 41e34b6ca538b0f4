// SPDX-License-Identifier: GPL-2.0-or-later
// Many jobs of one kind: "1-100%8" is a hundred, eight at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

struct ArraySpec {
    std::vector<uint32_t> indexes;  // rising
    uint32_t at_once = 0;           // 0: any number
};
// INDEX, FROM-TO or FROM-TO:STEP, several with commas between, and %N. Errors: another form, an
// index above 1,000,000, or more than 10,000 of them.
Result<ArraySpec> parse_array(std::string_view text);

}  // namespace souk
