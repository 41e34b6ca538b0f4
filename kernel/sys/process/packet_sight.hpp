// SPDX-License-Identifier: GPL-2.0-or-later
// BPF programs that see the packets of all sockets of a machine: attached to the root of its
// control groups (v2), as long as the links are open. Needs CAP_NET_ADMIN.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// `v2`: where those are mounted; the numbers are programs.
Result<std::vector<Fd>> see_packets(const std::string& v2, int received, int sent);
// A process that may not do this itself asks another, for programs that were named before.
using SeePackets = std::function<Result<std::vector<Fd>>()>;

}  // namespace souk
