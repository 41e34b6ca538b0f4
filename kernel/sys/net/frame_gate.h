// SPDX-License-Identifier: GPL-2.0-or-later
// The gates' BPF programs and their loader share this.
#pragma once

enum { FRAME_TO_JOB = 0, FRAME_FROM_JOB = 1, FRAME_WITHIN = 2, FRAME_WAYS = 3 };
// One more element of the map holds a time (CLOCK_BOOTTIME, ns). From then on the gates to and from
// the job stop all frames. 0: never.
enum { FRAME_UNTIL = FRAME_WAYS, FRAME_ELEMENTS };
// Each way has an element in the map. Its value says what the gate does.
enum { FRAME_PASSES = 0, FRAME_STOPS = 1, FRAME_BEGINS_NOTHING = 2 };
// A frame that begins a connection over TCP is kept, as it was on the wire, when a gate within the
// job stops it, or a gate to the job that stops nothing else. A longer frame is not kept.
enum { FRAME_KEPT_BYTES = 128, FRAMES_KEPT = 512 };
struct frame_kept {
    unsigned int way, bytes;
    unsigned char frame[FRAME_KEPT_BYTES];
};
// CRIU marks its own segments with this (CRIU soccr/soccr.h).
enum { FRAME_CRIU_MARK = 0xc114 };
