// SPDX-License-Identifier: GPL-2.0-or-later
// The network of jobs with an address of their own, in network namespaces of the test's own
// process.
#include "kernel/sys/net/job_port.hpp"

#include <cerrno>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/net/tcp_unaccepted.hpp"
#include "tests/unit/network_rig.hpp"

namespace souk::unit {
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

START_TEST(what_was_kept_within_a_job_is_said_to_its_own_addresses_alone) {
    const Ipv4 own = *parse_ipv4("10.79.64.65");
    const auto four = [](const char* to, char head = 0x45) {
        std::string packet(40, '\0');
        packet[0] = head;
        const uint32_t number = htonl(parse_ipv4(to)->n);
        return packet.replace(16, 4, std::string(reinterpret_cast<const char*>(&number), 4));
    };
    const auto six = [](char last, char first = 0) {
        std::string packet(60, '\0');
        packet[0] = 0x60;
        packet[24] = first;
        packet[39] = last;
        return packet;
    };
    ck_assert(stays_within(four("127.0.0.1"), own) && stays_within(four("127.9.9.9"), own));
    ck_assert(stays_within(four("10.79.64.65"), own) && stays_within(six(1), own));
    for (const char* to : {"10.79.64.66", "10.79.64.1", "0.0.0.0", "128.0.0.1", "224.0.0.1"})
        ck_assert_msg(!stays_within(four(to), own), "%s", to);
    ck_assert(!stays_within(four("127.0.0.1", 0x46), own));  // with options
    ck_assert(!stays_within(six(2), own) && !stays_within(six(1, 2), own));
    for (size_t n = 0; n < 20; ++n) ck_assert(!stays_within(four("127.0.0.1").substr(0, n), own));
    for (size_t n = 0; n < 40; ++n) ck_assert(!stays_within(six(1).substr(0, n), own));
}
END_TEST

// Says whether a datagram reaches the job, and whether one of the job reaches its node.
struct Ways {
    explicit Ways(const NetworkRig& of) : rig(of) {}
    bool in(int limit) const { return NetworkRig::passes(node, job, rig.address, limit); }
    bool out(int limit) const { return NetworkRig::passes(job, node, rig.network.gateway, limit); }
    const NetworkRig& rig;
    Fd node = NetworkRig::udp(rig.network.gateway), job = rig.udp_inside();
};

START_TEST(gates_stop_frames_one_way_or_both_and_open_again_whoever_finds_them) {
    UNIT_SKIP_IF(networks_impossible());
    NetworkRig rig;
    JobPort port = rig.make(false);
    const Ways ways(rig);
    ck_assert(ways.in(soon_ms) && ways.out(soon_ms));
    ck_assert(port.arm().has_value() && ways.in(soon_ms) && ways.out(soon_ms));
    ck_assert(port.shut(FrameWay::to_job).has_value());
    ck_assert(!ways.in(never_ms) && ways.out(soon_ms));
    ck_assert(port.shut(FrameWay::from_job).has_value());
    ck_assert(!ways.in(never_ms) && !ways.out(never_ms));
    ck_assert(port.open().has_value() && ways.in(soon_ms) && ways.out(soon_ms));
    ck_assert(port.disarm().has_value() && ways.in(soon_ms) && ways.out(soon_ms));
    ck_assert(Netlink::open()->link(rig.network.bridge)->hardware[0] ==
              0xfe);  // the lowest of its ports': there is no other
    // The daemon of the interface dies with both directions shut.
    ck_assert(port.arm().has_value() && port.shut(FrameWay::to_job).has_value() &&
              port.shut(FrameWay::from_job).has_value());
    port = rig.find();
    ck_assert(!ways.in(never_ms) && !ways.out(never_ms));
    ck_assert(port.open().has_value() && ways.in(soon_ms) && ways.out(soon_ms));
}
END_TEST

START_TEST(connections_last_for_hours_while_a_job_stands_and_as_always_from_then_on) {
    UNIT_SKIP_IF(networks_impossible());
    NetworkRig rig;
    const JobPort port = rig.make(false);
    const auto tries = [&] {
        std::string said;
        ck_assert(in_net_namespace(rig.job.get(), [&]() -> Status {
                      TRY_ASSIGN(said, read_file(AT_FDCWD, "/proc/sys/net/ipv4/tcp_retries2"));
                      return {};
                  }).has_value());
        return said;
    };
    const std::string always = tries();
    for (int i = 0; i < 2; ++i) {
        ck_assert(port.patient(true).has_value());
        ck_assert_text(tries(), "255\n");
        ck_assert(port.patient(false).has_value());
        ck_assert_text(tries(), always);
    }
}
END_TEST

// The daemon that has said so need not be there by then.
START_TEST(gates_shut_by_themselves_at_their_end_and_open_when_it_is_put_off) {
    UNIT_SKIP_IF(networks_impossible());
    NetworkRig rig;
    JobPort port = rig.make(false);
    const Ways ways(rig);
    ck_assert(port.arm().has_value());
    ck_assert(port.until(Loop::now() + Nanos::from_s(3600)).has_value());
    ck_assert(ways.in(soon_ms) && ways.out(soon_ms));
    const Nanos end = Loop::now() + Nanos::from_ms(50);
    ck_assert(port.until(end).has_value());
    while (Loop::now() < end) ::poll(nullptr, 0, 1);
    ck_assert(!ways.in(never_ms) && !ways.out(never_ms));
    ck_assert(port.open().has_value() && !ways.in(never_ms) && !ways.out(never_ms));
    port = rig.find();  // its daemon has died, and is back
    ck_assert(!ways.in(never_ms) && !ways.out(never_ms));
    ck_assert(port.open().has_value() && ways.in(soon_ms) && ways.out(soon_ms));
    ck_assert(port.arm().has_value() && port.until(Loop::now()).has_value());
    ck_assert(!ways.in(never_ms) && !ways.out(never_ms));
    ck_assert(port.until(Nanos::never()).has_value() && ways.in(soon_ms) && ways.out(soon_ms));
}
END_TEST

START_TEST(
    a_gate_on_loopback_stops_all_but_what_has_the_mark_of_criu_and_opens_again_whoever_finds_it) {
    UNIT_SKIP_IF(networks_impossible());
    NetworkRig rig;
    JobPort port = rig.make(false);
    rig.loopback_up();
    const Fd a = rig.udp_inside();
    Fd b, marked;
    ck_assert(in_net_namespace(rig.job.get(), [&]() -> Status {
                  b = Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
                  marked = Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
                  return {};
              }).has_value());
    ck_assert(::setsockopt(marked.get(), SOL_SOCKET, SO_MARK, &criu_mark, sizeof criu_mark) == 0);
    // The test sees by poll and recv whether a packet passes. A send may fail where the gate drops
    // it, and that is no mistake.
    const auto passes = [&](const Fd& from, int limit_ms = soon_ms) {
        const sockaddr_in to = NetworkRig::end(rig.address);
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
    port = rig.find();  // its daemon dies
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
    const auto row = [](const char* ends, const char* state, const char* queues = "0:0") {
        return std::string("   0: ") + ends + " " + state + " " + queues +
               " 00:00000000 00000000     0        0 18229\n";
    };
    const auto line = [&](const char* state, const char* queues) {
        return row("0100007F:1F90 00000000:0000", state, queues);
    };
    const auto unaccepted = [](std::string_view table) { return unfinished_in(table).unaccepted; };
    const auto begun = [](std::string_view table) { return unfinished_in(table).begun_within; };
    ck_assert_uint_eq(unaccepted(""), 0);
    ck_assert_uint_eq(unaccepted(head), 0);
    ck_assert_uint_eq(unaccepted(head + line("0A", "00000000:00000000")), 0);
    ck_assert_uint_eq(unaccepted(head + line("0A", "00000000:0000000B")), 11);
    ck_assert_uint_eq(unaccepted(head + line("03", "00000000:00000000")), 1);
    // what waits to be read is no connection
    ck_assert_uint_eq(unaccepted(head + line("01", "00000000:00000007")), 0);
    const std::string all =
        head + line("0A", "00000005:00000002") + line("03", "0:0") + line("06", "0:1");
    ck_assert_uint_eq(unaccepted(all), 3);
    ck_assert_uint_eq(begun(all), 0);
    for (size_t n = 0; n < all.size(); ++n) ck_assert_uint_le(unaccepted(all.substr(0, n)), 3);
    ck_assert(!unfinished_of(0).has_value());
    // A connection that has sent its first packet and got no answer counts if its other end is on
    // this machine, and not if it is on another one.
    const char* const six = "00000000000000000000000001000000";
    const std::string within_six = std::string(six) + ":A1B2 " + six + ":1F90";
    const std::string within =
        head + row("0100007F:A1B2 0100007F:1F90", "02") + row("0100007F:A1B3 0200007F:1F90", "02") +
        row("0500000A:A1B4 0500000A:1F90", "02") + row(within_six.c_str(), "02");
    ck_assert_uint_eq(begun(within), 4);
    ck_assert_uint_eq(begun(head + row("0500000A:A1B4 0600000A:1F90", "02")), 0);
    ck_assert_uint_eq(begun(head + row("0100007F:A1B2 0100007F:1F90", "01")), 0);
    ck_assert_uint_eq(unaccepted(within), 0);
}
END_TEST

START_TEST(while_nothing_may_begin_what_is_there_goes_on_and_what_waits_is_counted) {
    UNIT_SKIP_IF(networks_impossible());
    NetworkRig rig;
    JobPort port = rig.make(false);
    const sockaddr_in at = NetworkRig::end(rig.address);
    const auto* const to = reinterpret_cast<const sockaddr*>(&at);
    Fd door;
    size_t unaccepted = 0;
    const auto look = [&] {
        ck_assert(
            in_net_namespace(rig.job.get(), [&]() -> Status {
                unaccepted = unfinished_of(::gettid()).value_or(UnfinishedTcp{99, 0}).unaccepted;
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
    UNIT_SKIP_IF(networks_impossible());
    NetworkRig rig;
    const JobPort left_over = rig.make(true);
    JobPort port = rig.make(true);
    const Fd node = NetworkRig::udp(rig.network.gateway), job = rig.udp_inside();
    ck_assert(!NetworkRig::passes(job, node, rig.network.gateway, never_ms));
    ck_assert(port.open().has_value() &&
              NetworkRig::passes(job, node, rig.network.gateway, soon_ms));
    ck_assert(::unshare(CLONE_NEWNET) == 0);  // where there is no bridge
    const auto nowhere =
        LocalPort::open(rig.network, {false, false, rig.address, rig.name}, rig.job.get());
    ck_assert_msg(
        !nowhere && nowhere.error().message.starts_with("its network interface: bridge: "), "%s",
        nowhere ? "" : nowhere.error().message.c_str());
}
END_TEST

UNIT_SUITE(
    job_port,
    a_gate_on_loopback_stops_all_but_what_has_the_mark_of_criu_and_opens_again_whoever_finds_it,
    addresses_and_ranges_are_read_strictly,
    an_announcement_names_the_address_and_its_hardware_twice,
    connections_last_for_hours_while_a_job_stands_and_as_always_from_then_on,
    gates_shut_by_themselves_at_their_end_and_open_when_it_is_put_off,
    gates_stop_frames_one_way_or_both_and_open_again_whoever_finds_them,
    connections_that_a_program_has_not_accepted_are_counted,
    what_was_kept_within_a_job_is_said_to_its_own_addresses_alone,
    while_nothing_may_begin_what_is_there_goes_on_and_what_waits_is_counted,
    a_port_made_shut_is_silent_until_it_is_opened_and_takes_the_place_of_one_left_over);

}  // namespace
}  // namespace souk::unit
