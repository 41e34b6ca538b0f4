// SPDX-License-Identifier: GPL-2.0-or-later
// The launch of a job as this node allows it.
#pragma once

#include "agentd/cell/cell_site.hpp"

namespace souk {

// Bounds the resource limits of a job by those of the node's owner. Its home took the job's word
// for them. A limit that the home does not tell would be this daemon's. Root's own jobs may have
// all.
LaunchSpec allowed_launch(const CellSite& site, LaunchSpec launch);

}  // namespace souk
