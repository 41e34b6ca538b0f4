// SPDX-License-Identifier: GPL-2.0-or-later
// Identity: who this daemon is to others, as files of one directory (mode 0700):
//
//   key.pem          its private key; made here, 0600, leaves never
//   certificate.pem  its certificate, and that of the issuing authority
//   root.pem         the market's root, which it believes
//   revoked          the market's newest revocation list; may be missing
//
// and in the market's own directory also issuing.key and issuing.pem.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernel/trust/certificate.hpp"
#include "kernel/trust/revocations.hpp"

namespace souk::trust {

struct Identity {
    Key key;
    std::vector<Certificate> chain;  // its own, the issuing authority's
    Certificate root;
    Revocations revoked;
    const Certificate& own() const { return chain.front(); }
    const Certificate& issuer() const { return chain.back(); }
};

// Returns nothing if there is no key and no certificate.
Result<std::optional<Identity>> load_identity(const std::string& dir);
// Saves the key as well, unless it is there already.
Status save_identity(const std::string& dir, const Identity& identity);
// These save the parts that a renewal changes.
Status save_chain(const std::string& dir, const std::vector<Certificate>& chain);
Status save_revoked(const std::string& dir, std::string_view signed_list);
// Makes the directory, with its parents, for its owner alone.
Status make_private_dir(const std::string& dir);
// Returns the key that lies there, or makes one now.
Result<Key> key_of(const std::string& dir);

// Loads the issuing authority of a market. ENOENT: there is none in this directory.
Result<Authority> load_issuing(const std::string& dir);
Status save_issuing(const std::string& dir, const Authority& issuing);

}  // namespace souk::trust
