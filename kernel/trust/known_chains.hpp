// SPDX-License-Identifier: GPL-2.0-or-later
// KnownChains: certificates whose signatures were found right are not reckoned again: a node
// connects to the same few others, in each move of a job. Dates and revocations are looked at each
// time, and that the peer has the key is proven by each handshake.
//
// Owned by whoever verifies. Bounded.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernel/trust/verify.hpp"

namespace souk::trust {

class KnownChains {
  public:
    // Verifies as trust::verify does.
    Result<Peer> verify(const std::vector<Certificate>& chain, const Certificate& root,
                        const Revocations& revoked, Nanos now);
    size_t size() const { return known_.size(); }

  private:
    struct Known {
        Peer peer;
        Nanos begins, ends;  // all of them are good
    };
    static constexpr size_t known_max = 4096;
    std::map<std::string, Known> known_;  // by the digest of all certificates
};

}  // namespace souk::trust
