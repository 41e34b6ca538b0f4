// SPDX-License-Identifier: GPL-2.0-or-later
// A site's card: what another site's operator must have to take it as a peer, as one word:
// souk-site/NAME/HOST:PORT/ROOT, ROOT being the SHA-256 of the root certificate of its market in
// hexadecimal digits. It is no secret. Whoever can change it on its way can be that peer, so both
// operators compare it, or send it by a way that they trust. Pure.
#pragma once

#include <string>
#include <string_view>

#include "kernel/base/result.hpp"

namespace souk::trust {

struct SiteCard {
    std::string name;
    std::string address;  // of its market; empty: nobody reaches it, and it calls by itself
    std::string root;
    std::string text() const;
    bool operator==(const SiteCard&) const = default;
};

// Errors: it is no card, and which part of it is wrong.
Result<SiteCard> parse_site_card(std::string_view text);

}  // namespace souk::trust
