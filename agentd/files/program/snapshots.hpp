// SPDX-License-Identifier: GPL-2.0-or-later
// What agentd has done about the files that a checkpoint stands beside, with the rights of the
// job's user, who this process is already (agentd/files/snapshot.hpp). The answer goes to `answer`:
// + and a sentence, or - and the reason.
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
// take: in a tree that its home serves, the home is asked to.
Status do_snapshot_task(const SnapshotTask& task, int root, int answer);

}  // namespace souk::files
