// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/wire/codec.hpp"

#include "kernel/wire/codec_parts.hpp"

namespace souk::wire {
namespace {

constexpr size_t args_max = 16;  // of a ctl_request

void fill(const Hello& v, Pb__Hello& m, Arena& a) {
    m.magic = v.magic;
    m.version = v.version;
    m.role = static_cast<uint32_t>(v.role);
    m.node = fill_string(v.node, a);
    m.address = fill_string(v.address, a);
    m.answers = v.answers;
}

// The version is the receiver's to judge: it answers an error that names both.
Hello take(const Pb__Hello& m, Check& c) {
    Hello v;
    if (m.magic != hello_magic) c.bad("magic", "this is not souk's protocol");
    v.version = m.version;
    v.role = c.one_of("role", m.role, Role::agent, Role::image);
    v.node = v.role == Role::tool ? c.node_or_none("node", m.node) : c.node("node", m.node);
    v.address = c.address("address", m.address);
    v.answers = m.answers;
    if (v.role == Role::agent && v.address.empty()) c.bad("address", "missing");
    return v;
}

void fill(const Welcome& v, Pb__Welcome& m, Arena& a) {
    m.version = v.version;
    m.name = fill_line(v.name, a, name_max);
    m.address = fill_string(v.address, a);
}

Welcome take(const Pb__Welcome& m, Check& c) {
    return {m.version, clean(m.name, name_max), c.address("address", m.address)};
}

void fill(const ErrorText& v, Pb__ErrorText& m, Arena& a) { m.text = fill_line(v.text, a); }

ErrorText take(const Pb__ErrorText& m, Check&) { return {clean(m.text)}; }

void fill(const Ok&, Pb__Ok&, Arena&) {}

Ok take(const Pb__Ok&, Check&) { return {}; }

void fill(const CtlRequest& v, Pb__CtlRequest& m, Arena& a) {
    m.request = v.request;
    m.uid = v.uid;
    m.verb = fill_line(v.verb, a);
    m.n_args = v.args.size();
    m.args = a.array<char*>(v.args.size());
    for (size_t i = 0; i < v.args.size(); ++i) m.args[i] = fill_line(v.args[i], a);
    m.after = fill_line(v.after, a);
}

CtlRequest take(const Pb__CtlRequest& m, Check& c) {
    CtlRequest v{m.request, m.uid, clean(m.verb), {}, clean(m.after)};
    if (m.n_args > args_max) c.bad("args", "more than " + std::to_string(args_max));
    for (size_t i = 0; i < m.n_args && c.ok(); ++i) v.args.push_back(clean(m.args[i]));
    return v;
}

void fill(const CtlReply& v, Pb__CtlReply& m, Arena& a) {
    m.request = v.request;
    m.ok = v.ok;
    m.error = fill_line(v.error, a);
    m.json = fill_bytes(v.json);
    m.next = fill_line(v.next, a);
    m.away = v.away;
}

CtlReply take(const Pb__CtlReply& m, Check& c) {
    return {m.request,     bool(m.ok),  clean(m.error), c.data("json", m.json, json_bytes_max),
            clean(m.next), bool(m.away)};
}

}  // namespace

SOUK_WIRE_CODEC(Hello, Pb__Hello, pb__hello)
SOUK_WIRE_CODEC(Welcome, Pb__Welcome, pb__welcome)
SOUK_WIRE_CODEC(ErrorText, Pb__ErrorText, pb__error_text)
SOUK_WIRE_CODEC(Ok, Pb__Ok, pb__ok)
SOUK_WIRE_CODEC(CtlRequest, Pb__CtlRequest, pb__ctl_request)
SOUK_WIRE_CODEC(CtlReply, Pb__CtlReply, pb__ctl_reply)

Status check_version(uint32_t version) {
    if (version == protocol_version) return {};
    return fail("the peer speaks version " + std::to_string(version) +
                " of souk's protocol, this program version " + std::to_string(protocol_version) +
                ": install the same release on both");
}

}  // namespace souk::wire
