// SPDX-License-Identifier: GPL-2.0-or-later
// Messages as bytes and back (protobuf-c, souk.proto). pack() cannot fail. unpack() believes
// nothing: every enum, name, length, count and amount is checked, so that no bytes from outside can
// break an invariant of the machines; its error is one line that names the message and the field.
// Lines for people (comment, why, user, name, command, text) are cleaned instead: control
// characters become blanks and what is too long is cut, both ways. What a field may be is said
// once, in codec_parts.hpp and at its check.
#pragma once

#include <string>
#include <string_view>

#include "agentd/core/guest.hpp"
#include "agentd/core/home.hpp"
#include "agentd/core/provider.hpp"
#include "agentd/wire/messages.hpp"
#include "kernel/base/result.hpp"
#include "market/wire/types.hpp"

namespace souk::wire {

template <class T>
Result<T> unpack(std::string_view bytes) = delete;  // only the messages below
template <class T>
inline constexpr FrameType frame_type = FrameType{};

// Every message that travels, and the type of its frame.
// clang-format off
#define SOUK_WIRE_MESSAGES(X)                                                                    \
    X(Hello, hello) X(Welcome, welcome) X(ErrorText, error) X(Ok, ok)                            \
    X(CtlRequest, ctl_request) X(CtlReply, ctl_reply) X(JobReport, job_report)                   \
    X(ProviderReport, provider_report) X(OrderFailed, order_failed) X(Order, order)              \
    X(JobNote, job_note) X(ProviderNote, provider_note) X(Directory, directory)                  \
    X(NodeLost, node_lost) X(GuestCommand, guest_command) X(GuestEvent, guest_event)             \
    X(Expel, expel) X(Heartbeat, heartbeat) X(StdioData, stdio_data) X(StdioAck, stdio_ack)      \
    X(StdioInput, stdio_input) X(StdioInputAck, stdio_input_ack) X(StdioWinch, stdio_winch)      \
    X(ImageBegin, image_begin) X(ImageResult, image_result) X(PagesState, pages_state)           \
    X(PrecopyBegin, precopy_begin) X(Submit, submit) X(Submitted, submitted) X(Attach, attach)   \
    X(Attached, attached) X(Change, change) X(Output, output) X(OutputAck, output_ack)           \
    X(Input, input) X(InputAck, input_ack) X(Winch, winch) X(Signal, signal) X(Notice, notice)   \
    X(Exit, exit)
// clang-format on

#define SOUK_WIRE_DECLARE(T, type)               \
    std::string pack(const T& message);          \
    template <>                                  \
    Result<T> unpack<T>(std::string_view bytes); \
    template <>                                  \
    inline constexpr FrameType frame_type<T> = FrameType::type;
SOUK_WIRE_MESSAGES(SOUK_WIRE_DECLARE)
#undef SOUK_WIRE_DECLARE

// Records on disk. An older program's record reads with the defaults of the fields that it lacks.
std::string pack(const HomeJob& job);
std::string pack(const GuestJob& job);
std::string pack(const ProviderRecord& record);
template <>
Result<HomeJob> unpack<HomeJob>(std::string_view bytes);
template <>
Result<GuestJob> unpack<GuestJob>(std::string_view bytes);
template <>
Result<ProviderRecord> unpack<ProviderRecord>(std::string_view bytes);

// The unions of the market's protocol. An error: a type that is not one of theirs.
FrameType type_of(const ToMarket& message);
FrameType type_of(const FromMarket& message);
std::string pack(const ToMarket& message);
std::string pack(const FromMarket& message);
Result<ToMarket> unpack_to_market(FrameType type, std::string_view bytes);
Result<FromMarket> unpack_from_market(FrameType type, std::string_view bytes);

}  // namespace souk::wire
