// SPDX-License-Identifier: GPL-2.0-or-later
// These say how much of a job's input and output one frame carries, and how much input waits.
#pragma once

#include <cstddef>

namespace souk::wire {

inline constexpr size_t stdio_bytes_max = 64 * 1024;  // in one frame of output or input
inline constexpr size_t stdio_frame_bytes = stdio_bytes_max + 1024;
// Input that a job has not taken yet: srun reads on while it has less than this unacknowledged, so
// it may send one read more; each hop has room for that.
inline constexpr size_t input_window_bytes = 256 * 1024;
inline constexpr size_t input_room_bytes = 2 * input_window_bytes;

}  // namespace souk::wire
