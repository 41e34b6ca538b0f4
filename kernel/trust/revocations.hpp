// SPDX-License-Identifier: GPL-2.0-or-later
// Revocations: the keys that a market takes no more, as a text that its issuing authority signs:
//
//   souk revocations 1
//   number 3
//   key 64-HEXADECIMAL-DIGITS NAME
//   signature HEXADECIMAL-DIGITS
//
// A key is revoked, not one certificate: renewed ones go with it. The number grows with each
// change; who has seen one takes no older list.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "kernel/trust/key.hpp"

namespace souk::trust {

struct Revocations {
    uint64_t number = 0;
    std::map<std::string, std::string> keys;  // digest of the key: whose it was
    bool has(const std::string& key) const { return keys.contains(key); }
    bool operator==(const Revocations&) const = default;
};

// Tells whether the text is a digest of a key, as it is written.
bool is_digest(std::string_view text);
inline constexpr size_t revocations_bytes_max = 1 << 20;
// EFBIG when it would be longer than that.
Result<std::string> sign(const Revocations& list, const Key& issuing);
// An error if it is no such text, or not signed with that key.
Result<Revocations> parse_revocations(std::string_view text, const Key& issuing);

}  // namespace souk::trust
