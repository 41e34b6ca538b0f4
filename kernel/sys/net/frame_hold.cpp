// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/frame_hold.hpp"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace souk {
namespace {

constexpr size_t head_bytes = 10;  // struct virtio_net_hdr, whose own header is no C++
constexpr size_t frame_bytes_max = 128 * 1024;
constexpr size_t held_frames_max = 8192, held_bytes_max = 8 << 20;
constexpr int socket_bytes = 8 << 20;
constexpr int reads_max = 256;  // in one go; the loop comes back for the rest

}  // namespace

FrameKind frame_kind(std::string_view f, const HardwareAddress& job, Ipv4 address) {
    constexpr size_t arp_bytes = ETH_HLEN + 28, type_at = 12, target_at = ETH_HLEN + 24;
    if (f.size() < ETH_HLEN) return FrameKind::other;
    const std::string_view own(reinterpret_cast<const char*>(job.data()), job.size());
    const bool arp =
        f.substr(type_at, 2) == std::string_view("\x08\x06", 2) && f.size() >= arp_bytes;
    if (f.substr(ETH_ALEN, ETH_ALEN) == own) return arp ? FrameKind::moved : FrameKind::other;
    if (f.starts_with(own)) return FrameKind::held;
    uint32_t target = 0;
    if (arp) std::memcpy(&target, f.data() + target_at, sizeof target);
    return arp && ntohl(target) == address.n ? FrameKind::held : FrameKind::other;
}

Result<FrameHold> FrameHold::open(const JobPort& port, const std::string& bridge) {
    FrameHold h;
    h.port_ = port.index();
    h.job_ = port.hardware();
    h.address_ = port.address();
    TRY_ASSIGN(const Netlink network, Netlink::open());
    TRY_ASSIGN(const NetLink link, network.link(bridge));
    h.bridge_ = link.index;
    h.node_ = link.hardware;
    h.socket_ = SlowFd(Fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (!h.socket_) return fail_errno("open a packet socket", errno);
    const int on = 1;
    if (::setsockopt(h.fd(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0)
        return fail_errno("read frames as they are", errno);
    (void)::setsockopt(h.fd(), SOL_SOCKET, SO_RCVBUFFORCE, &socket_bytes, sizeof socket_bytes);
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_protocol = htons(ETH_P_ALL);
    at.sll_ifindex = h.port_;
    if (::bind(h.fd(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
        return fail_errno("read a job's frames", errno);
    return h;
}

void FrameHold::keep(std::string frame) {
    bytes_ += frame.size();
    frames_.push_back(std::move(frame));
    while (bytes_ > held_bytes_max || frames_.size() > held_frames_max) {
        bytes_ -= frames_.front().size();
        frames_.pop_front();
    }
}

void FrameHold::on_readable() {
    std::string buffer(frame_bytes_max, '\0');
    for (int i = 0; i < reads_max; ++i) {
        sockaddr_ll from{};
        socklen_t from_bytes = sizeof from;
        const ssize_t n = ::recvfrom(fd(), buffer.data(), buffer.size(), 0,
                                     reinterpret_cast<sockaddr*>(&from), &from_bytes);
        if (n < 0) break;
        if (from.sll_pkttype != PACKET_OUTGOING || static_cast<size_t>(n) < head_bytes)
            continue;  // outwards from the bridge: to the job
        const std::string_view frame(buffer.data() + head_bytes,
                                     static_cast<size_t>(n) - head_bytes);
        switch (frame_kind(frame, job_, address_)) {
            case FrameKind::other: break;
            case FrameKind::moved: moved_ = true; break;
            case FrameKind::held: keep(buffer.substr(0, static_cast<size_t>(n))); break;
        }
    }
    if (!moved_) return;
    for (std::string& f : frames_) {
        std::copy(job_.begin(), job_.end(), f.begin() + head_bytes);
        std::copy(node_.begin(), node_.end(), f.begin() + head_bytes + ETH_ALEN);
        send(f, bridge_);
    }
    frames_.clear();
    bytes_ = 0;
}

void FrameHold::give_back() {
    moved_ = false;
    on_readable();
    for (std::string& f : frames_) send(f, port_);
    frames_.clear();
    bytes_ = 0;
}

// What the kernel does not take is lost, as on any wire.
void FrameHold::send(std::string& frame, int link) const {
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = link;
    to.sll_halen = ETH_ALEN;
    (void)::sendto(fd(), frame.data(), frame.size(), MSG_DONTWAIT,
                   reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

}  // namespace souk
