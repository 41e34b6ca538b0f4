// SPDX-License-Identifier: GPL-2.0-or-later
// Images that were refused, as they lay, for the operator of the node to look at: STATE/refused,
// root's alone, the newest few of them.
//
// It fails with the file system (errno).
#pragma once

#include <cstdint>
#include <string>

#include "kernel/base/result.hpp"

namespace souk {

struct RefusedBounds {
    size_t images_max = 8;
    uint64_t bytes_max = uint64_t{8} << 30;
};

// Moves the image of that name from one directory to the other, on one file system; the oldest make
// room. One that is larger than all may be is not moved (EFBIG).
Status keep_refused_image(int from, const std::string& name, int to,
                          const RefusedBounds& bounds = {});

}  // namespace souk
