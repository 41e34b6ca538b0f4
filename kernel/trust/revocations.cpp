// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/revocations.hpp"

#include <algorithm>
#include <cerrno>

#include "kernel/base/ids.hpp"
#include "kernel/base/number.hpp"
#include "kernel/trust/signed_text.hpp"

namespace souk::trust {
namespace {

constexpr std::string_view heading = "souk revocations 1\n";
constexpr size_t digest_digits = 64;

Status take(std::string_view words, Revocations& list) {
    if (words.starts_with("number ")) {
        const auto number = whole_number<uint64_t>(words.substr(7));
        if (!number) return fail("a revocation list without a number");
        list.number = *number;
        return {};
    }
    if (!words.starts_with("key ") || words.size() < 4 + digest_digits + 2)
        return fail("a revocation list with an unknown line");
    const std::string_view digest = words.substr(4, digest_digits),
                           name = words.substr(4 + digest_digits + 1);
    if (!is_digest(digest) || words[4 + digest_digits] != ' ' || !valid_node_name(name))
        return fail("a revocation list with an unknown line");
    list.keys.emplace(digest, name);
    return {};
}

}  // namespace

bool is_digest(std::string_view text) {
    return text.size() == digest_digits && std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

Result<std::string> sign(const Revocations& list, const Key& issuing) {
    std::string text(heading);
    text += "number " + std::to_string(list.number) + "\n";
    for (const auto& [key, name] : list.keys) {
        text += "key ";
        text += key;
        text += " " + name + "\n";
    }
    TRY_ASSIGN(text, sign_text(std::move(text), issuing));
    if (text.size() > revocations_bytes_max)
        return tl::unexpected(Error{EFBIG, "too many keys are revoked for one list"});
    return text;
}

Result<Revocations> parse_revocations(std::string_view text, const Key& issuing) {
    TRY_ASSIGN(SignedText found,
               take_apart(text, heading, "revocation list", revocations_bytes_max));
    Revocations list;
    while (!found.lines.empty()) TRY(take(take_line(found.lines), list));
    if (!found.is_of(issuing)) return fail("a revocation list that this market has not signed");
    return list;
}

}  // namespace souk::trust
