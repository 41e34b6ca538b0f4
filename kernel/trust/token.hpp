// SPDX-License-Identifier: GPL-2.0-or-later
// Join tokens: with one a new node proves to the market that an operator wants it, and recognises
// the market before it says anything: souk1.ID.SECRET.CA, with 8 digits of an id, 32 of the secret
// and 64 of the SHA-256 of the root certificate, all hexadecimal. One use, within an hour, for a
// name or a pattern (`gpu-*`) and roles. The market keeps a digest of the secret, not the secret.
#pragma once

#include <string>
#include <string_view>

#include "kernel/base/time.hpp"
#include "kernel/trust/subject.hpp"

namespace souk::trust {

inline constexpr Nanos token_life = Nanos::from_s(3'600);

struct Token {
    std::string id, secret, root;  // hexadecimal digits
    std::string text() const { return "souk1." + id + "." + secret + "." + root; }
    bool operator==(const Token&) const = default;
};
Result<Token> parse_token(std::string_view text);

// The market keeps this of a token.
struct TokenRecord {
    std::string id, secret_digest;
    std::string names;  // a name, or the beginning of names and *
    Roles roles;
    Nanos ends;              // in Unix time
    std::string used_by;     // a node; empty: it is still good
    std::string realm = {};  // of whoever joins with it; empty: the market's own
    std::string users = {};  // for whom it speaks: "20000-29999"; empty: for all
    bool operator==(const TokenRecord&) const = default;
};

struct NewToken {
    Token token;
    TokenRecord record;
};
// `root`: the digest of the root certificate.
Result<NewToken> make_token(std::string_view root, std::string_view names, Roles roles, Nanos now,
                            Nanos life = token_life);
Status check_names(std::string_view names);
bool names_match(std::string_view names, std::string_view name);
// Fails if a node of that name may not join with the token now, and says why. A wrong secret is
// said first, so that the rest is told to the token's holder alone.
Status may_join(const TokenRecord& record, std::string_view secret, std::string_view name,
                Nanos now);

}  // namespace souk::trust
