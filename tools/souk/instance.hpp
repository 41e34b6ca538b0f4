// SPDX-License-Identifier: GPL-2.0-or-later
// A market that `souk up` runs on this host: its directories, daemons and names, kept in
// RUN/instance.json by its supervisor (written whole under a temporary name, then renamed). RUN may
// be memory that a reboot empties; what a market is made of, and the state of its daemons, lie in
// STATE (tools/souk/kept.hpp). A process is named by pid and start time, so that a later one with
// the same number is never taken for it. The supervisor holds a lock on RUN/lock for as long as it
// lives.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/capsule.hpp"

namespace souk {

// Names a process that runs now (not a zombie); nullopt if there is none.
std::optional<ProcessId> process_of(pid_t pid);
bool alive(const ProcessId& p);
// Opens a pidfd of exactly this process; empty if it is gone.
Pidfd open_process(const ProcessId& p);

struct Daemon {
    std::string name;     // of the node; "market"
    std::string address;  // host:port that other daemons use
    std::string netns;    // its name under /run/netns
    std::string dir;      // RUN/NAME: socket, configuration, log
    std::string state;    // state directory
    std::string cgroup;   // below each hierarchy's root; empty for the market
    ProcessId process;
    uint32_t restarts = 0;
    std::string trouble;  // why it does not run
};

struct Instance {
    std::string run;    // RUN
    std::string state;  // STATE
    // prefix of namespaces and control groups: "souk", or "souk-XXXXXX" for another RUN
    std::string tag;
    ProcessId supervisor;
    Daemon market;
    std::vector<Daemon> nodes;
};

// The name of the program that stands for the owner of a node (souk owner), and where it lies.
std::string owner_program_name(const std::string& node);
std::string owner_program(const Daemon& node);

// $SOUK_RUN or /run/souk.
std::string run_dir();
std::string tag_of(const std::string& run);
// STATE: $SOUK_STATE, or below /var/lib/souk: "up" for /run/souk, else the market's tag.
std::string state_root(const std::string& run);

// nullopt: nothing is up there.
Result<std::optional<Instance>> load_instance(const std::string& run);
Status save_instance(const Instance& instance);

// The lock of a supervisor; an empty Fd if another one holds it.
Result<Fd> lock_instance(const std::string& run);

}  // namespace souk
