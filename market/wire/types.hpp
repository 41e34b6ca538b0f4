// SPDX-License-Identifier: GPL-2.0-or-later
// The kinds of frames, who sends each to whom, and how long each may be. A receiver looks at the
// type and the length alone before it reads a frame's body: an unknown type or a longer frame ends
// the connection.
#pragma once

#include <cstddef>
#include <cstdint>

namespace souk::wire {

inline constexpr uint32_t hello_magic = 0x4b554f53;  // "SOUK" on the wire
inline constexpr uint32_t protocol_version = 2;

enum class FrameType : uint16_t {
    // Any connection. The first frame of whoever connected is a hello; the answer is a welcome, or
    // an error and the
    // end.
    hello = 1,
    welcome = 2,
    // one line; after it the sender closes, except on a tool's connection (the request has failed)
    error = 3,
    ok = 4,  // to a tool: done
    // pvdctl and marketctl to agentd, and relayed by agentd to the market; marketctl to marketd
    ctl_request = 5,
    ctl_reply = 6,  // the answer, the same way back

    // agentd to marketd
    job_report = 16,
    provider_report = 17,
    order_failed = 18,
    // marketd to agentd
    order = 32,
    job_note = 33,
    provider_note = 34,
    directory = 35,
    node_lost = 36,

    // agentd to agentd: the home of a job and its guest
    guest_command = 48,    // home to guest
    guest_event = 49,      // guest to home
    expel = 50,            // guest to home
    stdio_data = 51,       // guest to home: what the job wrote
    stdio_ack = 52,        // home to guest: safe up to this offset
    stdio_input = 53,      // home to guest: what the job is to read
    stdio_input_ack = 54,  // guest to home
    stdio_winch = 55,      // home to guest: the terminal's size
    heartbeat = 56,        // guest to home, and its answer

    // agentd to agentd on a connection of its own (role image): source to destination, then the
    // image, unframed, and
    // the pages that are not in it; back come what is wanted of these, and the result
    image_begin = 64,
    image_result = 65,
    pages_state = 66,
    precopy_begin = 67,  // instead of image_begin: memory ahead of the job's image, unframed

    // srun and its home agentd, over a unix socket (the caller's identity is the kernel's word,
    // SO_PEERCRED)
    submit = 80,
    submitted = 81,
    attach = 82,
    attached = 83,
    change = 84,
    output = 85,      // to srun: what the job wrote
    output_ack = 86,  // from srun: written up to this offset
    input = 87,       // from srun: what the job is to read
    input_ack = 88,   // to srun: need not be sent again up to this offset
    winch = 89,
    signal = 90,
    notice = 91,  // to srun: what became of the job
    exit = 92,    // to srun: it is finished and all its output was sent
};

inline constexpr size_t stdio_bytes_max = 64 * 1024;  // in one frame of output or input
// Input that a job has not taken yet: srun reads on while it has less than this unacknowledged, so
// it may send one read more; each hop has room for that.
inline constexpr size_t input_window_bytes = 256 * 1024;
inline constexpr size_t input_room_bytes = 2 * input_window_bytes;
inline constexpr size_t spec_bytes_max = 512 * 1024;   // argv, env, path and cwd of a job, in all
inline constexpr size_t json_bytes_max = 1024 * 1024;  // in one answer
// a list that is longer is answered in parts
inline constexpr size_t json_part_bytes = 256 * 1024;

// The longest body of a frame of this type, in bytes; 0: there is no such type.
constexpr uint32_t frame_bytes_max(FrameType type) {
    constexpr uint32_t small = 16 * 1024, report = 256 * 1024, list = 2 * 1024 * 1024;
    constexpr uint32_t stdio = stdio_bytes_max + 1024;
    switch (type) {
        case FrameType::hello:
        case FrameType::welcome:
        case FrameType::error:
        case FrameType::ok:
        case FrameType::provider_report:
        case FrameType::order_failed:
        case FrameType::order:
        case FrameType::job_note:
        case FrameType::provider_note:
        case FrameType::node_lost:
        case FrameType::guest_event:
        case FrameType::expel:
        case FrameType::heartbeat:
        case FrameType::stdio_ack:
        case FrameType::stdio_input_ack:
        case FrameType::stdio_winch:
        case FrameType::image_begin:
        case FrameType::image_result:
        case FrameType::pages_state:
        case FrameType::precopy_begin:
        case FrameType::submitted:
        case FrameType::attach:
        case FrameType::attached:
        case FrameType::change:
        case FrameType::output_ack:
        case FrameType::input_ack:
        case FrameType::winch:
        case FrameType::signal:
        case FrameType::notice: return small;
        case FrameType::ctl_request:
        case FrameType::job_report:
        case FrameType::exit: return report;
        case FrameType::directory:
        case FrameType::guest_command:
        case FrameType::submit: return list;
        case FrameType::stdio_data:
        case FrameType::stdio_input:
        case FrameType::output:
        case FrameType::input: return stdio;
        case FrameType::ctl_reply: return json_bytes_max + 4096;
    }
    return 0;
}

}  // namespace souk::wire
