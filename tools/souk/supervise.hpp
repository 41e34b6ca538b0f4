// SPDX-License-Identifier: GPL-2.0-or-later
// The supervisor of a market on this host: starts the daemons, each in its network namespace, waits for each to say
// READY, starts again what dies (with a growing pause), reaps what capsules leave, and takes everything down on
// SIGTERM. It stands in for systemd, which does the same for an installation on real machines.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "tools/souk/instance.hpp"

namespace souk {

struct NodeOptions {
    std::string name;
    int64_t speed = 100;
    std::string price = "1";
};

struct UpOptions {
    std::string run;
    std::vector<NodeOptions> nodes;
    int32_t cpus = 1;
    int64_t memory_mb = 0;  // 0: an equal part of what the machine has free
    bool check_ahead = false;  // of agentd's configuration
    std::string solver, pricing;  // empty: the market's own choice
    std::string bin;        // where marketd and agentd are
};

// Becomes the supervisor; `report` gets "ok\n" when all daemons are ready, or one line of error, and is closed then.
// Returns the exit status of the process.
int supervise(const UpOptions& options, Fd lock, Fd report);

// Ends what an instance left, whatever is still there of it: daemons, jobs, control groups, mounts, names, directories.
// `note` gets a line for each thing that could not be removed.
void demolish(const Instance& instance, std::vector<std::string>& note);

}  // namespace souk
