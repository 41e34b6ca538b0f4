// SPDX-License-Identifier: GPL-2.0-or-later
// SRV records (RFC 2782): where a service is, by a name that an operator keeps in DNS. A market is
// found as _souk._tcp.DOMAIN by machines that are told no other way. Asking waits for the network,
// at most about ten seconds: for tools, and for the start of a daemon.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

struct SrvTarget {
    uint16_t priority = 0, weight = 0, port = 0;
    std::string host;
    bool operator==(const SrvTarget&) const = default;
};

// The SRV records of a DNS message, as it came. Errors: it is none, or cut.
Result<std::vector<SrvTarget>> parse_srv(std::span<const uint8_t> message);

// HOST:PORT of the target to try: of the lowest priority, and among those by weight, with `draw`
// any number. Empty: there is none (a target "." says that the service is not there).
std::string choose_srv(std::vector<SrvTarget> targets, uint64_t draw);

// SERVICE.DOMAIN of the first of this machine's domains (as /etc/resolv.conf lists them) that has
// such a record: HOST:PORT. Errors say what was asked for.
Result<std::string> find_service(const std::string& service);

inline constexpr const char* market_service = "_souk._tcp";

}  // namespace souk
