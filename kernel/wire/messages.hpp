// SPDX-License-Identifier: GPL-2.0-or-later
// These messages open every connection, and carry a question and its answer, as plain values. None
// of them knows what a connection is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/base/version.hpp"

namespace souk::wire {

inline constexpr uint32_t hello_magic = 0x4b554f53;  // "SOUK" on the wire
inline constexpr uint32_t protocol_version = 2;
// Fails if this program cannot talk with a peer of that version of the protocol (hello and welcome
// carry it). The error names both versions, and which of the two is to be upgraded. `program` is
// the peer's own version, empty if it does not say.
Status check_version(uint32_t version, const std::string& program);

inline constexpr size_t json_bytes_max = 1024 * 1024;  // in one answer
// a list that is longer is answered in parts
inline constexpr size_t json_part_bytes = 256 * 1024;

// relay: a node at a gateway
enum class Role : uint8_t { agent = 1, tool, image, joiner, site, relay };

struct Hello {
    uint32_t magic = hello_magic;
    uint32_t version = protocol_version;
    Role role = Role::tool;
    NodeName node;         // agent, image: who it is; joiner: who it wants to be
    std::string address;   // agent: where its own agentd listens, a NodeAddress
    bool answers = false;  // agent: the market may ask it (ctl_request); versions before that end
                           // the connection
    bool tickets = false;  // agent: it knows ticket_keys; older versions end the connection
    std::string program = souk::version();  // of the sender: `souk --version`; empty: an older one
    std::string site = {};                  // the market of a peer: its own name among sites
    // An agent knows peer_sites, and the market of a peer takes jobs of another site; older
    // versions end the connection at such words.
    bool sites = false;
    uint32_t knows = 0;  // the market of a peer: as Welcome::knows
    bool operator==(const Hello&) const = default;
};
struct Welcome {
    uint32_t version = protocol_version;
    std::string name;  // the node's or the market's
    // the market to an agent: where it tells others that this agent is reached
    std::string address = {};
    bool tags = false;       // an agent to one that sends an image: it takes a tag behind it
    bool takes_use = false;  // the market: it knows use_report
    Nanos time = {};         // Unix time, by the clock of who says it; 0: an older version
    std::string program = souk::version();  // as in Hello
    // Bits of what older versions would pass over: an agent's (files_choice.hpp), a market's
    // (market/daemon/sites.hpp).
    uint32_t knows = 0;
    bool operator==(const Welcome&) const = default;
};
struct ErrorText {
    Cause text;
    bool operator==(const ErrorText&) const = default;
};
struct Ok {
    bool operator==(const Ok&) const = default;
};
// One question of pvdctl or marketctl. `request` pairs it with its reply; `uid` is set by the
// agentd that relays it.
struct CtlRequest {
    uint64_t request = 0;
    uint32_t uid = 0;
    std::string verb;
    std::vector<std::string> args;
    // for a list: the part after this one is wanted; it is the `next` of the answer before
    std::string after;
    bool operator==(const CtlRequest&) const = default;
};
struct CtlReply {
    uint64_t request = 0;
    bool ok = false;
    Cause error;        // one line
    std::string json;   // tools/common/replies.md says which keys
    std::string next;   // the list goes on after this one; empty: that was all
    bool away = false;  // not asked: there is no connection to the market now
    bool operator==(const CtlReply&) const = default;
};
// Makes the answer to the question of that number, or says why there is none.
inline CtlReply reply_to(uint64_t request, Result<std::string> json) {
    if (json) return {request, true, {}, std::move(*json), {}};
    return {request, false, as_asked(std::move(json).error()), {}, {}};
}

// A joiner sends this to the market: it has a token and no certificate yet.
struct Join {
    std::string token, secret;  // the token's id and secret
    std::string request;        // for a certificate (kernel/trust/certificate.hpp)
    bool operator==(const Join&) const = default;
};
// An agent sends this at half of its certificate's life, with the key that it has.
struct Renew {
    std::string request;
    bool operator==(const Renew&) const = default;
};
// The market answers Join and Renew with this.
struct Certified {
    std::string chain;    // PEM: its own, the issuing authority's
    std::string revoked;  // the newest signed list
    std::string tickets;  // the signed list of the keys of tickets, the newest; empty: an older
                          // version
    // For a joiner: until then nodes talk without certificates (Unix time); 0: they do not.
    Nanos insecure_until = {};
    bool operator==(const Certified&) const = default;
};
// The market to all agents, at their connection and at each change: the newest signed list.
struct Revoked {
    std::string list;
    bool operator==(const Revoked&) const = default;
};

// The market sends these to agents too: the public keys that tickets are signed with (a text,
// kernel/trust/ticket_key.hpp), and what the market's clock shows.
struct TicketKeys {
    std::string keys;
    Nanos now;         // Unix time
    std::string list;  // the same keys, signed (kernel/trust/ticket_list.hpp); empty: an older one
    bool operator==(const TicketKeys&) const = default;
};

// The market to agents: which other sites are peers of theirs (docs/sites.md).
struct PeerSites {
    static constexpr size_t most = 256, line_bytes_max = 160;
    std::string own;                 // this site's name
    std::vector<std::string> roots;  // "DIGEST NAME": the root of a peer's certificates
    bool operator==(const PeerSites&) const = default;
};

// Any connection. The first frame of whoever connected is a hello; the answer is a welcome, or an
// error and the end. error_text: one line; after it the sender closes, except on a tool's
// connection (the request has failed). ok: to a tool: done. ctl_request: of pvdctl and marketctl to
// agentd, relayed by it to the market, or of marketctl to marketd; ctl_reply: the answer, the same
// way back. A line: the struct, the name of its frame and of its message in the .proto, the frame's
// number, the longest body in bytes.
// clang-format off
#define SOUK_COMMON_WORDS(X)                          \
    X(Hello, hello, 1, small_bytes)                   \
    X(Welcome, welcome, 2, small_bytes)               \
    X(ErrorText, error_text, 3, small_bytes)          \
    X(Ok, ok, 4, small_bytes)                         \
    X(CtlRequest, ctl_request, 5, report_bytes)       \
    X(CtlReply, ctl_reply, 6, json_bytes_max + 4096)
// clang-format on

}  // namespace souk::wire
