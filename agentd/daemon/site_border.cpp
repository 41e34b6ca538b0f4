// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/site_border.hpp"

#include "agentd/wire/codec.hpp"

namespace souk {
namespace {

template <class T>
Result<std::string> heard(const wire::Frame& f, std::string_view from, std::string_view own) {
    TRY_ASSIGN(T message, wire::unpack<T>(f.body));
    const auto hear = [&](NodeName& name) -> Status {
        TRY_ASSIGN(name, heard_from_site(name, from, own));
        return {};
    };
    if constexpr (requires { message.id; }) {
        TRY(hear(message.id.home));
    }
    if constexpr (requires { message.dest; }) {
        TRY(hear(message.dest));
    }
    if constexpr (requires { message.source; }) {
        TRY(hear(message.source));
    }
    if constexpr (requires { message.sender; }) {
        TRY(hear(message.sender));
    }
    return wire::pack(message);
}

}  // namespace

Result<std::string> heard_frame(const wire::Frame& f, std::string_view from, std::string_view own) {
    switch (f.type) {
        case wire::frame::guest_command: return heard<GuestCommand>(f, from, own);
        case wire::frame::guest_event: return heard<GuestEvent>(f, from, own);
        case wire::frame::expel: return heard<Expel>(f, from, own);
        case wire::frame::heartbeat: return heard<Heartbeat>(f, from, own);
        case wire::frame::stdio_data: return heard<wire::StdioData>(f, from, own);
        case wire::frame::stdio_ack: return heard<wire::StdioAck>(f, from, own);
        case wire::frame::stdio_input: return heard<wire::StdioInput>(f, from, own);
        case wire::frame::stdio_input_ack: return heard<wire::StdioInputAck>(f, from, own);
        case wire::frame::stdio_winch: return heard<wire::StdioWinch>(f, from, own);
        case wire::frame::image_begin: return heard<wire::ImageBegin>(f, from, own);
        case wire::frame::precopy_begin: return heard<wire::PrecopyBegin>(f, from, own);
        case wire::frame::files_begin: return heard<wire::FilesBegin>(f, from, own);
        default:
            return fail("a node of site " + std::string(from) + " sends no frame of type " +
                        std::to_string(static_cast<int>(f.type)));
    }
}

}  // namespace souk
