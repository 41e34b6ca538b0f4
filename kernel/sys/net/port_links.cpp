// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/port_links.hpp"

#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace souk {
namespace {

constexpr const char* inner_name = "eth0";
constexpr int inner_index = 100;  // the same everywhere: what a job remembers of it stays true
constexpr int loopback_index = 1;
constexpr uint8_t outer_mark = 0xfe, hardware_mark = 0x53;  // of hardware addresses
constexpr uint32_t gate_preference = 0x534b;  // among filters that a job may have set itself

void be32(std::string& out, uint32_t n) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(n >> shift);
}

uint32_t net_order(Ipv4 a) { return __builtin_bswap32(a.n); }

ifinfomsg link_head(int index) {
    ifinfomsg head{};
    head.ifi_index = index;
    return head;
}

// No address of its own making: a job's is the one that moves with it, and the other end has none.
// Without IPv6 there is nothing to forbid.
void no_ipv6_addresses(const Netlink& where, int index) {
    NetlinkRequest request(RTM_NEWLINK, 0, link_head(index));
    nlattr* const families = request.open(IFLA_AF_SPEC);
    nlattr* const v6 = request.open(AF_INET6);
    request.put(IFLA_INET6_ADDR_GEN_MODE, static_cast<uint8_t>(IN6_ADDR_GEN_MODE_NONE));
    request.close(v6);
    request.close(families);
    (void)where.ask(request);
}

// Makes the pair from inside, because only the first of a pair can be given its index.
Status make_pair(const Netlink& inside, const std::string& name, const HardwareAddress& hardware,
                 uint32_t mtu) {
    TRY_ASSIGN(const Fd outside, open_at(AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY));
    NetlinkRequest request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, link_head(inner_index));
    request.put(IFLA_IFNAME, std::string(inner_name));
    request.put(IFLA_ADDRESS, hardware);
    request.put(IFLA_MTU, mtu);
    nlattr* const info = request.open(IFLA_LINKINFO);
    request.put(IFLA_INFO_KIND, std::string("veth"));
    nlattr* const data = request.open(IFLA_INFO_DATA);
    nlattr* const peer = request.open(VETH_INFO_PEER, ifinfomsg{});
    request.put(IFLA_IFNAME, name);
    // A bridge takes the lowest address of its ports as its own, where it was given none: never
    // this one, or the whole node would have a new one whenever a job comes or goes.
    HardwareAddress high = hardware;
    high[0] = outer_mark;
    request.put(IFLA_ADDRESS, high);
    request.put(IFLA_MTU, mtu);
    request.put(IFLA_NET_NS_FD, static_cast<uint32_t>(outside.get()));
    for (nlattr* const nest : {peer, data, info}) request.close(nest);
    return inside.ask(request);
}

Status set_address(const Netlink& inside, const JobNetwork& network, Ipv4 address) {
    ifaddrmsg head{};
    head.ifa_family = AF_INET;
    head.ifa_prefixlen = static_cast<uint8_t>(network.range.prefix);
    head.ifa_index = inner_index;
    NetlinkRequest request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, head);
    request.put(IFA_LOCAL, net_order(address));
    request.put(IFA_ADDRESS, net_order(address));
    request.put(
        IFA_BROADCAST,
        net_order({static_cast<uint32_t>(network.range.first.n + network.range.size() - 1)}));
    return inside.ask(request);
}

Status set_up(const Netlink& where, int index, int master) {
    ifinfomsg head = link_head(index);
    head.ifi_flags = head.ifi_change = IFF_UP;
    NetlinkRequest request(RTM_NEWLINK, 0, head);
    if (master > 0) request.put(IFLA_MASTER, static_cast<uint32_t>(master));
    return where.ask(request);
}

Status set_gateway(const Netlink& inside, Ipv4 gateway) {
    rtmsg head{};
    head.rtm_family = AF_INET;
    head.rtm_table = RT_TABLE_MAIN;
    head.rtm_protocol = RTPROT_STATIC;
    head.rtm_type = RTN_UNICAST;
    NetlinkRequest request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, head);
    request.put(RTA_GATEWAY, net_order(gateway));
    request.put(RTA_OIF, static_cast<uint32_t>(inner_index));
    return inside.ask(request);
}

}  // namespace

HardwareAddress job_hardware_address(Ipv4 a) {
    // Locally administered, unicast.
    return {0x02,
            hardware_mark,
            static_cast<uint8_t>(a.n >> 24),
            static_cast<uint8_t>(a.n >> 16),
            static_cast<uint8_t>(a.n >> 8),
            static_cast<uint8_t>(a.n)};
}

std::string arp_announcement(const HardwareAddress& hardware, Ipv4 address) {
    const std::string mac(reinterpret_cast<const char*>(hardware.data()), hardware.size());
    std::string f(ETH_ALEN, '\xff');
    f += mac;
    // ARP; Ethernet, IPv4, lengths, request
    f += std::string_view("\x08\x06\x00\x01\x08\x00\x06\x04\x00\x01", 10);
    f += mac;
    be32(f, address.n);
    f += std::string(ETH_ALEN, '\0');
    be32(f, address.n);
    return f;
}

