// SPDX-License-Identifier: GPL-2.0-or-later
// The supervisor of a market on this host: starts the daemons, each in its network namespace, waits
// for each to say READY, starts again what dies (with a growing pause), reaps what capsules leave,
// and takes everything down on SIGTERM but the state, which a reboot is not to cost: `souk down`
// removes that. What it has started it holds by a pidfd, whether or not RUN has room to write that
// down. It stands in for systemd, which does the same for an installation on real machines.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "tools/souk/instance.hpp"
#include "tools/souk/kept.hpp"

namespace souk {

struct UpOptions {
    std::string run, state;
    MarketShape shape;
    // a market that was kept: what is there of it stays if it does not come up
    bool again = false;
    bool check_precopy = false;  // of agentd's configuration
};

// Becomes the supervisor; `report` gets "ok\n" when all daemons are ready, or one line of error,
// and is closed then. Returns the exit status of the process.
int supervise(const UpOptions& options, Fd lock, Fd report);

// Ends what an instance left, whatever is still there of it: daemons (also such as its record does
// not know), jobs, control groups, mounts, names, directories; all but its state. `note` gets a
// line for each thing that could not be removed.
void demolish(const Instance& instance, std::vector<std::string>& note);
// Finds the instance's daemons that run, by their command lines.
std::vector<Pidfd> daemons_of(const Instance& instance);
void end_daemons(const Instance& instance, std::vector<std::string>& note);
// And the state.
void remove_state(const Instance& instance, std::vector<std::string>& note);

}  // namespace souk
