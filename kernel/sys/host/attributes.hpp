// SPDX-License-Identifier: GPL-2.0-or-later
// This finds out what the machine has: name and value of each attribute by which jobs choose nodes
// (srun --needs). Linux alone is asked, by /proc, /sys, /dev and the file systems; no
// program is run, since this is done with a daemon's rights.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace souk {

using MachineAttributes = std::map<std::string, std::string>;

// cpu.model, cpu.vendor, cpu.cache, cpu.sockets, memory.total, os, os.version, disk (the size
// of that of `directory`), disk.kind, gpu (how many), gpu.model, gpu.vendor, and program.NAME, the
// path, for each of `programs` that a path of the system's usual ones has. What is not found out is
// left out. `root` stands before the names of files: the tests bring their own.
MachineAttributes find_attributes(const std::string& directory,
                                  const std::vector<std::string>& programs,
                                  const std::string& root = "");

}  // namespace souk
