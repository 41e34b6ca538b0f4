// SPDX-License-Identifier: GPL-2.0-or-later
// IPv4 addresses and ranges of them, as plain values. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"

namespace souk {

struct Ipv4 {
    uint32_t n = 0;  // host order; 0.0.0.0: none
    explicit operator bool() const { return n != 0; }
    std::string text() const;
    auto operator<=>(const Ipv4&) const = default;
};
// "10.79.64.1".
Result<Ipv4> parse_ipv4(std::string_view text);

struct Ipv4Range {
    Ipv4 first;
    int prefix = 32;
    uint64_t size() const { return uint64_t{1} << (32 - prefix); }
    bool contains(Ipv4 a) const { return a.n >= first.n && a.n - first.n < size(); }
    bool contains(const Ipv4Range& r) const { return contains(r.first) && r.prefix >= prefix; }
    std::string text() const { return first.text() + "/" + std::to_string(prefix); }
    bool operator==(const Ipv4Range&) const = default;
};
// "10.79.64.0/18": of 4 addresses at least (/30) and 2^24 at most (/8), on a boundary of its size.
Result<Ipv4Range> parse_ipv4_range(std::string_view text);

}  // namespace souk
