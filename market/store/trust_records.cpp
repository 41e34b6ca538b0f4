// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/trust_records.hpp"

#include "kernel/base/fields.hpp"
#include "kernel/wire/field_codec.hpp"
#include "market/core/message_fields.hpp"
#include "market/store/records.pb-c.h"

namespace souk {

SOUK_FIELDS(trust::Roles, field("roles", &trust::Roles::bits, rule::between(0, 31)));

SOUK_FIELDS(trust::TokenRecord,  //
            field("id", &trust::TokenRecord::id),
            field("secret_digest", &trust::TokenRecord::secret_digest),
            field("names", &trust::TokenRecord::names), flat(&trust::TokenRecord::roles),
            field("ends", &trust::TokenRecord::ends, rule::time),
            field("used_by", &trust::TokenRecord::used_by),
            field("realm", &trust::TokenRecord::realm, rule::name),
            field("users", &trust::TokenRecord::users));

SOUK_FIELDS(Member,  //
            field("key", &Member::key), field("name", &Member::name, rule::node),
            flat(&Member::roles), field("joined", &Member::joined, rule::time),
            field("ends", &Member::ends, rule::time), field("revoked", &Member::revoked),
            field("users", &Member::users), field("scope", &Member::scope, rule::name),
            field("came", &Member::came));

SOUK_FIELDS(SitePeer,  //
            field("name", &SitePeer::name, rule::name), field("address", &SitePeer::address),
            field("reached", &SitePeer::reached, rule::address), field("root", &SitePeer::root),
            field("added", &SitePeer::added, rule::time), flat(&SitePeer::terms),
            field("account", &SitePeer::account, rule::between(0, site_accounts_max)),
            field("nodes_had", &SitePeer::nodes_had, rule::balance));

namespace wire {

SOUK_RECORD_CODEC(trust::TokenRecord, pb__join_token)
SOUK_RECORD_CODEC(Member, pb__member)
SOUK_RECORD_CODEC(SitePeer, pb__site_peer)
SOUK_RECORD_CODEC(SiteSettlement, pb__peer_settlement)

}  // namespace wire
}  // namespace souk
