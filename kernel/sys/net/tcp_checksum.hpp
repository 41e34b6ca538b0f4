// SPDX-License-Identifier: GPL-2.0-or-later
// The checksum of a TCP segment (RFC 9293, section 3.1), which the kernel leaves to a device that
// sends it: so a frame that was taken before lacks it. Pure.
#pragma once

#include <string>

namespace souk {

// `frame`: Ethernet, IPv4 or IPv6 without further headers, TCP. Any other one comes back as it is.
std::string with_tcp_checksum(std::string frame);

}  // namespace souk
