// SPDX-License-Identifier: GPL-2.0-or-later
// The first frame of a connection is kept while a gate stops it. When the gate opens, it is sent
// again at once.
#include "kernel/sys/net/frame_hold.hpp"

#include <cstring>
#include <functional>
#include <vector>

#include "kernel/sys/net/tcp_checksum.hpp"
#include "tests/unit/network_rig.hpp"

namespace souk::unit {
namespace {

constexpr int before_again_ms = 800;  // TCP itself tries again a second after the first time

// An end of a connection, as IPv4 and IPv6 have it.
struct End {
    sockaddr_storage at{};
    socklen_t bytes = 0;
    const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&at); }
};
template <class Address>
End end_of(const Address& a) {
    End e;
    std::memcpy(&e.at, &a, sizeof a);
    e.bytes = sizeof a;
    return e;
}
Fd stream(const End& e) {
    return Fd(::socket(e.at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}
void in(const Fd& where, const std::function<void()>& f) {
    ck_assert(in_net_namespace(where.get(), [&]() -> Status {
                  f();
                  return {};
              }).has_value());
}
bool is_there(const Fd& connecting, int limit_ms) {
    pollfd p{connecting.get(), POLLOUT, 0};
    return ::poll(&p, 1, limit_ms) == 1 && (p.revents & (POLLERR | POLLHUP)) == 0;
}

START_TEST(a_connection_within_a_job_that_a_gate_stops_is_there_when_what_was_kept_is_said) {
    UNIT_SKIP_IF(networks_impossible());
    NetworkRig rig;
    JobPort port = rig.make(false);
    rig.loopback_up();
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(701);
    six.sin6_addr = in6addr_loopback;
    const End ends[] = {end_of(NetworkRig::end(*parse_ipv4("127.0.0.1"))),
                        end_of(NetworkRig::end(rig.address)), end_of(six)};
    for (const bool all : {false, true}) {
        for (const End& to : ends) {
            Fd door, caller;
            in(rig.job, [&] {
                door = stream(to);
                caller = stream(to);
            });
            const int on = 1;
            ck_assert(::setsockopt(door.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
            ck_assert(::bind(door.get(), to.raw(), to.bytes) == 0 && ::listen(door.get(), 8) == 0);
            ck_assert(port.arm().has_value());
            ck_assert((all ? port.shut(FrameWay::within) : port.begins_nothing()).has_value());
            (void)::connect(caller.get(), to.raw(), to.bytes);
            ck_assert(!is_there(caller, never_ms));
            ck_assert(port.open().has_value());
            const std::vector<KeptFrame> kept = port.take_kept();
            ck_assert_uint_eq(kept.size(), 1);
            ck_assert(kept[0].way == FrameWay::within && port.take_kept().empty());
            ck_assert(port.work().say(FrameWay::within, {""}).has_value());
            ck_assert(port.work().say(FrameWay::within, {kept[0].frame.substr(0, 30)}).has_value());
            ck_assert(port.work().say(FrameWay::within, {kept[0].frame}).has_value());
            ck_assert(is_there(caller, before_again_ms));
            ck_assert(
                port.work().say(FrameWay::within, {kept[0].frame}).has_value());  // twice is once
            const Fd taken(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
            ck_assert(taken.get() >= 0);
            ck_assert(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC) < 0);
        }
    }
}
END_TEST

START_TEST(a_connection_with_a_job_that_begins_nothing_is_there_when_the_hold_gives_what_was_kept) {
    UNIT_SKIP_IF(networks_impossible());
    NetworkRig rig;
    JobPort port = rig.make(false);
    const End to = end_of(NetworkRig::end(rig.address));
    Fd door;
    in(rig.job, [&] { door = stream(to); });
    ck_assert(::bind(door.get(), to.raw(), to.bytes) == 0 && ::listen(door.get(), 8) == 0);
    const Fd first = stream(to), second = stream(to);
    (void)::connect(first.get(), to.raw(), to.bytes);  // the hardware address is known then
    ck_assert(is_there(first, soon_ms));
    ck_assert(port.arm().has_value() && port.begins_nothing().has_value());
    (void)::connect(second.get(), to.raw(), to.bytes);
    ck_assert(!is_there(second, never_ms));
    std::vector<std::string> frames;
    for (const KeptFrame& one : port.take_kept()) {
        ck_assert(one.way == FrameWay::to_job);
        frames.push_back(FrameHold::of_wire(one.frame));
    }
    ck_assert_uint_eq(frames.size(), 1);
    auto hold = FrameHold::open(rig.place, "");
    ck_assert(hold.has_value() && port.shut(FrameWay::to_job).has_value());
    hold->put_first(frames);
    ck_assert_uint_eq(hold->held(), 1);
    ck_assert(port.open().has_value() && port.take_kept().empty());
    hold->give_back({});
    ck_assert(is_there(second, before_again_ms));
}
END_TEST

// The sum over a segment with its checksum, and what TCP counts beside it, is all ones (RFC 1071).
uint64_t folded(const std::string& frame, size_t addresses, size_t bytes, size_t segment) {
    uint64_t sum = 6 + frame.size() - segment;
    for (size_t i = 0; i < frame.size(); ++i)
        if (i >= segment || (i >= addresses && i < addresses + bytes))
            sum += uint64_t{static_cast<uint8_t>(frame[i])} << (i % 2 == 0 ? 8 : 0);
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

START_TEST(a_segment_gets_the_checksum_that_tcp_wants_and_what_is_none_stays_as_it_is) {
    constexpr size_t ethernet = 14, tcp = 20;
    std::string segment;
    for (size_t i = 0; i < tcp + 5; ++i) segment += static_cast<char>(i * 37 + 200);
    std::string v4(ethernet + 20, '\x11'), v6(ethernet + 40, '\x22');
    v4[ethernet] = '\x45';
    v4[ethernet + 2] = 0;
    v4[ethernet + 3] = static_cast<char>(20 + segment.size());
    v4[ethernet + 9] = 6;
    v6[ethernet] = '\x60';
    v6[ethernet + 4] = 0;
    v6[ethernet + 5] = static_cast<char>(segment.size());
    v6[ethernet + 6] = 6;
    for (std::string head : {v4, v6}) {
        const bool is_v4 = head == v4;
        const size_t at = head.size();
        const std::string frame = with_tcp_checksum(head + segment);
        ck_assert_uint_eq(folded(frame, ethernet + (is_v4 ? 12 : 8), is_v4 ? 8 : 32, at), 0xffff);
        ck_assert(frame.substr(0, at + 16) == (head + segment).substr(0, at + 16));
        ck_assert(with_tcp_checksum(frame) == frame);
        ck_assert(with_tcp_checksum(frame + "pad") == frame + "pad");
        for (size_t n = 0; n < frame.size(); ++n) {
            const std::string cut = (head + segment).substr(0, n);
            ck_assert(with_tcp_checksum(cut) == cut);
        }
        head[ethernet + (is_v4 ? 9 : 6)] = 17;  // UDP
        ck_assert(with_tcp_checksum(head + segment) == head + segment);
    }
}
END_TEST

UNIT_SUITE(kept_frames,
           a_connection_within_a_job_that_a_gate_stops_is_there_when_what_was_kept_is_said,
           a_connection_with_a_job_that_begins_nothing_is_there_when_the_hold_gives_what_was_kept,
           a_segment_gets_the_checksum_that_tcp_wants_and_what_is_none_stays_as_it_is);

}  // namespace
}  // namespace souk::unit
