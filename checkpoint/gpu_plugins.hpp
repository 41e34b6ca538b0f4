// SPDX-License-Identifier: GPL-2.0-or-later
// The means of this machine to write the state of GPUs into an image: CRIU's plugin for each kind,
// and for NVIDIA's cuda-checkpoint and a driver from version 550 on. A part of what the doctor says
// (doctor.hpp). Souk does not rely on it: a job that was given a device stays where it is.
#pragma once

#include <string>
#include <vector>

#include "kernel/sys/host/probe.hpp"

namespace souk {

// `root` is the directory in which the machine's files lie, without '/' at its end; empty: "/".
// `criu_prefix` is as for find_criu, with its plugins in lib/criu below it. Starts nothing.
std::vector<Need> examine_gpus(const std::string& root, const std::string& criu_prefix);

}  // namespace souk
