// SPDX-License-Identifier: GPL-2.0-or-later
// The border between the nodes of two sites (docs/sites.md). Each writes names as they are at its
// own site, and whoever reads a frame of a node of another site reads it by this: what is "n1"
// there is "lab:n1" here, and "uni:n3" is "n3" at uni. So a node of another site can name neither a
// job of this site's homes that is not given to it, nor one of a third site. Pure.
#pragma once

#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/wire/frame.hpp"

namespace souk {

// The body of that frame with the names as they are here. Errors: it is no message of a home, a
// guest or the source of an image, it cannot be read, or it names what no site may name.
Result<std::string> heard_frame(const wire::Frame& frame, std::string_view from,
                                std::string_view own);

}  // namespace souk
