// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/token.hpp"

#include <algorithm>

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk::trust {
namespace {

constexpr std::string_view prefix = "souk1.";
constexpr size_t id_digits = 8, secret_digits = 32, root_digits = 64;
constexpr size_t token_bytes = prefix.size() + id_digits + 1 + secret_digits + 1 + root_digits;

bool is_hex(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

Result<Token> parse_token(std::string_view text) {
    const auto wrong = [](const char* why) {
        return fail(CauseCode::invalid, std::string("this is no join token of souk: ") + why);
    };
    if (!text.starts_with(prefix)) return wrong("it begins with souk1.");
    if (text.size() != token_bytes)
        return wrong(text.size() < token_bytes ? "a part of it is missing" : "it is too long");
    std::string_view rest = text.substr(prefix.size());
    Token token;
    token.id = rest.substr(0, id_digits);
    token.secret = rest.substr(id_digits + 1, secret_digits);
    token.root = rest.substr(id_digits + 1 + secret_digits + 1);
    if (rest[id_digits] != '.' || rest[id_digits + 1 + secret_digits] != '.' || !is_hex(token.id) ||
        !is_hex(token.secret) || !is_hex(token.root))
        return wrong("it has a wrong character");
    return token;
}

Status check_names(std::string_view names) {
    std::string_view begin = names;
    if (begin.ends_with('*')) begin.remove_suffix(1);
    if (begin.empty() && !names.empty()) return {};  // any name
    // The beginning of a name is a name.
    if (valid_node_name(begin)) return {};
    return fail("'" + std::string(names.substr(0, 40)) +
                "' is neither a node's name nor a pattern such as gpu-*");
}

bool names_match(std::string_view names, std::string_view name) {
    if (!names.ends_with('*')) return names == name;
    return name.starts_with(names.substr(0, names.size() - 1));
}

Result<NewToken> make_token(std::string_view root, std::string_view names, Roles roles, Nanos now,
                            Nanos life) {
    TRY(check_names(names));
    TRY_ASSIGN(const std::string id, random_secret(id_digits / 2));
    TRY_ASSIGN(const std::string secret, random_secret(secret_digits / 2));
    NewToken made;
    made.token = {id, secret, std::string(root)};
    made.record = {
        made.token.id, sha256(made.token.secret), std::string(names), roles, now + life, {}};
    return made;
}

Status may_join(const TokenRecord& record, std::string_view secret, std::string_view name,
                Nanos now) {
    if (!is_same_secret(sha256(secret), record.secret_digest))
        return fail(CauseCode::not_found, "the market knows no such token");
    if (!record.used_by.empty())
        return fail(CauseCode::not_possible,
                    "the token " + record.id + " was used already, by " + record.used_by);
    if (now >= record.ends)
        return fail(CauseCode::not_possible, "the token " + record.id + " was good until " +
                                                 date_text(record.ends) +
                                                 "; the market's clock says " + date_text(now));
    if (!names_match(record.names, name))
        return fail(CauseCode::not_allowed, "the token " + record.id + " is for " + record.names +
                                                ", not for " + std::string(name));
    return {};
}

}  // namespace souk::trust