bool stays_within(std::string_view packet, Ipv4 address) {
    constexpr size_t to4_at = 16, to6_at = 24, bytes4 = 4, bytes6 = 16;
    constexpr uint8_t plain4 = 0x45;  // without options, which may name other ways
    const uint8_t head = packet.empty() ? 0 : static_cast<uint8_t>(packet[0]);
    if (head >> 4 == 6 && packet.size() >= to6_at + bytes6)
        return packet.substr(to6_at, bytes6) == std::string(bytes6 - 1, '\0') + '\1';
    if (head != plain4 || packet.size() < to4_at + bytes4) return false;
    std::string own;
    be32(own, address.n);
    return packet[to4_at] == 127 || packet.substr(to4_at, bytes4) == own;
}

Result<PortLinks> PortLinks::make(const JobNetwork& network, const PortPlan& plan,
                                  int net_namespace, std::optional<Armed>& shut) {
    PortLinks p;
    TRY(p.enter(plan, net_namespace));
    if (auto built = p.build(network, plan, shut); !built)
        return wrap("its network interface", built.error());
    return p;
}

Result<PortLinks> PortLinks::find(const PortPlan& plan, int net_namespace) {
    PortLinks p;
    TRY(p.enter(plan, net_namespace));
    TRY(p.look_up(plan.name));
    return p;
}

Status PortLinks::enter(const PortPlan& plan, int net_namespace) {
    place_ = {0, inner_index, job_hardware_address(plan.address), plan.address};
    TRY_ASSIGN(JobInside inside, open_job_inside(net_namespace));
    TRY_ASSIGN(outside_, Netlink::open());
    TRY_ASSIGN(inside_, Netlink::over(std::move(inside.route)));
    inside_place_ = std::move(inside.place);
    speaker_ = SlowFd(std::move(inside.packets));
    orphans_ = std::move(inside.orphans);
    retries_ = std::move(inside.retries);
    raw4_ = std::move(inside.raw4);
    raw6_ = std::move(inside.raw6);
    return {};
}

// Nobody else's: the other end of that one is the one inside, and has the job's address.
Status PortLinks::look_up(const std::string& name) {
    TRY_ASSIGN(const NetLink link, outside_.link(name));
    TRY_ASSIGN(const NetLink other, inside_.link(inner_name));
    TRY_ASSIGN(const int32_t number, outside_.number_of(inside_place_.get()));
    if (link.kind != "veth" || link.peer != inner_index || link.peer_namespace != number ||
        number < 0 || other.index != inner_index || other.hardware != place_.hardware)
        return fail(name + " is not the interface of that job");
    place_.outer = link.index;
    return {};
}

// A link of that name may be left over, of a capsule that an earlier daemon made, and that is just
// going.
Status PortLinks::make_pair_anew(const std::string& name, uint32_t mtu) const {
    Status made = make_pair(inside_, name, place_.hardware, mtu);
    if (made || made.error().code != EEXIST) return made;
    TRY_ASSIGN(const NetLink old, outside_.link(name));
    if (old.kind != "veth" || old.hardware[0] != outer_mark || old.hardware[1] != hardware_mark)
        return fail_errno(name + " is an interface of somebody else", EEXIST);
    TRY(outside_.ask(NetlinkRequest(RTM_DELLINK, 0, link_head(old.index))));
    return make_pair(inside_, name, place_.hardware, mtu);
}

Status PortLinks::build(const JobNetwork& network, const PortPlan& plan,
                        std::optional<Armed>& shut) {
    TRY_ASSIGN(const NetLink bridge, outside_.link(network.bridge));
    if (bridge.kind != "bridge") return fail(network.bridge + " is no bridge");
    TRY(make_pair_anew(plan.name, bridge.mtu));
    TRY(look_up(plan.name));
    no_ipv6_addresses(outside_, place_.outer);
    no_ipv6_addresses(inside_, place_.inner);
    (void)carry_within();  // or arm() says why; now nothing of the job is there to lose a frame
    if (plan.shut) {
        TRY_ASSIGN(Armed armed, arm(Gate::open));
        for (const FrameWay way : {FrameWay::to_job, FrameWay::from_job})
            TRY(armed.gate.set(way, Gate::shut));
        shut = std::move(armed);
    }
    TRY(set_address(inside_, network, place_.address));
    TRY(set_up(inside_, place_.inner, 0));
    if (network.gateway) TRY(set_gateway(inside_, network.gateway));
    return set_up(outside_, place_.outer, bridge.index);
}

// program -1: none.
Status PortLinks::attach(const Netlink& where, int link, int program) {
    NetlinkRequest request(RTM_SETLINK, 0, link_head(link));
    nlattr* const xdp = request.open(IFLA_XDP);
    request.put(IFLA_XDP_FD, static_cast<int32_t>(program));
    request.put(IFLA_XDP_FLAGS, static_cast<uint32_t>(XDP_FLAGS_SKB_MODE));
    request.close(xdp);
    return where.ask(request);
}

