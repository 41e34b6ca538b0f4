// SPDX-License-Identifier: GPL-2.0-or-later
// souk-files sync: syncs what a job that stands has open for writing on file systems that other
// machines see. It holds copies of the job's descriptors, and to close such a copy may ask the
// file system's client, which agentd has to keep alive: so agentd itself must not hold any.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::files {

// `agent`, a stream: from it comes SyncWords until its end, and `+` or `-` and the reason go back.
// An error: there is nobody to tell.
Status sync_written(int agent);

}  // namespace souk::files
