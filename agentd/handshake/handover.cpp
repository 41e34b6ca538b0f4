// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/handshake/handover.hpp"

#include <algorithm>

#include "kernel/base/ids.hpp"
#include "kernel/base/packing.hpp"
#include "kernel/base/text.hpp"

namespace souk::handshake {
namespace {

enum class Kind : uint8_t {
    identity = 1,
    shake = 2,
    forget = 3,
    examine = 4,
    taken = 16,
    shaken = 17,
    failed = 18,
    examined = 19
};

struct Writer : PackWriter {
    explicit Writer(Kind kind) { number(static_cast<uint8_t>(kind), 1); }
    void peer(const trust::Peer& peer) {
        text(peer.subject.name);
        number(peer.subject.roles.bits, 4);
        text(peer.subject.scope);
        text(peer.key);
        number(static_cast<uint64_t>(peer.ends.ns), 8);
        text(peer.site);
    }
};

struct Reader : PackReader {
    explicit Reader(std::string_view packet) : PackReader{packet} {}
    trust::Peer peer() {
        trust::Peer peer;
        peer.subject.name = text(64);
        peer.subject.roles.bits = static_cast<uint32_t>(number(4));
        peer.subject.scope = text(64);
        peer.key = text(64);
        peer.ends = Nanos{static_cast<int64_t>(number(8))};
        peer.site = text(64);
        return peer;
    }
};

Status check(const trust::Peer& peer) {
    TRY(trust::check(peer.subject));
    if (!peer.site.empty() && !valid_site_name(peer.site)) return fail("a peer of no site");
    if (!peer.site.empty() && !peer.subject.roles.within(trust::node_roles))
        return fail("a peer of another site that is no node");
    const bool digest =
        peer.key.size() == 64 && std::all_of(peer.key.begin(), peer.key.end(), [](char c) {
            return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        });
    return digest ? Status{} : Status(fail("a peer whose key has no digest"));
}

// A line for the log, whoever made it.
std::string line_of(std::string_view text) {
    return text.empty() ? "a TLS handshake failed, and nobody says why" : blank_controls(text);
}

tl::unexpected<Error> no_packet() { return fail("a packet that is not one of souk-handshake"); }

}  // namespace

std::string pack(const Asked& asked) {
    if (std::holds_alternative<UseIdentity>(asked)) return Writer(Kind::identity).bytes;
    if (const auto* s = std::get_if<Shake>(&asked)) {
        Writer w(Kind::shake);
        w.number(s->number, 8);
        w.number(s->connects, 1);
        w.number(s->roles.bits, 4);
        w.text(s->name);
        return w.bytes;
    }
    const auto* f = std::get_if<Forget>(&asked);
    Writer w(f ? Kind::forget : Kind::examine);
    w.number(f ? f->number : std::get<Examine>(asked).number, 8);
    return w.bytes;
}

std::string pack(const Told& told) {
    if (const auto* s = std::get_if<Shaken>(&told)) {
        Writer w(Kind::shaken);
        w.number(s->number, 8);
        w.number(s->keys.cipher, 2);
        w.text(s->keys.from_peer);
        w.text(s->keys.to_peer);
        w.peer(s->keys.peer);
        return w.bytes;
    }
    if (const auto* f = std::get_if<Failed>(&told)) {
        Writer w(Kind::failed);
        w.number(f->number, 8);
        w.number(static_cast<uint32_t>(f->code), 4);
        w.text(std::string_view(f->why).substr(0, why_bytes_max));
        return w.bytes;
    }
    if (const auto* e = std::get_if<Examined>(&told)) {
        Writer w(Kind::examined);
        w.number(e->number, 8);
        w.peer(e->peer);
        return w.bytes;
    }
    return Writer(Kind::taken).bytes;
}

Result<Asked> parse_asked(std::string_view packet) {
    Reader r(packet);
    const auto kind = static_cast<Kind>(r.number(1));
    Asked asked;
    if (kind == Kind::shake) {
        Shake s;
        s.number = r.number(8);
        s.connects = r.number(1) != 0;
        s.roles.bits = static_cast<uint32_t>(r.number(4));
        s.name = r.text(128);
        asked = std::move(s);
    } else if (kind == Kind::forget) {
        asked = Forget{r.number(8)};
    } else if (kind == Kind::examine) {
        asked = Examine{r.number(8)};
    } else if (kind != Kind::identity) {
        return no_packet();
    }
    if (!r.good()) return no_packet();
    return asked;
}

Result<Told> parse_told(std::string_view packet) {
    Reader r(packet);
    const auto kind = static_cast<Kind>(r.number(1));
    Told told;
    if (kind == Kind::shaken) {
        Shaken s;
        s.number = r.number(8);
        s.keys.cipher = static_cast<uint16_t>(r.number(2));
        s.keys.from_peer = r.text(wire::SessionKeys::secret_bytes);
        s.keys.to_peer = r.text(wire::SessionKeys::secret_bytes);
        s.keys.peer = r.peer();
        if (r.good()) TRY(check(s.keys.peer));
        told = std::move(s);
    } else if (kind == Kind::failed) {
        Failed f;
        f.number = r.number(8);
        f.code = static_cast<int32_t>(r.number(4));
        f.why = line_of(r.text(why_bytes_max));
        told = std::move(f);
    } else if (kind == Kind::examined) {
        Examined e;
        e.number = r.number(8);
        e.peer = r.peer();
        if (r.good()) TRY(check(e.peer));
        told = std::move(e);
    } else if (kind != Kind::taken) {
        return no_packet();
    }
    if (!r.good()) return no_packet();
    return told;
}

std::string pack(const IdentityText& identity) {
    Writer w(Kind::identity);
    for (const std::string* part :
         {&identity.key, &identity.chain, &identity.root, &identity.revoked, &identity.sites})
        w.text(*part);
    return w.bytes;
}

Result<IdentityText> parse_identity(std::string_view bytes) {
    Reader r{bytes};
    const auto kind = static_cast<Kind>(r.number(1));
    IdentityText identity;
    for (std::string* part :
         {&identity.key, &identity.chain, &identity.root, &identity.revoked, &identity.sites})
        *part = r.text(identity_bytes_max);
    if (kind != Kind::identity || !r.good()) return fail("this is no identity");
    return identity;
}

}  // namespace souk::handshake
