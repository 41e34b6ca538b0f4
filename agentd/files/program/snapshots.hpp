// SPDX-License-Identifier: GPL-2.0-or-later
// Does for agentd what is due with the files that go with a checkpoint (agentd/files/snapshot.hpp).
// This process is the job's user already, so it has no other rights. The answer goes to `answer`: +
// and a sentence, or - and the reason.
#pragma once

#include <string>

#include "kernel/base/result.hpp"

namespace souk::files {

struct SnapshotTask {
    std::string what;       // take, put-back, drop, written
    std::string name;       // take, put-back: of the snapshot; drop: of the first that stays;
                            // written: since when (Unix time in ns)
    std::string directory;  // below `root`
};
// take: if the home serves the tree, the home is asked to take the snapshot.
Status do_snapshot_task(const SnapshotTask& task, int root, int answer);

}  // namespace souk::files
