// SPDX-License-Identifier: GPL-2.0-or-later
// The disks of this machine, as control groups name them.
#pragma once

#include <string>
#include <vector>

namespace souk {

// "254:0" of each whole disk that has a size: no loop device, none in memory. Sorted; empty where
// `blocks` cannot be read.
std::vector<std::string> whole_disks(const std::string& blocks = "/sys/block");

}  // namespace souk
