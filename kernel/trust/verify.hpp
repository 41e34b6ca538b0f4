// SPDX-License-Identifier: GPL-2.0-or-later
// Tells whether a peer's certificates are good here and now, and whose they are. Each reason
// against them is one line that names what to do; its code is OpenSSL's (X509_V_ERR_...), from
// which TLS makes the alert that the peer gets.
#pragma once

#include <string>
#include <vector>

#include "kernel/trust/certificate.hpp"
#include "kernel/trust/revocations.hpp"

namespace souk::trust {

// A Peer is who is on the other end, proven by its key.
struct Peer {
    Subject subject;
    std::string key;  // the digest of its key
    Nanos ends;       // of its certificate
    // It is a node of that other site, whose root has signed its name; empty: of one's own.
    std::string site = {};
    std::string full_name() const {
        return site.empty() ? subject.name : site + ":" + subject.name;
    }
};

// `chain`: as the peer sent it, its own first. `now`: Unix time.
Result<Peer> verify(const std::vector<Certificate>& chain, const Certificate& root,
                    const Revocations& revoked, Nanos now);
// Finds among these certificates the root with that digest. A joiner recognises its market like
// this.
Result<Certificate> root_among(const std::vector<Certificate>& chain, std::string_view digest);

}  // namespace souk::trust
