// SPDX-License-Identifier: GPL-2.0-or-later
// What agents say to each other and to srun (agentd/core/messages.hpp, messages.hpp) as bytes and
// back: as kernel/wire/codec.hpp.
#pragma once

#include "agentd/core/messages.hpp"
#include "agentd/wire/messages.hpp"
#include "agentd/wire/types.hpp"
#include "market/wire/codec.hpp"

namespace souk::wire {

// clang-format off
#define SOUK_AGENT_WORDS(X)                                                                       \
    /* the home of a job and its guest */                                                         \
    X(GuestCommand, guest_command, 48, list_bytes)          /* home to guest */                   \
    X(GuestEvent, guest_event, 49, small_bytes)             /* guest to home */                   \
    X(Expel, expel, 50, small_bytes)                        /* guest to home */                   \
    X(StdioData, stdio_data, 51, stdio_frame_bytes)         /* guest to home: what it wrote */    \
    X(StdioAck, stdio_ack, 52, small_bytes)                 /* home: safe up to this offset */    \
    X(StdioInput, stdio_input, 53, stdio_frame_bytes)       /* home: what it is to read */        \
    X(StdioInputAck, stdio_input_ack, 54, small_bytes)      /* guest to home */                   \
    X(StdioWinch, stdio_winch, 55, small_bytes)             /* home: the terminal's size */       \
    X(Heartbeat, heartbeat, 56, small_bytes)                /* guest to home, and its answer */   \
    /* on a connection of its own (role image): source to destination, then the image, unframed,  \
       and the pages that are not in it; back come what is wanted of these, and the result */     \
    X(ImageBegin, image_begin, 64, small_bytes)                                                   \
    X(ImageResult, image_result, 65, small_bytes)                                                 \
    X(PagesState, pages_state, 66, small_bytes)                                                   \
    /* instead of image_begin: memory ahead of the job's image, unframed */                       \
    X(PrecopyBegin, precopy_begin, 67, small_bytes)                                               \
    /* srun and its home agentd, over a unix socket (the caller's identity is the kernel's word,  \
       SO_PEERCRED) */                                                                            \
    X(Submit, submit, 80, list_bytes)                                                             \
    X(Submitted, submitted, 81, small_bytes)                                                      \
    X(Attach, attach, 82, small_bytes)                                                            \
    X(Attached, attached, 83, small_bytes)                                                        \
    X(Change, change, 84, small_bytes)                                                            \
    X(Output, output, 85, stdio_frame_bytes)                /* to srun: what the job wrote */     \
    X(OutputAck, output_ack, 86, small_bytes)               /* from srun: written up to there */  \
    X(Input, input, 87, stdio_frame_bytes)                  /* from srun: what it is to read */   \
    X(InputAck, input_ack, 88, small_bytes)                 /* to srun: need not be sent again */ \
    X(Winch, winch, 89, small_bytes)                                                              \
    X(Signal, signal, 90, small_bytes)                                                            \
    X(Notice, notice, 91, small_bytes)                      /* to srun: what became of the job */ \
    X(Exit, exit, 92, report_bytes)  /* to srun: it is finished and all its output was sent */
// clang-format on

SOUK_AGENT_WORDS(SOUK_WIRE_DECLARE)

// The words of a connection with an agentd.
constexpr uint32_t agent_words(FrameType type) {
    SOUK_AGENT_WORDS(SOUK_WIRE_BYTES_MAX)
    return market_words(type);
}

}  // namespace souk::wire
