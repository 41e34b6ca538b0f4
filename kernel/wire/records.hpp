// SPDX-License-Identifier: GPL-2.0-or-later
// The records of a TLS 1.3 session whose handshake was done elsewhere (agentd/handshake): as the
// kernel's TLS, this has the two secrets that came of it, and no handshake, certificate or private
// key. RFC 8446, sections 5, 7.1, 7.2 and 7.3, with libcrypto's ciphers. Bytes of a peer are read
// here only if they are of who did the handshake: each record is authenticated before anything in
// it is looked at.
#pragma once

#include <memory>
#include <string>

#include "kernel/trust/verify.hpp"
#include "kernel/wire/transport.hpp"

namespace souk::wire {

// A handshake leaves these keys. No byte of the session itself has been sent or received yet.
struct SessionKeys {
    static constexpr size_t secret_bytes = 32;
    static constexpr uint16_t aes_128_gcm = 0x1301, chacha20_poly1305 = 0x1303;
    uint16_t cipher = 0;             // with SHA-256; its number in TLS
    std::string from_peer, to_peer;  // the secrets of what is received and sent
    trust::Peer peer;
};

// Returns a sentence for the peer's alert about this end; null if we have none.
const char* alert_text(int alert);

// Fails if the cipher is unknown, or a secret has another length.
Result<std::unique_ptr<Transport>> session_transport(SessionKeys keys);

}  // namespace souk::wire