// A qdisc where loopback sends that only carries classifiers and stays. While it comes the kernel
// drops all that loopback is given, for milliseconds (qdisc_graft, dev_deactivate).
Status PortLinks::carry_within() const {
    tcmsg head{};
    head.tcm_family = AF_UNSPEC;
    head.tcm_ifindex = loopback_index;
    head.tcm_handle = TC_H_MAKE(TC_H_CLSACT, 0);
    head.tcm_parent = TC_H_CLSACT;
    NetlinkRequest request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, head);
    request.put(TCA_KIND, std::string("clsact"));
    auto made = inside_.ask(request);
    return !made && made.error().code == EEXIST ? Status{} : made;
}

// Attaches the program where loopback sends. program -1: takes it away.
Status PortLinks::attach_within(int program) const {
    tcmsg head{};
    head.tcm_family = AF_UNSPEC;
    head.tcm_ifindex = loopback_index;
    if (program >= 0) TRY(carry_within());
    head.tcm_handle = 1;
    head.tcm_parent = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS);
    head.tcm_info = TC_H_MAKE(gate_preference << 16, __builtin_bswap16(ETH_P_ALL));
    NetlinkRequest request(program >= 0 ? RTM_NEWTFILTER : RTM_DELTFILTER,
                           program >= 0 ? NLM_F_CREATE : 0, head);
    request.put(TCA_KIND, std::string("bpf"));
    if (program < 0) {
        auto gone = inside_.ask(request);
        // there was none
        return gone || gone.error().code == ENOENT || gone.error().code == EINVAL ? Status{} : gone;
    }
    nlattr* const options = request.open(TCA_OPTIONS);
    request.put(TCA_BPF_FD, static_cast<uint32_t>(program));
    request.put(TCA_BPF_NAME, std::string("souk_gate"));
    request.put(TCA_BPF_FLAGS, static_cast<uint32_t>(TCA_BPF_FLAG_ACT_DIRECT));
    request.close(options);
    return inside_.ask(request);
}

Result<Armed> PortLinks::arm(Gate at_first) const {
    TRY_ASSIGN(FrameGate gate, FrameGate::create());
    for (const FrameWay way : all_ways) TRY(gate.set(way, at_first));
    const bool within = attach_within(gate.program(FrameWay::within)).has_value();
    TRY(attach(inside_, place_.inner, gate.program(FrameWay::to_job)));
    TRY(attach(outside_, place_.outer, gate.program(FrameWay::from_job)));
    return Armed{std::move(gate), within};
}

Status PortLinks::disarm() const {
    TRY(attach_within(-1));
    TRY(attach(inside_, place_.inner, -1));
    return attach(outside_, place_.outer, -1);
}

Status PortLinks::act(PortAct what) const {
    // The kernel's default, of each new namespace (TCP_RETR2); and the most that it takes.
    constexpr std::string_view as_always = "15", all_day = "255";
    const auto set = [](const Fd& setting, std::string_view to, const char* why) {
        return ::pwrite(setting.get(), to.data(), to.size(), 0) == static_cast<ssize_t>(to.size())
                   ? Status{}
                   : Status(fail_errno(why, errno));
    };
    switch (what) {
        case PortAct::disarm: return disarm();
        case PortAct::announce: return announce();
        case PortAct::abandon: return set(orphans_, "1", "end what is left of connections");
        case PortAct::be_patient: return set(retries_, all_day, "keep connections");
        case PortAct::be_as_always: return set(retries_, as_always, "keep connections as always");
    }
    return fail("no such act");
}

void PortLinks::say_within(const std::string& frame) const {
    const std::string_view packet =
        std::string_view(frame).substr(std::min<size_t>(frame.size(), ETH_HLEN));
    sockaddr_in to4{};
    sockaddr_in6 to6{};
    constexpr size_t to4_at = 16, to6_at = 24;
    if (!stays_within(packet, place_.address)) return;
    const auto say = [&](const Fd& socket, const auto& to) {
        (void)::sendto(socket.get(), packet.data(), packet.size(), MSG_DONTWAIT,
                       reinterpret_cast<const sockaddr*>(&to), sizeof to);
    };
    if (packet.size() >= to6_at + sizeof to6.sin6_addr &&
        static_cast<uint8_t>(packet[0]) >> 4 == 6) {
        to6.sin6_family = AF_INET6;
        std::memcpy(&to6.sin6_addr, packet.data() + to6_at, sizeof to6.sin6_addr);
        say(raw6_, to6);
    } else if (packet.size() >= to4_at + sizeof to4.sin_addr) {
        to4.sin_family = AF_INET;
        std::memcpy(&to4.sin_addr, packet.data() + to4_at, sizeof to4.sin_addr);
        say(raw4_, to4);
    }
}

Status PortLinks::announce() const {
    const std::string frame = arp_announcement(place_.hardware, place_.address);
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = place_.inner;
    to.sll_halen = ETH_ALEN;
    if (::sendto(speaker_.get(), frame.data(), frame.size(), MSG_DONTWAIT,
                 reinterpret_cast<const sockaddr*>(&to), sizeof to) < 0)
        return fail_errno("announce its address", errno);
    return {};
}

}  // namespace souk
