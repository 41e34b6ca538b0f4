// SPDX-License-Identifier: GPL-2.0-or-later
// Netlink: requests to the kernel about links, addresses and routes (rtnetlink(7)), each answered
// before the call returns; libmnl lays them out and reads the answers. A Netlink belongs to the
// network namespace in which it was opened, and keeps that namespace alive. What fails: what the
// kernel refuses, in its own words where it has some.
#pragma once

#include <linux/rtnetlink.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

struct mnl_socket;

namespace souk {

// One request: a header of the family's kind, then attributes, which may hold others.
class NetlinkRequest {
  public:
    template <class Header>
    NetlinkRequest(uint16_t type, uint16_t flags, const Header& header)
        : NetlinkRequest(type, flags) {
        add(&header, sizeof header);
    }
    void put(uint16_t type, const void* data, size_t n);
    void put(uint16_t type, const std::string& text) { put(type, text.c_str(), text.size() + 1); }
    template <class T>
    requires std::is_trivially_copyable_v<T>
    void put(uint16_t type, const T& value) { put(type, &value, sizeof value); }
    // Opens a nest: what is put until close(), with the result of open(), lies inside it. `header`
    // comes first.
    nlattr* open(uint16_t type);
    template <class Header>
    nlattr* open(uint16_t type, const Header& header) {
        nlattr* const nest = open(type);
        add(&header, sizeof header);
        return nest;
    }
    void close(nlattr* nest);
    const nlmsghdr* message() const { return reinterpret_cast<const nlmsghdr*>(bytes_.get()); }

  private:
    NetlinkRequest(uint16_t type, uint16_t flags);
    nlmsghdr* head() { return reinterpret_cast<nlmsghdr*>(bytes_.get()); }
    void add(const void* header, size_t n);
    std::unique_ptr<char[]> bytes_;  // does not move: what open() gave points into it
};

using HardwareAddress = std::array<uint8_t, 6>;  // of Ethernet

struct NetLink {
    int index = 0;
    HardwareAddress hardware{};
    uint32_t mtu = 0;
    std::string kind;  // "bridge", "veth"; empty for a plain device
    // A pair of links has another end. These are its index, and the number of its namespace
    // (number_of). -1: the other end is in this namespace, or there is none.
    int peer = 0, peer_namespace = -1;
};

class Netlink {
  public:
    static Result<Netlink> open();
    // Uses a socket that open_route_socket() made, in whatever namespace.
    static Result<Netlink> over(Fd socket);
    Status ask(const NetlinkRequest& request) const;
    // ENODEV if there is none.
    Result<NetLink> link(const std::string& name) const;
    // Returns the number by which links here name another network namespace. `net_namespace` is a
    // file of it. -1: no link does.
    Result<int32_t> number_of(int net_namespace) const;

  private:
    using Answer = std::function<void(const nlmsghdr*)>;
    Status exchange(const NetlinkRequest& request, const Answer& answer) const;
    std::unique_ptr<mnl_socket, int (*)(mnl_socket*)> socket_{nullptr, nullptr};
};

Result<Fd> open_route_socket();

// Calls `f` in another network namespace, on this thread, and comes back. The namespace is given as
// a file of it, or as a pidfd of a process in it.
Status in_net_namespace(int net_namespace, const std::function<Status()>& f);

}  // namespace souk
