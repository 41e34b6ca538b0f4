// SPDX-License-Identifier: GPL-2.0-or-later
// These functions check what a restore has made, and ask the kernel. They are called when CRIU has
// given the processes all that they are to have, and nothing of them has run yet. They need no
// image, so their result holds whatever an image says, and whoever has read it (core_image.hpp
// looks at images, before).
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "checkpoint/launch.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/process/capsule.hpp"

namespace souk {

// Each thread in the capsule but souk-init's and CRIU's: its ids and groups are the user's, and it
// has no capability and gains none. Each process is in the capsule's namespaces, in a session of
// the capsule's, and has souk-init's login and label. It has open what a user can open, and no
// device whose name is gone (it can only be out of the image). Of root anything may be. The error
// names the process.
Status check_restored(const Pidfd& init, const CriuUser& user);
// Fails if the process has such a device, by its directory in /proc. Waits for no file system of
// the job's, because the job's home may wait for the caller.
Status check_devices(int process);
// Ends the same processes, while CRIU still holds them: none of them runs once more.
void kill_restored(const Pidfd& init);

struct RestoredJob {
    CriuUser user;
    std::vector<pid_t> pids;         // as numbered here
    std::map<int, uint64_t> limits;  // RLIMIT_...: none of theirs is above
};
// Calls check_restored, and kill_restored if that fails; and lowers the limits of the processes.
Status fit_restored(const Pidfd& init, const RestoredJob& job);

// Needs a restore whose CRIU is gone. Tells whether every thread of these processes stands in the
// code that CRIU restores with, and waits for CRIU there. If so, nothing of the job has run, and
// nothing will.
Result<bool> restored_waits(const Pidfd& init);

// This value of RLIMIT_CORE keeps the kernel from writing a core file and from giving a core to a
// program that collects them (core_pattern). A limit of 0 does only the first.
inline constexpr uint64_t no_core_bytes = 1;
// Returns the limit that remains of a wish where no more than `most` is allowed. Pure.
rlimit bounded(int resource, const rlimit& wish, uint64_t most);
// Lowers the limits of the process that are above these, by RLIMIT_... A job may come from a node
// that allows more.
Status lower_limits(pid_t pid, const std::map<int, uint64_t>& limits_max);

}  // namespace souk
