// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/tcp_checksum.hpp"

#include <linux/if_ether.h>
#include <netinet/in.h>

#include <cstdint>
#include <string_view>

namespace souk {
namespace {

uint64_t sum_of(std::string_view bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
        sum += uint64_t{static_cast<uint8_t>(bytes[i])} << (i % 2 == 0 ? 8 : 0);
    return sum;
}

// Parts of an IP packet that carries TCP. The segment is empty if the packet is none, or not whole.
struct Parts {
    std::string_view addresses, segment;
};
Parts parts_of(std::string_view packet) {
    constexpr size_t v4_bytes = 20, v6_bytes = 40;
    const auto byte = [&](size_t at) { return size_t{static_cast<uint8_t>(packet[at])}; };
    const auto number = [&](size_t at) { return byte(at) << 8 | byte(at + 1); };
    size_t head = 0, all = 0;
    std::string_view addresses;
    if (packet.size() >= v4_bytes && byte(0) >> 4 == 4 && byte(9) == IPPROTO_TCP) {
        head = 4 * (byte(0) & 15);
        all = number(2);
        addresses = packet.substr(12, 8);
    } else if (packet.size() >= v6_bytes && byte(0) >> 4 == 6 && byte(6) == IPPROTO_TCP) {
        head = v6_bytes;
        all = head + number(4);
        addresses = packet.substr(8, 32);
    }
    if (head < v4_bytes || all < head || packet.size() < all) return {};
    return {addresses, packet.substr(head, all - head)};
}

}  // namespace

std::string with_tcp_checksum(std::string frame) {
    constexpr size_t tcp_bytes = 20, checksum_at = 16;
    if (frame.size() < ETH_HLEN) return frame;
    const Parts parts = parts_of(std::string_view(frame).substr(ETH_HLEN));
    if (parts.segment.size() < tcp_bytes) return frame;
    char* const checksum = frame.data() + (parts.segment.data() - frame.data()) + checksum_at;
    checksum[0] = checksum[1] = 0;
    uint64_t sum =
        sum_of(parts.addresses) + IPPROTO_TCP + parts.segment.size() + sum_of(parts.segment);
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    checksum[0] = static_cast<char>(~sum >> 8);
    checksum[1] = static_cast<char>(~sum);
    return frame;
}

}  // namespace souk
