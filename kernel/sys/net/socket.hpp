// SPDX-License-Identifier: GPL-2.0-or-later
// Sockets: addresses (TCP and unix), listening, and the peer's identity by the kernel's word. Every
// fd is close-on-exec. Nothing here waits, except resolve() on a host name.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// An Address says where to connect or listen. Text forms: "127.0.0.1:7000", "[::1]:7000",
// "unix:/run/x.sock", "/run/x.sock", "unix:@name" (the abstract namespace).
class Address {
  public:
    // Parses numeric and unix addresses only; errors say what is wrong with the text.
    static Result<Address> parse(std::string_view text);
    // Parses the same, and resolves host names. The resolver may block for seconds, so this is for
    // start-up only.
    static Result<Address> resolve(std::string_view text);
    // Fails if the text is not HOST:PORT with a port that one can connect to. A host name is not
    // looked up.
    static Status check_host_port(std::string_view text);
    static Address of(const sockaddr* address, socklen_t bytes);
    // These return the address of a socket's own end, and of its peer.
    static Result<Address> local(int fd);
    static Result<Address> peer(int fd);

    bool is_unix() const { return storage_.ss_family == AF_UNIX; }
    int family() const { return storage_.ss_family; }
    uint16_t port() const;  // 0 for unix
    std::string text() const;
    const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
    socklen_t raw_bytes() const { return bytes_; }

  private:
    static Result<Address> parse_host_port(std::string_view text, bool names);
    static Result<Address> parse_path(std::string_view path);
    sockaddr_storage storage_{};
    socklen_t bytes_ = 0;
};

// A listening stream socket. TCP: SO_REUSEADDR. A unix path: a socket left over by a dead process
// is replaced, one that answers is an error ("in use"); `mode` is set on it before anybody can
// connect. `patience`: how long to wait for an address that is in use: the kernel lets go of the
// io_uring listeners of a killed process a moment after the process.
Result<Fd> listen_stream(const Address& address, int backlog = 1024, mode_t mode = 0600,
                         Nanos patience = {});

// TCP_NODELAY (a no-op on unix sockets).
Status set_no_delay(int fd);
// The connection ends when the machine at its other end is gone: the kernel asks a silent one after
// `idle_s`, three times `again_s` apart, and what was sent must have been taken within `unsent_s`.
// For connections on which nothing is said for hours. Another kind of socket stays as it is.
void end_when_dead(int fd, int idle_s, int again_s, int unsent_s);

struct PeerCred {
    pid_t pid = 0;
    uid_t uid = 0;
    gid_t gid = 0;
};
// Returns who connected a unix socket, as of connect(2) (SO_PEERCRED).
Result<PeerCred> peer_cred(int fd);
// Returns the supplementary groups of the process that connected, as of connect(2); none if the
// kernel does not tell.
std::vector<uint32_t> peer_groups(int fd);

// Makes two unix stream sockets that are connected to each other.
Result<std::pair<Fd, Fd>> socket_pair();

}  // namespace souk
