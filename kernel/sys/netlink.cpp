// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/netlink.hpp"

#include <linux/if_link.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

#include "kernel/base/check.hpp"

namespace souk {
namespace {
constexpr size_t answer_max = 64 * 1024;

// The kernel's own words behind an error, if it has some: an attribute after the request's header (NETLINK_CAP_ACK).
std::string extended_ack(const nlmsghdr* h) {
    if (!(h->nlmsg_flags & NLM_F_ACK_TLVS)) return {};
    const auto* a = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(h) + NLMSG_HDRLEN +
                                                    NLMSG_ALIGN(sizeof(nlmsgerr)));
    auto left = static_cast<int>(h->nlmsg_len - NLMSG_HDRLEN - NLMSG_ALIGN(sizeof(nlmsgerr)));
    for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == NLMSGERR_ATTR_MSG) return static_cast<const char*>(RTA_DATA(a));
    return {};
}
}  // namespace

void NetlinkRequest::append(const void* data, size_t n) {
    bytes_.append(static_cast<const char*>(data), n);
    bytes_.append(NLMSG_ALIGN(bytes_.size()) - bytes_.size(), '\0');
}

void NetlinkRequest::put(uint16_t type, const void* data, size_t n) {
    const rtattr a{static_cast<uint16_t>(RTA_LENGTH(n)), type};
    append(&a, sizeof a);
    append(data, n);
}

size_t NetlinkRequest::open(uint16_t type) {
    const size_t at = bytes_.size();
    const rtattr a{0, type};
    append(&a, sizeof a);
    return at;
}

void NetlinkRequest::close(size_t at) {
    const auto length = static_cast<uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at + offsetof(rtattr, rta_len), &length, sizeof length);
}

std::string& NetlinkRequest::bytes() {
    const auto length = static_cast<uint32_t>(bytes_.size());
    std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_len), &length, sizeof length);
    return bytes_;
}

Result<Netlink> Netlink::open() {
    Netlink n;
    n.fd_ = Fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!n.fd_) return fail_errno("open a netlink socket", errno);
    const int on = 1;
    const timeval limit{2, 0};  // the kernel answers inside of the request; this is for what cannot be
    (void)::setsockopt(n.fd_.get(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on);
    (void)::setsockopt(n.fd_.get(), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on);
    (void)::setsockopt(n.fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return n;
}

Result<Netlink> Netlink::open_in(int net_namespace) {
    Result<Netlink> n = fail("");
    TRY(in_net_namespace(net_namespace, [&]() -> Status {
        n = open();
        return {};
    }));
    return n;
}

// The first answer, whole; an error if that is one.
Result<std::string> Netlink::exchange(NetlinkRequest& request) const {
    const std::string& bytes = request.bytes();
    if (::send(fd_.get(), bytes.data(), bytes.size(), 0) < 0) return fail_errno("ask the kernel's network", errno);
    std::string answer(answer_max, '\0');
    const ssize_t n = ::recv(fd_.get(), answer.data(), answer.size(), 0);
    if (n < 0) return fail_errno("the kernel's network does not answer", errno);
    answer.resize(static_cast<size_t>(n));
    const auto* h = reinterpret_cast<const nlmsghdr*>(answer.data());
    if (!NLMSG_OK(h, answer.size())) return fail("the kernel's network gave half an answer");
    if (h->nlmsg_type != NLMSG_ERROR) return answer;
    const int code = -static_cast<const nlmsgerr*>(NLMSG_DATA(h))->error;
    if (code == 0) return std::string();
    const std::string words = extended_ack(h);
    return fail_errno(words.empty() ? "refused" : words, code);
}

Status Netlink::ask(NetlinkRequest request) const {
    TRY_ASSIGN(const std::string answer, exchange(request));
    return {};
}

Result<NetLink> Netlink::link(const std::string& name) const {
    NetlinkRequest request(RTM_GETLINK, 0, ifinfomsg{});
    request.put(IFLA_IFNAME, name);
    auto answer = exchange(request);
    if (!answer) return wrap(name, answer.error());
    std::string ack(answer_max, '\0');
    (void)::recv(fd_.get(), ack.data(), ack.size(), 0);
    const auto* h = reinterpret_cast<const nlmsghdr*>(answer->data());
    if (answer->size() < NLMSG_LENGTH(sizeof(ifinfomsg)))
        return fail(name + ": the kernel's network gave half an answer");
    NetLink link;
    link.index = static_cast<const ifinfomsg*>(NLMSG_DATA(h))->ifi_index;
    auto left = static_cast<int>(IFLA_PAYLOAD(h));
    for (const rtattr* a = IFLA_RTA(NLMSG_DATA(h)); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        if (a->rta_type == IFLA_MTU) std::memcpy(&link.mtu, RTA_DATA(a), sizeof link.mtu);
        if (a->rta_type == IFLA_ADDRESS && RTA_PAYLOAD(a) == link.hardware.size())
            std::memcpy(link.hardware.data(), RTA_DATA(a), link.hardware.size());
        if (a->rta_type != IFLA_LINKINFO) continue;
        auto inner = static_cast<int>(RTA_PAYLOAD(a));
        for (auto* i = static_cast<const rtattr*>(RTA_DATA(a)); RTA_OK(i, inner); i = RTA_NEXT(i, inner))
            if (i->rta_type == IFLA_INFO_KIND) link.kind = static_cast<const char*>(RTA_DATA(i));
    }
    return link;
}

Status in_net_namespace(int net_namespace, const std::function<Status()>& f) {
    TRY_ASSIGN(const Fd own, open_at(AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY));
    if (::setns(net_namespace, CLONE_NEWNET) != 0) return fail_errno("enter a network namespace", errno);
    const Status done = f();
    MUST(::setns(own.get(), CLONE_NEWNET) == 0);
    return done;
}

}  // namespace souk
