// SPDX-License-Identifier: GPL-2.0-or-later
// What the gates' BPF programs and their loader share.
#pragma once

enum { FRAME_TO_JOB = 0, FRAME_FROM_JOB = 1, FRAME_WITHIN = 2, FRAME_WAYS = 3 };
// What a gate does: the value of its element of the map.
enum { FRAME_PASSES = 0, FRAME_STOPS = 1, FRAME_BEGINS_NOTHING = 2 };
// What CRIU marks its own segments with (CRIU soccr/soccr.h).
enum { FRAME_CRIU_MARK = 0xc114 };
