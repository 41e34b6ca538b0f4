// SPDX-License-Identifier: GPL-2.0-or-later
// Frames that are sent to a job that stands still, or to its copy, are held. So are the frames that
// the copy sends before it may.
#include "kernel/sys/net/frame_hold.hpp"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>

#include "kernel/sys/host/clock.hpp"
#include "tests/unit/network_rig.hpp"

namespace souk::unit {
namespace {

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

// The bytes of held datagrams of one byte each, in their order.
std::string words_held(FrameHold& hold) {
    constexpr size_t head = 10, datagram = head + 14 + 20 + 8 + 1, type_at = head + 12;
    const std::string text = hold.text();
    std::string words;
    for (const std::string& f : decode_frames(text))
        if (f.size() == datagram && f.substr(type_at, 2) == std::string_view("\x08\x00", 2))
            words += f.back();
    return words;
}

// Somebody else on the bridge says where his address is.
void say_address_to_all(const std::string& bridge) {
    const Ipv4 somebody = *parse_ipv4("10.79.64.99");
    const std::string frame = arp_announcement(job_hardware_address(somebody), somebody);
    const Fd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = static_cast<int>(::if_nametoindex(bridge.c_str()));
    to.sll_halen = ETH_ALEN;
    ck_assert(::sendto(socket.get(), frame.data(), frame.size(), 0,
                       reinterpret_cast<const sockaddr*>(&to),
                       sizeof to) == static_cast<ssize_t>(frame.size()));
}

// Long: one interface through all that may become of its frames.
START_TEST(what_comes_while_a_job_stands_still_is_given_to_it_here_or_where_it_has_gone) {
    UNIT_SKIP_IF(networks_impossible());
    NetworkRig rig;
    JobPort here = rig.make(false);
    const PortPlace place = rig.place;
    const Fd node = NetworkRig::udp(rig.network.gateway);
    Fd job, copy;
    const auto open_in = [&](const Fd& where, Fd& fd) {
        ck_assert(in_net_namespace(where.get(), [&]() -> Status {
                      fd = NetworkRig::udp(rig.address);
                      return {};
                  }).has_value());
    };
    open_in(rig.job, job);
    ck_assert(NetworkRig::passes(node, job, rig.address, soon_ms));
    const auto stop = [&] {
        ck_assert(here.arm().has_value());
        auto hold = FrameHold::open(place, rig.network.bridge);
        ck_assert_msg(hold.has_value(), "%s", hold ? "" : hold.error().message.c_str());
        ck_assert(here.shut(FrameWay::to_job).has_value() &&
                  here.shut(FrameWay::from_job).has_value());
        return std::move(*hold);
    };
    // Others may ask for addresses at any moment, and those frames are held as well.
    const auto take_until = [](FrameHold& hold, std::string_view words) {
        while (words_held(hold) != words) {
            pollfd p{hold.fd(), POLLIN, 0};
            ck_assert(::poll(&p, 1, soon_ms) == 1);
            hold.on_readable();
        }
    };
    {
        FrameHold hold = stop();
        say(node, rig.address, 'a');
        say_address_to_all(rig.network.bridge);
        say(node, rig.address, 'b');
        take_until(hold, "ab");
        ck_assert(here.open().has_value());
        hold.give_back(unix_now());
        ck_assert(heard(job, soon_ms) == 'a' && heard(job, soon_ms) == 'b' &&
                  heard(job, never_ms) == '-' && hold.held() == 0);
    }
    {  // what passes before the gate is shut and after it is open comes once
        ck_assert(here.arm().has_value());
        FrameHold hold = *FrameHold::open(place, rig.network.bridge);
        say(node, rig.address, 'p');
        ck_assert(heard(job, soon_ms) == 'p');
        const Nanos before = unix_now();
        ck_assert(here.shut(FrameWay::to_job).has_value());
        hold.shut_since(before);
        say(node, rig.address, 'h');
        take_until(hold, "h");
        ck_assert(here.open().has_value());
        say(node, rig.address, 'q');
        ck_assert(heard(job, soon_ms) == 'q');
        hold.give_back(here.opened(FrameWay::to_job));
        ck_assert(heard(job, soon_ms) == 'h' && heard(job, never_ms) == '-');
    }
    FrameHold hold = stop();
    say(node, rig.address, 'c');
    take_until(hold, "c");
    rig.name = "sjelsewhere";
    JobPort there = rig.open({false, false, rig.address, rig.name}, rig.elsewhere);
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

// The job was frozen, and frames that came for it until then are in its image. Frames that come now
// wait behind those.
START_TEST(a_copy_gets_what_came_while_it_was_frozen_and_says_what_it_has_said_when_it_is_opened) {
    UNIT_SKIP_IF(networks_impossible());
    NetworkRig rig;
    const auto take_until = [](FrameHold& hold, const std::function<bool()>& done) {
        while (!done()) {
            pollfd p{hold.fd(), POLLIN, 0};
            ck_assert(::poll(&p, 1, soon_ms) == 1);
            hold.on_readable();
        }
    };
    const Fd node = NetworkRig::udp(rig.network.gateway);
    std::string image;
    {
        JobPort here = rig.make(false);
        const PortPlace place = rig.place;
        const Fd job = rig.udp_inside();
        ck_assert(NetworkRig::passes(node, job, rig.address, soon_ms));
        ck_assert(here.arm().has_value());
        auto hold = FrameHold::open(place, rig.network.bridge);
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
    auto heard_of = FrameHold::open(rig.place, "");
    auto spoken = FrameHold::open_inside(rig.place, *open_packet_socket(rig.job.get()));
    ck_assert(heard_of.has_value() && spoken.has_value());
    std::deque<std::string> all;
    for (std::string& f : decode_frames(image)) all.push_back(std::move(f));
    std::string to_another = all.front();
    to_another[10] ^= 4;  // of its destination's address
    all.push_front(to_another);
    heard_of->put_first(decode_frames(encode_frames(all)));
    ck_assert_uint_eq(heard_of->held(), all.size() - 1);
    const sockaddr_in to = NetworkRig::end(rig.network.gateway);
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

UNIT_SUITE(frame_hold, frames_for_a_job_are_told_from_others_and_from_its_own_from_elsewhere,
           what_comes_while_a_job_stands_still_is_given_to_it_here_or_where_it_has_gone,
           frames_as_text_come_back_as_they_were_and_what_is_none_ends_it,
           a_copy_gets_what_came_while_it_was_frozen_and_says_what_it_has_said_when_it_is_opened);

}  // namespace
}  // namespace souk::unit
