// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace souk {

void must_failed(const char* condition, const char* file, int line) {
    std::fprintf(stderr, "<2>bug: %s does not hold at %s:%d\n", condition, file, line);
    std::fflush(stderr);
    std::abort();
}

}  // namespace souk
