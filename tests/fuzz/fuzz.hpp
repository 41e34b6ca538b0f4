// SPDX-License-Identifier: GPL-2.0-or-later
// The fuzz targets check each result with this.
#pragma once

#include <cstdlib>
#include <string>

#include "kernel/base/result.hpp"

#define REQUIRE(cond) \
    if (!(cond)) std::abort()

namespace souk {

// A refusal is one line that says something.
template <class T>
void one_line(const Result<T>& result) {
    if (result) return;
    REQUIRE(!result.error().message.empty());
    REQUIRE(result.error().message.find('\n') == std::string::npos);
}

}  // namespace souk
