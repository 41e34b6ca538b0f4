// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/known_chains.hpp"

#include <algorithm>

#include "kernel/trust/openssl.hpp"

namespace souk::trust {

Result<Peer> KnownChains::verify(const std::vector<Certificate>& chain, const Certificate& root,
                                 const Revocations& revoked, Nanos now) {
    std::string all = root.der();
    for (const Certificate& c : chain) all += c.der();
    const std::string digest = sha256(all);
    if (const auto found = known_.find(digest); found != known_.end()) {
        const Known& known = found->second;
        if (now >= known.begins && now < known.ends && !revoked.has(known.peer.key))
            return known.peer;
    }
    // verify() says, too, why a chain that was good is not good any more.
    TRY_ASSIGN(Peer peer, trust::verify(chain, root, revoked, now));
    Known known{peer, root.begins(), root.ends()};
    for (const Certificate& c : chain) {
        known.begins = std::max(known.begins, c.begins());
        known.ends = std::min(known.ends, c.ends());
    }
    if (known_.size() >= known_max) known_.clear();
    known_.insert_or_assign(digest, std::move(known));
    return peer;
}

}  // namespace souk::trust
