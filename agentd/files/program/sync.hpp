// SPDX-License-Identifier: GPL-2.0-or-later
// souk-files sync: syncs what a job that stands has open for writing on file systems that other
// machines see. It holds copies of the job's descriptors, and to close such a copy may ask the
// file system's client, which agentd has to keep alive: so agentd itself must not hold any. It
// takes them from processes of one capsule alone, which agentd names, and with few rights: as the
// capsule's user it may still look into processes of others, until it has the copies.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "kernel/base/launch.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::files {

// The files of this capsule are synced. It is named by its PID namespace, as long as its souk-init
// is there, and by its user (not known if an older version made the capsule; this process stays
// root then).
struct Synced {
    Pidfd init;
    ino_t processes = 0;
    RunsAs user;
};
// Takes a pidfd of that souk-init; souk-root has checked that it is one.
Result<Synced> synced_of(Fd init);

// Fails unless that process lives in the capsule.
Status check_synced(const Synced& capsule, const Pidfd& process);

// `agent`, a stream: from it comes SyncWords until its end, and `+` or `-` and the reason go back.
// An error: there is nobody to tell.
Status sync_written(int agent, const Synced& capsule);

}  // namespace souk::files
