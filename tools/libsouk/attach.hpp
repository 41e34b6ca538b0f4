// SPDX-License-Identifier: GPL-2.0-or-later
// souk_attach: the streams of a job, for a program that has descriptors for them.
#pragma once

#include <functional>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"
#include "tools/common/link.hpp"

namespace souk::tools {

struct AttachedStreams {
    int in = -1, out = -1, err = -1;  // -1: none
};
// Copies the job's streams until the job has ended; returns its exit status as srun's. A connection
// that breaks is made again for five minutes, and no byte is lost or written twice. Errors: no such
// job here, or a stream that cannot be written; the job goes on.
Result<int> attach_streams(const std::function<Result<Link>()>& connect, const JobId& id,
                           const AttachedStreams& streams);

}  // namespace souk::tools
