// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/netlink.hpp"

#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/net_namespace.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "kernel/base/check.hpp"

namespace souk {
namespace {
constexpr size_t answer_max = 64 * 1024;
constexpr size_t request_max = 1024;
// one request at a time: the next begins when this one is answered
constexpr uint32_t sequence = 1;

struct Refusal {
    int code = 0;
    std::string words;
};

// NLMSG_ERROR: the end of an answer, with 0 or an errno. The kernel's own words behind it, if it
// has some, are an attribute after the request's header (NETLINK_CAP_ACK).
int take_end(const nlmsghdr* h, Refusal& refusal) {
    const auto* const end = static_cast<const nlmsgerr*>(::mnl_nlmsg_get_payload(h));
    if (h->nlmsg_len < ::mnl_nlmsg_size(sizeof *end))
        refusal.code = EBADMSG;
    else
        refusal.code = -end->error;
    if (refusal.code == 0) return MNL_CB_STOP;
    const auto take_words = [](const nlattr* a, void* words) {
        if (::mnl_attr_get_type(a) == NLMSGERR_ATTR_MSG)
            *static_cast<std::string*>(words) = ::mnl_attr_get_str(a);
        return MNL_CB_OK;
    };
    if (h->nlmsg_flags & NLM_F_ACK_TLVS)
        (void)::mnl_attr_parse(h, sizeof *end, take_words, &refusal.words);
    return MNL_CB_ERROR;
}

// One attribute of a link, or of its IFLA_LINKINFO.
int take_kind(const nlattr* a, void* link) {
    if (::mnl_attr_get_type(a) == IFLA_INFO_KIND)
        static_cast<NetLink*>(link)->kind = ::mnl_attr_get_str(a);
    return MNL_CB_OK;
}

int take_attribute(const nlattr* a, void* to) {
    NetLink& link = *static_cast<NetLink*>(to);
    const uint16_t type = ::mnl_attr_get_type(a), bytes = ::mnl_attr_get_payload_len(a);
    if (type == IFLA_MTU && bytes == sizeof link.mtu) link.mtu = ::mnl_attr_get_u32(a);
    if (type == IFLA_ADDRESS && bytes == link.hardware.size())
        std::memcpy(link.hardware.data(), ::mnl_attr_get_payload(a), bytes);
    if (type == IFLA_LINK && bytes == sizeof link.peer)
        link.peer = static_cast<int>(::mnl_attr_get_u32(a));
    if (type == IFLA_LINK_NETNSID && bytes == sizeof link.peer_namespace)
        link.peer_namespace = static_cast<int>(::mnl_attr_get_u32(a));
    if (type == IFLA_LINKINFO) (void)::mnl_attr_parse_nested(a, take_kind, to);
    return MNL_CB_OK;
}
}  // namespace

NetlinkRequest::NetlinkRequest(uint16_t type, uint16_t flags)
    : bytes_(std::make_unique<char[]>(request_max)) {
    nlmsghdr* const h = ::mnl_nlmsg_put_header(bytes_.get());
    h->nlmsg_type = type;
    h->nlmsg_flags = static_cast<uint16_t>(flags | NLM_F_REQUEST | NLM_F_ACK);
    h->nlmsg_seq = sequence;
}

void NetlinkRequest::add(const void* header, size_t n) {
    MUST(head()->nlmsg_len + MNL_ALIGN(n) <= request_max);
    std::memcpy(::mnl_nlmsg_put_extra_header(head(), n), header, n);
}

void NetlinkRequest::put(uint16_t type, const void* data, size_t n) {
    MUST(::mnl_attr_put_check(head(), request_max, type, n, data));
}

nlattr* NetlinkRequest::open(uint16_t type) {
    nlattr* const nest = ::mnl_attr_nest_start_check(head(), request_max, type);
    MUST(nest != nullptr);
    return nest;
}

void NetlinkRequest::close(nlattr* nest) { ::mnl_attr_nest_end(head(), nest); }

Result<Netlink> Netlink::open() {
    TRY_ASSIGN(Fd socket, open_route_socket());
    return over(std::move(socket));
}

Result<Netlink> Netlink::over(Fd socket) {
    Netlink n;
    n.socket_ = {::mnl_socket_fdopen(socket.get()), ::mnl_socket_close};
    if (!n.socket_) return fail_errno("use a netlink socket", errno);
    socket.release();
    int on = 1;
    // the kernel answers inside of the request; this is for what cannot be
    const timeval limit{2, 0};
    (void)::mnl_socket_setsockopt(n.socket_.get(), NETLINK_EXT_ACK, &on, sizeof on);
    (void)::mnl_socket_setsockopt(n.socket_.get(), NETLINK_CAP_ACK, &on, sizeof on);
    (void)::setsockopt(::mnl_socket_get_fd(n.socket_.get()), SOL_SOCKET, SO_RCVTIMEO, &limit,
                       sizeof limit);
    return n;
}

// Each message of the answer goes to `answer`; an error if the answer ends with one.
Status Netlink::exchange(const NetlinkRequest& request, const Answer& answer) const {
    const nlmsghdr* const asked = request.message();
    if (::mnl_socket_sendto(socket_.get(), asked, asked->nlmsg_len) < 0)
        return fail_errno("ask the kernel's network", errno);
    const auto buffer = std::make_unique_for_overwrite<char[]>(answer_max);
    Refusal refusal;
    struct Takers {
        const Answer& answer;
        Refusal& refusal;
    } takers{answer, refusal};
    mnl_cb_t on_control[NLMSG_ERROR + 1] = {};
    on_control[NLMSG_ERROR] = [](const nlmsghdr* h, void* to) {
        return take_end(h, static_cast<Takers*>(to)->refusal);
    };
    const mnl_cb_t on_data = [](const nlmsghdr* h, void* to) {
        static_cast<Takers*>(to)->answer(h);
        return MNL_CB_OK;
    };
    for (int more = MNL_CB_OK; more == MNL_CB_OK;) {
        const ssize_t n = ::mnl_socket_recvfrom(socket_.get(), buffer.get(), answer_max);
        if (n < 0) return fail_errno("the kernel's network does not answer", errno);
        more = ::mnl_cb_run2(buffer.get(), static_cast<size_t>(n), sequence, 0, on_data, &takers,
                             on_control, std::size(on_control));
        if (more == MNL_CB_ERROR) {
            if (refusal.code == 0)
                return fail_errno("read what the kernel's network answers", errno);
            return fail_errno(refusal.words.empty() ? "refused" : refusal.words, refusal.code);
        }
    }
    return {};
}

Status Netlink::ask(const NetlinkRequest& request) const {
    return exchange(request, [](const nlmsghdr*) {});
}

Result<NetLink> Netlink::link(const std::string& name) const {
    NetlinkRequest request(RTM_GETLINK, 0, ifinfomsg{});
    request.put(IFLA_IFNAME, name);
    NetLink link;
    const auto take = [&link](const nlmsghdr* h) {
        if (h->nlmsg_type != RTM_NEWLINK || h->nlmsg_len < ::mnl_nlmsg_size(sizeof(ifinfomsg)))
            return;
        link.index = static_cast<const ifinfomsg*>(::mnl_nlmsg_get_payload(h))->ifi_index;
        (void)::mnl_attr_parse(h, sizeof(ifinfomsg), take_attribute, &link);
    };
    if (auto asked = exchange(request, take); !asked) return wrap(name, asked.error());
    if (link.index == 0) return fail(name + ": the kernel's network gave half an answer");
    return link;
}

Result<int32_t> Netlink::number_of(int net_namespace) const {
    NetlinkRequest request(RTM_GETNSID, 0, rtgenmsg{});
    request.put(NETNSA_FD, static_cast<uint32_t>(net_namespace));
    int32_t number = -1;
    const auto take_number = [](const nlattr* a, void* to) {
        if (::mnl_attr_get_type(a) == NETNSA_NSID &&
            ::mnl_attr_get_payload_len(a) == sizeof(int32_t))
            *static_cast<int32_t*>(to) = static_cast<int32_t>(::mnl_attr_get_u32(a));
        return MNL_CB_OK;
    };
    const auto take = [&](const nlmsghdr* h) {
        if (h->nlmsg_type == RTM_NEWNSID)
            (void)::mnl_attr_parse(h, sizeof(rtgenmsg), take_number, &number);
    };
    if (auto asked = exchange(request, take); !asked)
        return wrap("the number of a namespace", asked.error());
    return number;
}

}  // namespace souk
