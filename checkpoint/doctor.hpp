// SPDX-License-Identifier: GPL-2.0-or-later
// The doctor: everything that a node needs, the kernel's part (kernel/sys/host/probe) and a CRIU
// that works on this kernel. A daemon examines quickly before it starts and requires what it finds;
// `souk doctor` tries CRIU for real.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/criu.hpp"
#include "kernel/sys/host/probe.hpp"

namespace souk {

enum class Examination : uint8_t {
    quick,  // a few milliseconds, no CRIU is started: for a daemon's start
    full,   // dumps and restores a tiny job, about a quarter of a second
};
// `criu_prefix` as for find_criu. Changes nothing and leaves nothing behind. Full: from a
// single-threaded program alone, since it forks without an exec.
std::vector<Need> examine(Examination depth, const std::string& criu_prefix = criu_root());

// A daemon calls this before it starts. The error is one line, which names what is missing and how
// to mend it.
Status require_for_agent(const std::string& criu_prefix = criu_root());

// Dumps and restores a job with an unconnected UDP socket in pid, mount and net namespaces of its
// own; CRIU's version where it works. Error: what failed, with the first error of CRIU's log. Ends
// within 30 s.
Result<std::string> try_criu(const CriuTool& tool);

// The prefix that find_criu is to be asked for: where Souk was installed with a CRIU of its own and
// the system has one too, the system's if it works here, which is tried; else criu_root().
// `memory`: a file that keeps the outcome for this kernel and this CRIU; it need not be there. From
// a single-threaded program alone.
std::string settled_criu_root(const std::string& memory);

}  // namespace souk
