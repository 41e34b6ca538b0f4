// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/frame_hold.hpp"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace souk {
namespace {

constexpr size_t head_bytes = 10;  // struct virtio_net_hdr, whose own header is no C++
constexpr size_t frame_bytes_max = 128 * 1024;
constexpr size_t held_frames_max = 8192, held_bytes_max = 8 << 20;
constexpr int socket_bytes = 8 << 20;
constexpr size_t reads_max = 256;  // in one go; the loop comes back for the rest

Nanos came_at(msghdr& message) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
        timespec at{};
        std::memcpy(&at, CMSG_DATA(c), sizeof at);
        return Nanos{at.tv_sec * 1'000'000'000 + at.tv_nsec};
    }
    return {};
}

}  // namespace

FrameKind frame_kind(std::string_view f, const HardwareAddress& job, Ipv4 address) {
    constexpr size_t arp_bytes = ETH_HLEN + 28, type_at = 12, sender_at = ETH_HLEN + 14,
                     target_at = ETH_HLEN + 24;
    if (f.size() < ETH_HLEN) return FrameKind::other;
    const std::string_view own(reinterpret_cast<const char*>(job.data()), job.size());
    const bool arp =
        f.substr(type_at, 2) == std::string_view("\x08\x06", 2) && f.size() >= arp_bytes;
    if (f.substr(ETH_ALEN, ETH_ALEN) == own) return arp ? FrameKind::moved : FrameKind::other;
    if (f.starts_with(own)) return FrameKind::held;
    if (!arp) return FrameKind::other;
    const std::string_view target = f.substr(target_at, 4);
    uint32_t number = 0;
    std::memcpy(&number, target.data(), sizeof number);
    return ntohl(number) == address.n || f.substr(sender_at, 4) == target ? FrameKind::held
                                                                          : FrameKind::other;
}

std::string encode_frames(const std::deque<std::string>& frames) {
    std::string text;
    for (const std::string& f : frames) {
        const auto bytes = static_cast<uint32_t>(f.size());
        for (int shift = 0; shift < 32; shift += 8) text += static_cast<char>(bytes >> shift);
        text += f;
    }
    return text;
}

std::vector<std::string> decode_frames(std::string_view text) {
    constexpr size_t length_bytes = 4;
    std::vector<std::string> frames;
    while (text.size() >= length_bytes && frames.size() < held_frames_max) {
        uint32_t bytes = 0;
        for (int i = 0; i < 4; ++i)
            bytes |= static_cast<uint32_t>(static_cast<uint8_t>(text[i])) << (8 * i);
        text.remove_prefix(length_bytes);
        if (bytes < head_bytes || bytes > frame_bytes_max || bytes > text.size()) break;
        frames.emplace_back(text.substr(0, bytes));
        text.remove_prefix(bytes);
    }
    return frames;
}

Status FrameHold::read_at(const PortPlace& port, Fd socket, int link) {
    link_ = link;
    job_ = port.hardware;
    address_ = port.address;
    socket_ = SlowFd(std::move(socket));
    const int on = 1;
    if (::setsockopt(fd(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0 ||
        ::setsockopt(fd(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0)
        return fail_errno("read frames as they are", errno);
    (void)::setsockopt(fd(), SOL_SOCKET, SO_RCVBUFFORCE, &socket_bytes, sizeof socket_bytes);
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_protocol = htons(ETH_P_ALL);
    at.sll_ifindex = link;
    if (::bind(fd(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
        return fail_errno("read a job's frames", errno);
    return {};
}

Result<FrameHold> FrameHold::open(const PortPlace& port, const std::string& bridge) {
    FrameHold h;
    if (!bridge.empty()) {
        TRY_ASSIGN(const Netlink network, Netlink::open());
        TRY_ASSIGN(const NetLink link, network.link(bridge));
        h.bridge_ = link.index;
        h.node_ = link.hardware;
    }
    TRY_ASSIGN(Fd socket, open_packet_socket());
    TRY(h.read_at(port, std::move(socket), port.outer));
    return h;
}

Result<FrameHold> FrameHold::open_inside(const PortPlace& port, Fd socket) {
    FrameHold h;
    h.inside_ = true;
    TRY(h.read_at(port, std::move(socket), port.inner));
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

void FrameHold::take(std::string frame) {
    if (!inside_) {
        switch (frame_kind(std::string_view(frame).substr(head_bytes), job_, address_)) {
            case FrameKind::other: return;
            case FrameKind::moved: moved_ = bridge_ > 0; return;
            case FrameKind::held: return keep(std::move(frame));
        }
    }
    // A short frame is kept once: a sender asks for the same address once a second.
    constexpr size_t question_bytes = head_bytes + 64;
    if (frame.size() > question_bytes || std::ranges::find(frames_, frame) == frames_.end())
        keep(std::move(frame));
}

void FrameHold::read(Nanos until, size_t reads) {
    std::string buffer(frame_bytes_max, '\0');
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec))];
    for (size_t i = 0; i < reads; ++i) {
        sockaddr_ll from{};
        iovec piece{buffer.data(), buffer.size()};
        msghdr message{};
        message.msg_name = &from;
        message.msg_namelen = sizeof from;
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t n = ::recvmsg(fd(), &message, 0);
        if (n < 0) break;
        // outwards: from the bridge to the job; inside, from the job
        const Nanos at = came_at(message);
        if (from.sll_pkttype == PACKET_OUTGOING && static_cast<size_t>(n) >= head_bytes &&
            at >= shut_ && at < until)
            take(buffer.substr(0, static_cast<size_t>(n)));
    }
    if (moved_) send_after();
}

void FrameHold::on_readable() { read(Nanos::never(), reads_max); }

void FrameHold::send_after() {
    for (std::string& f : frames_) {
        std::copy(job_.begin(), job_.end(), f.begin() + head_bytes);
        std::copy(node_.begin(), node_.end(), f.begin() + head_bytes + ETH_ALEN);
        send(f, bridge_);
    }
    frames_.clear();
    bytes_ = 0;
}

void FrameHold::put_first(std::vector<std::string> frames) {
    const std::deque<std::string> later = std::exchange(frames_, {});
    bytes_ = 0;
    for (std::string& f : frames)
        if (frame_kind(std::string_view(f).substr(head_bytes), job_, address_) == FrameKind::held)
            keep(std::move(f));
    for (const std::string& f : later) keep(f);
}

std::string FrameHold::of_wire(const std::string& frame) {
    return std::string(head_bytes, '\0') + frame;
}

// Held frames go first. A sender that sends now uses later timestamps, and after those TCP drops
// frames with earlier ones (PAWS, RFC 7323).
void FrameHold::give_back(Nanos opened) {
    moved_ = false;
    give();
    read(opened, held_frames_max);
    give();
}

void FrameHold::give() {
    for (const std::string& f : frames_) send(f, link_);
    frames_.clear();
    bytes_ = 0;
}

std::string FrameHold::text() {
    read(Nanos::never(), held_frames_max);
    return encode_frames(frames_);
}

// Frames that the kernel does not take are lost, as on any wire.
void FrameHold::send(const std::string& frame, int link) const {
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = link;
    to.sll_halen = ETH_ALEN;
    (void)::sendto(fd(), frame.data(), frame.size(), MSG_DONTWAIT,
                   reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

}  // namespace souk
