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

}  // namespace souk::wire
