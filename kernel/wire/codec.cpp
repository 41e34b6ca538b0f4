// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/wire/codec.hpp"

#include "kernel/wire/field_codec.hpp"
#include "kernel/wire/message_fields.hpp"

namespace souk::wire {

namespace {

void check_hello(Hello& v, Check& c) {
    if (v.magic != hello_magic) c.bad("magic", "this is not souk's protocol");
    if (v.role == Role::site && !valid_site_name(v.site)) c.bad("site", "not a site's name");
    if (v.role != Role::tool && v.role != Role::site && v.node.empty())
        c.bad("node", "not a node name");
    if (v.role == Role::agent && v.address.empty()) c.bad("address", "missing");
}

}  // namespace

template <>
inline constexpr auto also_check<Hello> = check_hello;

SOUK_COMMON_WORDS(SOUK_WIRE_LISTED)

Status check_version(uint32_t version, const std::string& program) {
    if (version == protocol_version) return {};
    const std::string own = souk::version();
    return fail("the peer" + (program.empty() ? "" : ", souk " + program + ",") +
                " speaks version " + std::to_string(version) +
                " of souk's protocol, this program, souk " + own + ", version " +
                std::to_string(protocol_version) +
                (version < protocol_version ? ": upgrade the peer" : ": upgrade this program"));
}

}  // namespace souk::wire
