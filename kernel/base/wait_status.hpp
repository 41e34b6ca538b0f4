// SPDX-License-Identifier: GPL-2.0-or-later
// Reads a wait status (wait(2)) for the cores, which make no system call. Pure.
#pragma once

#include <csignal>
#include <cstdint>

namespace souk {

constexpr bool ended_by_sigkill(int32_t wait_status) { return (wait_status & 0x7f) == SIGKILL; }

}  // namespace souk
