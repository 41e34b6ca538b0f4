// SPDX-License-Identifier: GPL-2.0-or-later
// A comparison (the JSON of marketsim compare) as one page that needs nothing else: tables, and
// pictures as SVG, with the intervals of confidence where there are several seeds. Pure.
#pragma once

#include <string>
#include <string_view>

#include "kernel/base/result.hpp"

namespace souk::tools {

// Errors: the text is not what compare --json writes, with what is wrong about it.
Result<std::string> comparison_page(std::string_view json, const std::string& title);

}  // namespace souk::tools
