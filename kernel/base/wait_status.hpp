// SPDX-License-Identifier: GPL-2.0-or-later
// Reads a wait status (wait(2)) for the cores, which make no system call. Pure.
#pragma once

#include <csignal>
#include <cstdint>

namespace souk {

// The signal that ended it; 0: it exited.
constexpr int32_t ending_signal(int32_t wait_status) { return wait_status & 0x7f; }
constexpr int32_t exit_status(int32_t wait_status) { return (wait_status >> 8) & 0xff; }
constexpr bool ended_by_sigkill(int32_t wait_status) { return (wait_status & 0x7f) == SIGKILL; }

}  // namespace souk
