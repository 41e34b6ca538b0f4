// SPDX-License-Identifier: GPL-2.0-or-later
// agentd and souk-handshake exchange these packets, on a socket of packets (SOCK_SEQPACKET):
//
//   agentd:          identity (a file, SCM_RIGHTS), shake (a connection, SCM_RIGHTS), forget,
//                    examine (certificates, as a file)
//   souk-handshake:  taken (an identity), shaken, failed, examined
//
// agentd does not trust souk-handshake: a packet from it is bounded, and is refused as a whole
// unless every byte fits. Numbers are little-endian; a text has its length before it. Both ends are
// of one build, so no other version has to read this. This codec is all that root reads of a
// process that may have been taken over, so it is short enough to be looked through at once,
// without protobuf-c below it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "kernel/wire/records.hpp"

namespace souk::handshake {

inline constexpr size_t packet_bytes_max = 2048, why_bytes_max = 600;

// agentd sends these to souk-handshake. Files come with their packet.
struct UseIdentity {
    bool operator==(const UseIdentity&) const = default;
};
struct Shake {
    uint64_t number = 0;
    bool connects = false;
    trust::Roles roles;  // that the peer must have one of
    std::string name;    // that it must have; empty: any
    bool operator==(const Shake&) const = default;
};
struct Forget {
    uint64_t number = 0;
    bool operator==(const Forget&) const = default;
};
struct Examine {
    uint64_t number = 0;
    bool operator==(const Examine&) const = default;
};
using Asked = std::variant<UseIdentity, Shake, Forget, Examine>;

// souk-handshake sends these.
struct Taken {};
struct Shaken {
    uint64_t number = 0;
    wire::SessionKeys keys;
};
struct Failed {
    uint64_t number = 0;  // 0: of the identity
    int32_t code = 0;
    std::string why;  // one line
};
// Says whose certificates these are: they are good here and now.
struct Examined {
    uint64_t number = 0;
    trust::Peer peer;
};
using Told = std::variant<Taken, Shaken, Failed, Examined>;

std::string pack(const Asked& asked);
std::string pack(const Told& told);
Result<Asked> parse_asked(std::string_view packet);
Result<Told> parse_told(std::string_view packet);

// An identity as the text of a file: its key, its certificates, its root, who is revoked, and the
// roots of other sites (lines of a digest and a name each).
struct IdentityText {
    std::string key, chain, root, revoked, sites;
    bool operator==(const IdentityText&) const = default;
};
inline constexpr size_t identity_bytes_max = 2 << 20;
std::string pack(const IdentityText& identity);
Result<IdentityText> parse_identity(std::string_view bytes);

}  // namespace souk::handshake
