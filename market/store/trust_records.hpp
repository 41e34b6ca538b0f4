// SPDX-License-Identifier: GPL-2.0-or-later
// These records say who may join the market and who has (join tokens, and the keys that the market
// has certified), which other sites are its peers, and what is open between it and each.
#pragma once

#include <string>
#include <string_view>

#include "kernel/trust/token.hpp"
#include "kernel/wire/codec.hpp"
#include "market/core/site_settlement.hpp"
#include "market/core/site_terms.hpp"

namespace souk {

struct Member {
    std::string key;   // its digest
    std::string name;  // of a node or an operator
    trust::Roles roles;
    Nanos joined, ends;  // of its newest certificate, in Unix time
    bool revoked = false;
    std::string users = {};  // as its token's
    std::string scope = {};  // as its certificate's (kernel/trust/subject.hpp)
    bool came = false;       // has been here with it
    bool operator==(const Member&) const = default;
};

// So many sites may become peers in all the time of a market.
inline constexpr uint32_t site_accounts_max = 65'535;

// Another site that this one's operator has taken as a peer: its card (kernel/trust/site_card.hpp),
// and what its jobs may do here.
struct SitePeer {
    std::string name, address, root;
    // The address as a number. A name is looked up when the peer is added, as the market waits for
    // no resolver.
    std::string reached;
    Nanos added;  // Unix time
    SiteTerms terms = {};
    uint32_t account = 0;  // market/core/site_guests.hpp; 0: none yet
    // Its nodes had so much here when it became a peer, from when it was one before: nobody owes
    // that to its new account.
    Money nodes_had = {};
    bool operator==(const SitePeer&) const = default;
};

namespace wire {

std::string pack(const trust::TokenRecord& record);
std::string pack(const Member& record);
std::string pack(const SitePeer& record);
std::string pack(const SiteSettlement& record);
template <>
Result<trust::TokenRecord> unpack<trust::TokenRecord>(std::string_view bytes);
template <>
Result<Member> unpack<Member>(std::string_view bytes);
template <>
Result<SitePeer> unpack<SitePeer>(std::string_view bytes);
template <>
Result<SiteSettlement> unpack<SiteSettlement>(std::string_view bytes);

}  // namespace wire
}  // namespace souk
