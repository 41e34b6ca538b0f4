// SPDX-License-Identifier: GPL-2.0-or-later
// The network of jobs with an address of their own, in network namespaces of the test's own
// process.
#include <arpa/inet.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/frame_hold.hpp"
#include "kernel/sys/net/job_port.hpp"
#include "kernel/sys/net/tcp_unaccepted.hpp"
#include "tests/unit/unit.hpp"

// g++ 12 at -O2 takes the text of an error that is not there for one that is freed.
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"

namespace souk {
namespace {

START_TEST(addresses_and_ranges_are_read_strictly) {
    ck_assert_text(parse_ipv4("10.79.64.1")->text(), "10.79.64.1");
    ck_assert_uint_eq(parse_ipv4("1.2.3.4")->n, 0x01020304);
    for (const char* bad : {"", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.04", "1.2.3.-4",
                            "1.2.3.+4", "1.2.3.4 ", " 1.2.3.4", "a.b.c.d", "1..2.3"})
        ck_assert_msg(!parse_ipv4(bad), "%s", bad);
    const Ipv4Range r = *parse_ipv4_range("10.79.64.0/18");
    ck_assert_uint_eq(r.size(), 16384);
    ck_assert_text(r.text(), "10.79.64.0/18");
    ck_assert(r.contains(*parse_ipv4("10.79.64.0")) && r.contains(*parse_ipv4("10.79.127.255")));
    ck_assert(!r.contains(*parse_ipv4("10.79.63.255")) && !r.contains(*parse_ipv4("10.79.128.0")));
    ck_assert(r.contains(*parse_ipv4_range("10.79.127.192/26")) &&
              !r.contains(*parse_ipv4_range("10.79.0.0/16")));
    for (const char* bad : {"10.79.64.0", "10.79.64.0/", "10.79.64.0/31", "10.79.64.0/7",
                            "10.79.64.1/18", "10.79.64.0/18x", "/18"})
        ck_assert_msg(!parse_ipv4_range(bad), "%s", bad);
}
END_TEST

START_TEST(an_announcement_names_the_address_and_its_hardware_twice) {
    const Ipv4 a = *parse_ipv4("10.79.64.65");
    const HardwareAddress h = job_hardware_address(a);
    ck_assert((h[0] & 3) == 2);  // locally administered, of one machine
    const std::string mac(h.begin(), h.end()), ip("\x0a\x4f\x40\x41", 4),
        f = arp_announcement(h, a);
    ck_assert_uint_eq(f.size(), 42);
    ck_assert(f.substr(0, 6) == std::string(6, '\xff') && f.substr(6, 6) == mac);
    ck_assert(f.substr(12, 10) == std::string("\x08\x06\x00\x01\x08\x00\x06\x04\x00\x01", 10));
    ck_assert(f.substr(22, 10) == mac + ip && f.substr(38, 4) == ip);
}
END_TEST

START_TEST(frames_for_a_job_are_told_from_others_and_from_its_own_from_elsewhere) {
    const Ipv4 a = *parse_ipv4("10.79.64.65"), other = *parse_ipv4("10.79.64.66");
    const HardwareAddress h = job_hardware_address(a), o = job_hardware_address(other);
    const std::string to(h.begin(), h.end()), from(o.begin(), o.end()), all(6, '\xff'),
        ip("\x08\x00", 2);
    ck_assert(frame_kind(to + from + ip + "bytes", h, a) == FrameKind::held);
    ck_assert(frame_kind(from + to + ip + "bytes", h, a) == FrameKind::other);
    ck_assert(frame_kind(all + from + ip + "bytes", h, a) == FrameKind::other);
    std::string asks = arp_announcement(o, a);  // who has a's address?
    ck_assert(frame_kind(asks, h, a) == FrameKind::held);
    ck_assert(frame_kind(arp_announcement(o, other), h, a) == FrameKind::held);  // to all
    std::string of_others = arp_announcement(o, other);
    of_others.back() ^= 1;  // who has a third one's?
    ck_assert(frame_kind(of_others, h, a) == FrameKind::other);
    ck_assert(frame_kind(arp_announcement(h, a), h, a) == FrameKind::moved);
    for (size_t n = 0; n < asks.size(); ++n)
        ck_assert(frame_kind(asks.substr(0, n), h, a) == FrameKind::other);
}
END_TEST

// A node's namespace with a bridge, and a job's.
struct Rig {
    Rig() {
        for (Fd* fresh : {&job, &elsewhere, &own}) {
            ck_assert(::unshare(CLONE_NEWNET) == 0);
            *fresh = *open_at(AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY);
        }
        const auto node = Netlink::open();
        ck_assert(node.has_value());
        NetlinkRequest bridge(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
        bridge.put(IFLA_IFNAME, network.bridge);
        nlattr* const info = bridge.open(IFLA_LINKINFO);
        bridge.put(IFLA_INFO_KIND, std::string("bridge"));
        bridge.close(info);
        const Status made = node->ask(bridge);
        ck_assert_msg(made.has_value(), "%s", made ? "" : made.error().message.c_str());
        const int index = node->link(network.bridge)->index;
        ifaddrmsg head{};
        head.ifa_family = AF_INET;
        head.ifa_prefixlen = 18;
        head.ifa_index = static_cast<uint32_t>(index);
        NetlinkRequest gateway(RTM_NEWADDR, NLM_F_CREATE, head);
        gateway.put(IFA_LOCAL, htonl(network.gateway.n));
        ck_assert(node->ask(gateway).has_value());
        ifinfomsg up{};
        up.ifi_index = index;
        up.ifi_flags = up.ifi_change = IFF_UP;
        ck_assert(node->ask(NetlinkRequest(RTM_NEWLINK, 0, up)).has_value());
    }
    JobPort make(bool shut) {
        auto port = JobPort::make(network, address, name, *open_job_inside(job.get()), shut);
        ck_assert_msg(port.has_value(), "%s", port ? "" : port.error().message.c_str());
        return std::move(*port);
    }
    static Fd udp(Ipv4 at) {
        Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const sockaddr_in a = end(at);
        ck_assert(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
        return fd;
    }
    Fd udp_inside() const {
        Fd fd;
        ck_assert(in_net_namespace(job.get(), [&]() -> Status {
                      fd = udp(address);
                      return {};
                  }).has_value());
        return fd;
    }
    static sockaddr_in end(Ipv4 at) {
        sockaddr_in a{};
        a.sin_family = AF_INET;
        a.sin_port = htons(700);
        a.sin_addr.s_addr = htonl(at.n);
        return a;
    }
    // Whether a datagram comes through. All of it is done before the call that sends returns, but
    // for finding out the hardware address once, which takes an answer.
    static bool passes(const Fd& from, const Fd& to, Ipv4 at, int limit_ms) {
        const sockaddr_in a = end(at);
        ck_assert(
            ::sendto(from.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 1);
        pollfd p{to.get(), POLLIN, 0};
        char byte = 0;
        return ::poll(&p, 1, limit_ms) == 1 && ::recv(to.get(), &byte, 1, 0) == 1;
    }

    JobNetwork network{"bridge", *parse_ipv4_range("10.79.64.0/18"), *parse_ipv4("10.79.64.1")};
    Ipv4 address = *parse_ipv4("10.79.64.70");
    std::string name = "sjtest";
    Fd job, elsewhere, own;  // namespaces; own: the node's, which this process is in
};

const char* impossible() {
    return ::geteuid() == 0 ? nullptr : "a test of network interfaces needs root";
}
constexpr int soon_ms = 5'000, never_ms = 50;

START_TEST(gates_stop_frames_one_way_or_both_and_open_again_whoever_finds_them) {
    UNIT_SKIP_IF(impossible());
    Rig rig;
    JobPort port = rig.make(false);
    const Fd node = Rig::udp(rig.network.gateway), job = rig.udp_inside();
    const auto in = [&](int limit) { return Rig::passes(node, job, rig.address, limit); };
    const auto out = [&](int limit) { return Rig::passes(job, node, rig.network.gateway, limit); };
    ck_assert(in(soon_ms) && out(soon_ms));
    ck_assert(port.arm().has_value() && in(soon_ms) && out(soon_ms));
    ck_assert(port.shut(FrameWay::to_job).has_value());
    ck_assert(!in(never_ms) && out(soon_ms));
    ck_assert(port.shut(FrameWay::from_job).has_value());
    ck_assert(!in(never_ms) && !out(never_ms));
    ck_assert(port.open().has_value() && in(soon_ms) && out(soon_ms));
    ck_assert(port.disarm().has_value() && in(soon_ms) && out(soon_ms));
    ck_assert(Netlink::open()->link(rig.network.bridge)->hardware[0] ==
              0xfe);  // the lowest of its ports': there is no other
    // Its daemon dies with both shut.
    ck_assert(port.arm().has_value() && port.shut(FrameWay::to_job).has_value() &&
              port.shut(FrameWay::from_job).has_value());
    port = *JobPort::find(rig.address, rig.name, *open_job_inside(rig.job.get()));
    ck_assert(!in(never_ms) && !out(never_ms));
    ck_assert(port.open().has_value() && in(soon_ms) && out(soon_ms));
}
END_TEST

START_TEST(
    a_gate_on_loopback_stops_all_but_what_has_the_mark_of_criu_and_opens_again_whoever_finds_it) {
    UNIT_SKIP_IF(impossible());
    Rig rig;
    JobPort port = rig.make(false);
    ifinfomsg up{};
    up.ifi_index = 1;
    up.ifi_flags = up.ifi_change = IFF_UP;
    ck_assert(Netlink::over(std::move(open_job_inside(rig.job.get())->route))
                  ->ask(NetlinkRequest(RTM_NEWLINK, 0, up))
                  .has_value());
    const Fd a = rig.udp_inside();
    Fd b, marked;
    ck_assert(in_net_namespace(rig.job.get(), [&]() -> Status {
                  b = Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
                  marked = Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
                  return {};
              }).has_value());
    ck_assert(::setsockopt(marked.get(), SOL_SOCKET, SO_MARK, &criu_mark, sizeof criu_mark) == 0);
    // What the gate drops, the sender hears of: sendto itself says so, or that it is gone.
    const auto passes = [&](const Fd& from, int limit_ms = soon_ms) {
        const sockaddr_in to = Rig::end(rig.address);
        (void)::sendto(from.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
        pollfd p{a.get(), POLLIN, 0};
        char byte = 0;
        return ::poll(&p, 1, limit_ms) == 1 && ::recv(a.get(), &byte, 1, 0) == 1;
    };
    ck_assert(passes(b) && passes(marked));
    ck_assert(port.arm().has_value() && passes(b) && passes(marked));
    const Status shut = port.shut(FrameWay::within);
    ck_assert_msg(shut.has_value(), "%s", shut ? "" : shut.error().message.c_str());
    ck_assert(!passes(b, never_ms) && passes(marked));
    ck_assert(port.open().has_value() && passes(b));
    ck_assert(port.shut(FrameWay::within).has_value() && !passes(b, never_ms));
    port =
        *JobPort::find(rig.address, rig.name, *open_job_inside(rig.job.get()));  // its daemon dies
    ck_assert(!passes(b, never_ms) && passes(marked));
    ck_assert(port.open().has_value() && passes(b));
    ck_assert(port.disarm().has_value() && passes(b));  // also if there is none
    ck_assert(port.arm().has_value() && port.shut(FrameWay::within).has_value() &&
              !passes(b, never_ms));
    ck_assert(port.disarm().has_value() && passes(b));
}
END_TEST

START_TEST(connections_that_a_program_has_not_accepted_are_counted) {
    const std::string head =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";
    const auto line = [](const char* state, const char* queues) {
        return std::string("   0: 0100007F:1F90 00000000:0000 ") + state + " " + queues +
               " 00:00000000 00000000     0        0 18229\n";
    };
    ck_assert_uint_eq(unaccepted_in(""), 0);
    ck_assert_uint_eq(unaccepted_in(head), 0);
    ck_assert_uint_eq(unaccepted_in(head + line("0A", "00000000:00000000")), 0);
    ck_assert_uint_eq(unaccepted_in(head + line("0A", "00000000:0000000B")), 11);
    ck_assert_uint_eq(unaccepted_in(head + line("03", "00000000:00000000")), 1);
    // what waits to be read is no connection
    ck_assert_uint_eq(unaccepted_in(head + line("01", "00000000:00000007")), 0);
    const std::string all =
        head + line("0A", "00000005:00000002") + line("03", "0:0") + line("06", "0:1");
    ck_assert_uint_eq(unaccepted_in(all), 3);
    for (size_t n = 0; n < all.size(); ++n) ck_assert_uint_le(unaccepted_in(all.substr(0, n)), 3);
    ck_assert(!unaccepted_of(0).has_value());
}
END_TEST

START_TEST(while_nothing_may_begin_what_is_there_goes_on_and_what_waits_is_counted) {
    UNIT_SKIP_IF(impossible());
    Rig rig;
    JobPort port = rig.make(false);
    const sockaddr_in at = Rig::end(rig.address);
    const auto* const to = reinterpret_cast<const sockaddr*>(&at);
    Fd door;
    size_t unaccepted = 0;
    const auto look = [&] {
        ck_assert(in_net_namespace(rig.job.get(), [&]() -> Status {
                      unaccepted = unaccepted_of(::gettid()).value_or(99);
                      return {};
                  }).has_value());
        return unaccepted;
    };
    ck_assert(in_net_namespace(rig.job.get(), [&]() -> Status {
                  door = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
                  return {};
              }).has_value());
    ck_assert(::bind(door.get(), to, sizeof at) == 0 && ::listen(door.get(), 8) == 0);
    const auto connects = [&](const Fd& fd, int limit_ms) {
        (void)::connect(fd.get(), to, sizeof at);
        pollfd p{fd.get(), POLLOUT, 0};
        return ::poll(&p, 1, limit_ms) == 1 && (p.revents & POLLERR) == 0;
    };
    const auto fresh = [] {
        return Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    };
    const Fd first = fresh(), second = fresh();
    ck_assert_uint_eq(look(), 0);
    ck_assert(connects(first, soon_ms));
    ck_assert_uint_eq(look(), 1);
    ck_assert(port.arm().has_value() && port.begins_nothing().has_value());
    ck_assert(!connects(second, never_ms));
    ck_assert_uint_eq(look(), 1);
    const Fd taken(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ck_assert(taken.get() >= 0);
    ck_assert_uint_eq(look(), 0);
    char byte = 0;
    ck_assert(::send(first.get(), "x", 1, 0) == 1);
    pollfd p{taken.get(), POLLIN, 0};
    ck_assert(::poll(&p, 1, soon_ms) == 1 && ::recv(taken.get(), &byte, 1, 0) == 1);
    ck_assert(port.open().has_value());
    ck_assert(connects(second, soon_ms));  // it has tried again
    ck_assert_uint_eq(look(), 1);
}
END_TEST

START_TEST(a_port_made_shut_is_silent_until_it_is_opened_and_takes_the_place_of_one_left_over) {
    UNIT_SKIP_IF(impossible());
    Rig rig;
    const JobPort left_over = rig.make(true);
    JobPort port = rig.make(true);
    const Fd node = Rig::udp(rig.network.gateway), job = rig.udp_inside();
    ck_assert(!Rig::passes(job, node, rig.network.gateway, never_ms));
    ck_assert(port.open().has_value() && Rig::passes(job, node, rig.network.gateway, soon_ms));
    ck_assert(::unshare(CLONE_NEWNET) == 0);  // where there is no bridge
    const auto nowhere =
        JobPort::make(rig.network, rig.address, rig.name, *open_job_inside(rig.job.get()), false);
    ck_assert_msg(
        !nowhere && nowhere.error().message.starts_with("its network interface: bridge: "), "%s",
        nowhere ? "" : nowhere.error().message.c_str());
}
END_TEST

// A datagram to the job, and whether it is there.
void say(const Fd& from, Ipv4 to, char what) {
    const sockaddr_in a = Rig::end(to);
    ck_assert(::sendto(from.get(), &what, 1, 0, reinterpret_cast<const sockaddr*>(&a), sizeof a) ==
              1);
}
char heard(const Fd& at, int limit_ms) {
    pollfd p{at.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&p, 1, limit_ms) == 1 && ::recv(at.get(), &byte, 1, 0) == 1 ? byte : '-';
}

START_TEST(what_comes_while_a_job_stands_still_is_given_to_it_here_or_where_it_has_gone) {
    UNIT_SKIP_IF(impossible());
    Rig rig;
    JobPort here = rig.make(false);
    const Fd node = Rig::udp(rig.network.gateway);
    Fd job, copy;
    const auto open_in = [&](const Fd& where, Fd& fd) {
        ck_assert(in_net_namespace(where.get(), [&]() -> Status {
                      fd = Rig::udp(rig.address);
                      return {};
                  }).has_value());
    };
    open_in(rig.job, job);
    ck_assert(Rig::passes(node, job, rig.address, soon_ms));
    const auto stop = [&] {
        ck_assert(here.arm().has_value());
        auto hold = FrameHold::open(here, rig.network.bridge);
        ck_assert_msg(hold.has_value(), "%s", hold ? "" : hold.error().message.c_str());
        ck_assert(here.shut(FrameWay::to_job).has_value() &&
                  here.shut(FrameWay::from_job).has_value());
        return std::move(*hold);
    };
    const auto take_until = [](FrameHold& hold, size_t held) {
        while (hold.held() != held) {  // what the kernel itself says on a new interface comes too
            pollfd p{hold.fd(), POLLIN, 0};
            ck_assert(::poll(&p, 1, soon_ms) == 1);
            hold.on_readable();
        }
    };
    {
        FrameHold hold = stop();
        say(node, rig.address, 'a');
        say(node, rig.address, 'b');
        take_until(hold, 2);
        ck_assert(here.open().has_value());
        hold.give_back(unix_now());
        ck_assert(heard(job, soon_ms) == 'a' && heard(job, soon_ms) == 'b' &&
                  heard(job, never_ms) == '-' && hold.held() == 0);
    }
    FrameHold hold = stop();
    say(node, rig.address, 'c');
    take_until(hold, 1);
    rig.name = "sjelsewhere";
    JobPort there = *JobPort::make(rig.network, rig.address, rig.name,
                                   *open_job_inside(rig.elsewhere.get()), false);
    open_in(rig.elsewhere, copy);
    for (int i = 0; i < soon_ms / never_ms && hold.held() > 0;
         ++i) {  // the bridge takes a moment until its new port is up
        ck_assert(there.announce().has_value());
        pollfd p{hold.fd(), POLLIN, 0};
        (void)::poll(&p, 1, never_ms);
        hold.on_readable();
    }
    ck_assert(heard(copy, soon_ms) == 'c');
    say(node, rig.address, 'd');  // and what is sent now goes there by itself
    ck_assert(heard(copy, soon_ms) == 'd' && heard(job, never_ms) == '-');
}
END_TEST

START_TEST(frames_as_text_come_back_as_they_were_and_what_is_none_ends_it) {
    std::deque<std::string> frames;
    for (const size_t bytes : {10, 64, 1514, 70'000}) frames.emplace_back(bytes, 'f');
    const std::string text = encode_frames(frames);
    const auto all = decode_frames(text);
    ck_assert(std::deque<std::string>(all.begin(), all.end()) == frames);
    ck_assert(encode_frames({}).empty() && decode_frames("").empty());
    for (size_t cut = 1; cut < 2000; ++cut)
        ck_assert_uint_eq(decode_frames(std::string_view(text).substr(0, text.size() - cut)).size(),
                          3);
    ck_assert(decode_frames(std::string(4, '\0') + text).empty());  // too short for one
    ck_assert(decode_frames(std::string(4, '\xff') + text).empty());
}
END_TEST

// It was frozen, and what came for it then is in its image; what comes now waits behind that.
START_TEST(a_copy_gets_what_came_while_it_was_frozen_and_says_what_it_has_said_when_it_is_opened) {
    UNIT_SKIP_IF(impossible());
    Rig rig;
    const auto take_until = [](FrameHold& hold, const std::function<bool()>& done) {
        while (!done()) {
            pollfd p{hold.fd(), POLLIN, 0};
            ck_assert(::poll(&p, 1, soon_ms) == 1);
            hold.on_readable();
        }
    };
    const Fd node = Rig::udp(rig.network.gateway);
    std::string image;
    {
        JobPort here = rig.make(false);
        const Fd job = rig.udp_inside();
        ck_assert(Rig::passes(node, job, rig.address, soon_ms));
        ck_assert(here.arm().has_value());
        auto hold = FrameHold::open(here, rig.network.bridge);
        ck_assert(here.shut(FrameWay::to_job).has_value());
        say(node, rig.address, 'a');
        say(node, rig.address, 'b');
        take_until(*hold, [&] { return hold->held() >= 2; });
        image = hold->text();
    }
    std::swap(rig.job, rig.elsewhere);
    rig.name = "sjcopy";
    JobPort copy = rig.make(true);
    const Fd job = rig.udp_inside();
    auto heard_of = FrameHold::open(copy, "");
    auto spoken = FrameHold::open_inside(copy, copy.take_spoken());
    ck_assert(heard_of.has_value() && spoken.has_value());
    std::deque<std::string> all;
    for (std::string& f : decode_frames(image)) all.push_back(std::move(f));
    std::string to_another = all.front();
    to_another[10] ^= 4;  // of its destination's address
    all.push_front(to_another);
    heard_of->put_first(decode_frames(encode_frames(all)));
    ck_assert_uint_eq(heard_of->held(), all.size() - 1);
    const sockaddr_in to = Rig::end(rig.network.gateway);
    ck_assert(::sendto(job.get(), "c", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) ==
              1);  // and asks for the address
    take_until(*spoken, [&] { return spoken->held() >= 1; });
    ck_assert(heard(job, never_ms) == '-' && heard(node, never_ms) == '-');
    ck_assert(copy.open().has_value());
    heard_of->give_back(unix_now());
    spoken->give_back(unix_now());
    ck_assert(heard(job, soon_ms) == 'a' && heard(job, soon_ms) == 'b');
    for (int i = 0;; ++i) {  // the bridge takes a moment until its new port is up
        ck_assert(i < 5 * soon_ms / never_ms);
        if (heard(node, never_ms) == 'c') break;
    }
}
END_TEST

UNIT_SUITE(
    job_port, frames_as_text_come_back_as_they_were_and_what_is_none_ends_it,
    a_copy_gets_what_came_while_it_was_frozen_and_says_what_it_has_said_when_it_is_opened,
    frames_for_a_job_are_told_from_others_and_from_its_own_from_elsewhere,
    what_comes_while_a_job_stands_still_is_given_to_it_here_or_where_it_has_gone,
    addresses_and_ranges_are_read_strictly,
    an_announcement_names_the_address_and_its_hardware_twice,
    gates_stop_frames_one_way_or_both_and_open_again_whoever_finds_them,
    a_gate_on_loopback_stops_all_but_what_has_the_mark_of_criu_and_opens_again_whoever_finds_it,
    connections_that_a_program_has_not_accepted_are_counted,
    while_nothing_may_begin_what_is_there_goes_on_and_what_waits_is_counted,
    a_port_made_shut_is_silent_until_it_is_opened_and_takes_the_place_of_one_left_over);

}  // namespace
}  // namespace souk
