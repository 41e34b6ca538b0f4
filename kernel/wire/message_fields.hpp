// SPDX-License-Identifier: GPL-2.0-or-later
// The lists of fields (kernel/base/fields.hpp) of messages.hpp. Codec files alone include it.
#pragma once

#include "kernel/base/value_fields.hpp"
#include "kernel/wire/messages.hpp"

namespace souk {

// The version is the receiver's to judge: it answers an error that names both.
SOUK_FIELDS(wire::Hello,  //
            field("magic", &wire::Hello::magic), field("version", &wire::Hello::version),
            field("role", &wire::Hello::role, rule::one_of(wire::Role::agent, wire::Role::relay)),
            field("node", &wire::Hello::node, rule::node_or_none),
            field("address", &wire::Hello::address, rule::address),
            field("answers", &wire::Hello::answers), field("tickets", &wire::Hello::tickets),
            field("program", &wire::Hello::program, rule::name),
            field("site", &wire::Hello::site, rule::name), field("sites", &wire::Hello::sites),
            field("knows", &wire::Hello::knows));

SOUK_FIELDS(wire::Welcome, field("version", &wire::Welcome::version),
            field("name", &wire::Welcome::name, rule::name),
            field("address", &wire::Welcome::address, rule::address),
            field("tags", &wire::Welcome::tags), field("takes_use", &wire::Welcome::takes_use),
            field("time", &wire::Welcome::time, rule::time),
            field("program", &wire::Welcome::program, rule::name),
            field("knows", &wire::Welcome::knows));

SOUK_FIELDS(wire::ErrorText, field("text", &wire::ErrorText::text),
            part("code", &wire::ErrorText::text, &Cause::code, cause_rule));

SOUK_FIELDS(wire::Ok);

SOUK_FIELDS(wire::CtlRequest,  //
            field("request", &wire::CtlRequest::request), field("uid", &wire::CtlRequest::uid),
            field("verb", &wire::CtlRequest::verb),
            field("args", &wire::CtlRequest::args, rule::at_most(16)),
            field("after", &wire::CtlRequest::after));

SOUK_FIELDS(wire::CtlReply,  //
            field("request", &wire::CtlReply::request), field("ok", &wire::CtlReply::ok),
            field("error", &wire::CtlReply::error),
            field("json", &wire::CtlReply::json, rule::text(TextRule::bytes, wire::json_bytes_max)),
            field("next", &wire::CtlReply::next), field("away", &wire::CtlReply::away),
            part("code", &wire::CtlReply::error, &Cause::code, cause_rule));

SOUK_FIELDS(wire::Join,  //
            field("token", &wire::Join::token, rule::text(TextRule::bytes, 8)),
            field("secret", &wire::Join::secret, rule::text(TextRule::bytes, 32)),
            field("request", &wire::Join::request, rule::text(TextRule::bytes, 2048)));

SOUK_FIELDS(wire::Renew,
            field("request", &wire::Renew::request, rule::text(TextRule::bytes, 2048)));

SOUK_FIELDS(wire::Certified,  //
            field("chain", &wire::Certified::chain, rule::text(TextRule::bytes, 65'536)),
            field("revoked", &wire::Certified::revoked, rule::text(TextRule::bytes, 1 << 20)),
            field("tickets", &wire::Certified::tickets, rule::text(TextRule::bytes, 4096)),
            field("insecure_until", &wire::Certified::insecure_until, rule::time));

SOUK_FIELDS(wire::Revoked,
            field("list", &wire::Revoked::list, rule::text(TextRule::bytes, 1 << 20)));

SOUK_FIELDS(wire::TicketKeys,
            field("keys", &wire::TicketKeys::keys, rule::text(TextRule::bytes, 4096)),
            field("now", &wire::TicketKeys::now, rule::time),
            field("list", &wire::TicketKeys::list, rule::text(TextRule::bytes, 4096)));

SOUK_FIELDS(wire::PeerSites, field("own", &wire::PeerSites::own, rule::name),
            field("roots", &wire::PeerSites::roots,
                  rule::at_most(wire::PeerSites::most,
                                rule::text(TextRule::line, wire::PeerSites::line_bytes_max))));

}  // namespace souk
