// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/wire/codec.hpp"
#include "agentd/wire/agentd.pb-c.h"
#include "agentd/wire/message_fields.hpp"
#include "agentd/wire/spec_check.hpp"
#include "kernel/wire/field_codec.hpp"

namespace souk::wire {
namespace {

void check_command(GuestCommand& v, Check& c) {
    const bool needs_spec =
        v.verb == GuestVerb::start || v.verb == GuestVerb::prepare || v.verb == GuestVerb::keep;
    if (needs_spec && v.spec.launch.argv.empty()) c.bad("spec", "missing");
    const bool sends = v.verb == GuestVerb::ship || v.verb == GuestVerb::checkpoint;
    if (sends && (v.dest.empty() || v.dest_address.empty())) c.bad("dest", "missing");
    if ((sends || v.verb == GuestVerb::restore_here) && v.new_epoch <= v.epoch)
        c.bad("new_epoch", "not newer than the epoch");
    if (v.verb == GuestVerb::signal) c.in("signal", v.signal, 1, 64);
}

void check_event(GuestEvent& v, Check&) {
    if (v.state != GuestState::dumping) v.forecast = {};
}

void check_image(ImageBegin& v, Check& c) {
    if (v.new_epoch <= v.from_epoch) c.bad("new_epoch", "not newer than the sender's");
}

void check_wish(PageRange& v, Check& c) {
    if (v.start % page_bytes != 0) c.bad("wishes", "not the start of a page");
}

void check_submit(Submit& v, Check& c) { check_given_spec(v.spec, c); }

}  // namespace

template <>
inline constexpr auto also_check<Submit> = check_submit;
template <>
inline constexpr auto also_check<GuestCommand> = check_command;
template <>
inline constexpr auto also_check<GuestEvent> = check_event;
template <>
inline constexpr auto also_check<ImageBegin> = check_image;
template <>
inline constexpr auto also_check<PageRange> = check_wish;

SOUK_AGENT_LISTED(SOUK_WIRE_LISTED)

Result<std::pair<JobId, Epoch>> job_named_in(FrameType type, std::string_view bytes) {
    const ProtobufCMessageDescriptor* message = nullptr;
    switch (type) {
        case frame::guest_command: message = &pb__guest_command__descriptor; break;
        case frame::guest_event: message = &pb__guest_event__descriptor; break;
        case frame::expel: message = &pb__expel__descriptor; break;
        case frame::stdio_data: message = &pb__stdio_data__descriptor; break;
        case frame::stdio_ack: message = &pb__stdio_ack__descriptor; break;
        case frame::stdio_input: message = &pb__stdio_input__descriptor; break;
        case frame::stdio_input_ack: message = &pb__stdio_input_ack__descriptor; break;
        case frame::stdio_winch: message = &pb__stdio_winch__descriptor; break;
        default: return fail("a message of no job");
    }
    // Each of them has the two fields of an Expel, by the same names.
    TRY_ASSIGN(Expel named, unpack_listed<Expel>(*message, bytes));
    return std::pair(std::move(named.id), named.epoch);
}

}  // namespace souk::wire
