// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/wire/codec.hpp"

#include "kernel/wire/field_codec.hpp"
#include "kernel/wire/message_fields.hpp"

namespace souk::wire {

namespace {

void check_hello(Hello& v, Check& c) {
    if (v.magic != hello_magic) c.bad("magic", "this is not souk's protocol");
    if (v.role != Role::tool && v.node.empty()) c.bad("node", "not a node name");
    if (v.role == Role::agent && v.address.empty()) c.bad("address", "missing");
}

}  // namespace

template <>
inline constexpr auto also_check<Hello> = check_hello;

SOUK_LISTED_CODEC(Hello, pb__hello)
SOUK_LISTED_CODEC(Welcome, pb__welcome)
SOUK_LISTED_CODEC(ErrorText, pb__error_text)
SOUK_LISTED_CODEC(Ok, pb__ok)
SOUK_LISTED_CODEC(CtlRequest, pb__ctl_request)
SOUK_LISTED_CODEC(CtlReply, pb__ctl_reply)

Status check_version(uint32_t version) {
    if (version == protocol_version) return {};
    return fail("the peer speaks version " + std::to_string(version) +
                " of souk's protocol, this program version " + std::to_string(protocol_version) +
                ": install the same release on both");
}

}  // namespace souk::wire
