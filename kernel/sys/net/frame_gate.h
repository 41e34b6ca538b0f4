// SPDX-License-Identifier: GPL-2.0-or-later
// What the gates' BPF programs and their loader share.
#pragma once

enum { FRAME_TO_JOB = 0, FRAME_FROM_JOB = 1, FRAME_WITHIN = 2, FRAME_WAYS = 3 };
// One more element: from that time on (CLOCK_BOOTTIME, ns) the gates to and from the job stop all.
// 0: never.
enum { FRAME_UNTIL = FRAME_WAYS, FRAME_ELEMENTS };
// What a gate does: the value of its element of the map.
enum { FRAME_PASSES = 0, FRAME_STOPS = 1, FRAME_BEGINS_NOTHING = 2 };
// What begins a connection over TCP is kept when a gate within the job stops it, or one to the job
// that stops nothing else: as it was on the wire. One that is longer is not kept.
enum { FRAME_KEPT_BYTES = 128, FRAMES_KEPT = 512 };
struct frame_kept {
    unsigned int way, bytes;
    unsigned char frame[FRAME_KEPT_BYTES];
};
// What CRIU marks its own segments with (CRIU soccr/soccr.h).
enum { FRAME_CRIU_MARK = 0xc114 };
