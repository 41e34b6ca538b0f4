// SPDX-License-Identifier: GPL-2.0-or-later
// agentd begins as root, and does this before it becomes a user of its own: nothing of its state
// and nothing from the network is read until then. It keeps for later what only root learns of this
// machine.
#pragma once

#include <string>

#include "agentd/daemon/config.hpp"
#include "agentd/root/helper.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/probe.hpp"

namespace souk {

struct AsRoot {
    Fd tools;                  // each connection of srun, pvdctl and marketctl comes in there
    std::string criu_version;  // "4.2.1"
    bool dumps_all = false;    // CRIU can dump jobs of any user
    Status pages_possible;     // an error: why memory cannot go past an image
    Need write_marks;          // whether the kernel tells which pages are written to
    std::string user;          // who it is now: "_souk-agent"; "root: WHY" where it is not that one
};

// Starts souk-root, which hands this daemon's things over. `file`: of the configuration. An error:
// the daemon cannot run. That it stays root is none: it is logged.
Result<AsRoot> begin_as_root(Log& log, const Config& config, const std::string& file,
                             root::Helper& root);

// For --check-config: who it would be, as a comment.
std::string own_user_text(const Config& config);

}  // namespace souk
