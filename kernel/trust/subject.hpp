// SPDX-License-Identifier: GPL-2.0-or-later
// A Subject is whom a certificate names, and as what. A certificate says it in its URIs of
// subjectAltName: souk:node/NAME, souk:market/NAME, souk:operator/NAME or souk:owner/NAME, and of a
// node souk:role/home and souk:role/provider. A node of another realm than the market's own has
// souk:realm/REALM, and an owner's certificate souk:owns/NODE. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::trust {

// No certificate says `site`: it is what the market of a peer is here, whose certificate a root of
// its own has signed (kernel/wire/tls.hpp), whatever that says of itself.
enum class Role : uint8_t {
    home = 1,
    provider = 2,
    market = 4,
    operator_ = 8,
    owner = 16,
    site = 32
};

// A set of roles.
struct Roles {
    uint32_t bits = 0;
    bool has(Role role) const { return (bits & static_cast<uint32_t>(role)) != 0; }
    bool within(Roles other) const { return (bits & ~other.bits) == 0; }
    bool operator==(const Roles&) const = default;
};
constexpr Roles operator|(Role a, Role b) {
    return {static_cast<uint32_t>(a) | static_cast<uint32_t>(b)};
}
constexpr Roles only(Role role) { return {static_cast<uint32_t>(role)}; }
inline constexpr Roles node_roles = Role::home | Role::provider;

struct Subject {
    std::string name;  // as a node's (kernel/base/ids.hpp)
    Roles roles;
    // of a node: the realm whose users it speaks for, empty: the market's own; of an owner: the
    // node
    std::string scope = {};
    bool operator==(const Subject&) const = default;
};

// "home,provider"
std::string text_of(Roles roles);
// Parses the roles of a node: home, provider or both.
Result<Roles> parse_node_roles(std::string_view text);

// A node is home, provider or both and nothing else; a market, an operator and an owner
// are that alone.
Status check(const Subject& subject);
std::vector<std::string> uris_of(const Subject& subject);
Result<Subject> subject_of(const std::vector<std::string>& uris);

}  // namespace souk::trust
