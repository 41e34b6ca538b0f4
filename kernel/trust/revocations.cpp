// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/revocations.hpp"

#include <algorithm>
#include <cerrno>

#include "kernel/base/ids.hpp"
#include "kernel/base/number.hpp"

namespace souk::trust {
namespace {

constexpr std::string_view heading = "souk revocations 1\n", signed_by = "signature ";
constexpr size_t digest_digits = 64;

// The next line, without its end; takes it off.
Result<std::string_view> line(std::string_view& text) {
    const size_t end = text.find('\n');
    if (end == text.npos) return fail("a revocation list that ends in the middle of a line");
    const std::string_view found = text.substr(0, end);
    text.remove_prefix(end + 1);
    return found;
}

bool is_digest(std::string_view text) {
    return text.size() == digest_digits && std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

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

Result<std::string> sign(const Revocations& list, const Key& issuing) {
    std::string text(heading);
    text += "number " + std::to_string(list.number) + "\n";
    for (const auto& [key, name] : list.keys) {
        text += "key ";
        text += key;
        text += " " + name + "\n";
    }
    TRY_ASSIGN(const std::string signature, issuing.sign(text));
    text += std::string(signed_by) + hex(signature) + "\n";
    if (text.size() > revocations_bytes_max)
        return tl::unexpected(Error{EFBIG, "too many keys are revoked for one list"});
    return text;
}

Result<Revocations> parse_revocations(std::string_view text, const Key& issuing) {
    if (text.size() > revocations_bytes_max) return fail("a revocation list of too many bytes");
    if (!text.starts_with(heading)) return fail("this is no revocation list");
    std::string_view rest = text.substr(heading.size());
    Revocations list;
    while (!rest.starts_with(signed_by)) {
        TRY_ASSIGN(const std::string_view words, line(rest));
        TRY(take(words, list));
    }
    const std::string_view body = text.substr(0, text.size() - rest.size());
    TRY_ASSIGN(const std::string_view last, line(rest));
    if (!rest.empty()) return fail("a revocation list that goes on behind its signature");
    TRY_ASSIGN(const std::string signature, from_hex(last.substr(signed_by.size())));
    if (!issuing.verify(body, signature))
        return fail("a revocation list that this market has not signed");
    return list;
}

}  // namespace souk::trust
