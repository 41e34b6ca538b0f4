// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/socket.hpp"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "kernel/base/check.hpp"

#include "kernel/base/number.hpp"
#include "kernel/sys/loop/backoff.hpp"

namespace souk {
namespace {

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

}  // namespace

Address Address::of(const sockaddr* address, socklen_t bytes) {
    MUST(bytes <= sizeof(sockaddr_storage));
    Address out;
    memcpy(&out.storage_, address, bytes);
    out.bytes_ = bytes;
    return out;
}

Result<Address> Address::parse_path(std::string_view path) {
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    if (path.empty() || path == "@") return fail("a unix socket needs a path");
    if (path.size() >= sizeof un.sun_path)
        return fail("the socket path " + quoted(path) + " is longer than " +
                    std::to_string(sizeof un.sun_path - 1) + " bytes");
    memcpy(un.sun_path, path.data(), path.size());
    const bool abstract = path.front() == '@';
    if (abstract) un.sun_path[0] = '\0';
    const size_t bytes = offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1);
    return of(reinterpret_cast<const sockaddr*>(&un), static_cast<socklen_t>(bytes));
}

Result<Address> Address::parse_host_port(std::string_view text, bool names) {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0)
        return fail("the address " + quoted(text) + " is not HOST:PORT or unix:PATH");
    std::string_view host = text.substr(0, colon);
    const std::string_view port_text = text.substr(colon + 1);
    const auto port = whole_number<uint16_t>(port_text);
    if (!port) return fail("the address " + quoted(text) + " has no port from 0 to 65535");
    if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    else if (host.find(':') != std::string_view::npos)
        return fail("the address " + quoted(text) +
                    " needs brackets around its IPv6 host: [HOST]:PORT");
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = names ? 0 : AI_NUMERICHOST;
    addrinfo* found = nullptr;
    if (const int ret =
            getaddrinfo(std::string(host).c_str(), std::to_string(*port).c_str(), &hints, &found);
        ret != 0) {
        if (!names) return fail("the host " + quoted(host) + " is not a numeric address");
        return fail("the host " + quoted(host) + " is not known: " + gai_strerror(ret));
    }
    const Address address = of(found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return address;
}

Status Address::check_host_port(std::string_view text) {
    const size_t colon = text.rfind(':');
    const std::string_view host = text.substr(0, colon == std::string_view::npos ? 0 : colon);
    const bool number = host.find(':') != std::string_view::npos ||
                        host.find_first_not_of("0123456789.[]") == std::string_view::npos;
    // A host that looks like a number is parsed as one. For a name only the rest is parsed.
    TRY_ASSIGN(
        const Address address,
        parse_host_port(
            number ? std::string(text) : "0.0.0.0" + std::string(text.substr(host.size())), false));
    if (address.port() == 0)
        return fail("the address " + quoted(text) + " has no port from 1 to 65535");
    for (const char c : host)
        if (c <= ' ' || c == 0x7f) return fail("the host " + quoted(host) + " is no name");
    return {};
}

Result<Address> Address::parse(std::string_view text) {
    if (text.starts_with("unix:")) return parse_path(text.substr(5));
    if (text.starts_with('/')) return parse_path(text);
    return parse_host_port(text, false);
}

Result<Address> Address::resolve(std::string_view text) {
    if (text.starts_with("unix:") || text.starts_with('/')) return parse(text);
    if (auto numeric = parse_host_port(text, false)) return numeric;
    return parse_host_port(text, true);
}

Result<Address> Address::local(int fd) {
    Address out;
    out.bytes_ = sizeof out.storage_;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&out.storage_), &out.bytes_) != 0)
        return fail_errno("getsockname", errno);
    return out;
}

Result<Address> Address::peer(int fd) {
    Address out;
    out.bytes_ = sizeof out.storage_;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&out.storage_), &out.bytes_) != 0)
        return fail_errno("getpeername", errno);
    return out;
}

uint16_t Address::port() const {
    if (family() == AF_INET)
        return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
    if (family() == AF_INET6)
        return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
    return 0;
}

std::string Address::text() const {
    char host[INET6_ADDRSTRLEN] = "";
    if (family() == AF_INET) {
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr, host,
                  sizeof host);
        return std::string(host) + ":" + std::to_string(port());
    }
    if (family() == AF_INET6) {
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr, host,
                  sizeof host);
        return "[" + std::string(host) + "]:" + std::to_string(port());
    }
    const char* path = reinterpret_cast<const sockaddr_un*>(&storage_)->sun_path;
    const size_t bytes =
        bytes_ > offsetof(sockaddr_un, sun_path) ? bytes_ - offsetof(sockaddr_un, sun_path) : 0;
    if (bytes == 0) return "unix:";
    if (path[0] == '\0') return "unix:@" + std::string(path + 1, bytes - 1);
    return "unix:" + std::string(path, strnlen(path, bytes));
}

namespace {

// Tells whether the process has ended to which a connection is, though somebody holds the socket
// that it listened on. False if that process cannot be seen from here.
bool listener_ended(int connection) {
    ucred who{};
    socklen_t bytes = sizeof who;
    return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.pid > 0 &&
           ::kill(who.pid, 0) != 0 && errno == ESRCH;
}

// A socket file of a dead process is removed; one that somebody answers on, or that is no socket,
// stays.
Status clear_stale_socket(const Address& address, const char* path) {
    struct stat st {};
    if (lstat(path, &st) != 0) return {};
    if (!S_ISSOCK(st.st_mode)) return fail(std::string(path) + " exists and is not a socket");
    const Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe) return fail_errno("socket", errno);
    const bool taken = connect(probe.get(), address.raw(), address.raw_bytes()) == 0;
    if (taken ? !listener_ended(probe.get()) : errno == EAGAIN)
        return fail_errno("another process listens on " + address.text(), EADDRINUSE);
    if (!taken && errno != ECONNREFUSED) return fail_errno("connect to " + address.text(), errno);
    if (unlink(path) != 0 && errno != ENOENT)
        return fail_errno("remove the old socket " + std::string(path), errno);
    return {};
}

// Nobody passes a descriptor to who listens here: whose last one is closed here may have made that
// close wait for as long as he likes (SO_LINGER; a file system of his own). Who is accepted is of
// the same kind. Linux 6.16; before that a descriptor comes, and is closed.
void take_no_descriptors(int socket) {
    constexpr int pass_rights = 83;  // SO_PASSRIGHTS of asm-generic/socket.h
    const int off = 0;
    (void)setsockopt(socket, SOL_SOCKET, pass_rights, &off, sizeof off);
}

Result<Fd> listen_once(const Address& address, int backlog, mode_t mode) {
    Fd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return fail_errno("socket", errno);
    const char* path = nullptr;
    if (address.is_unix()) {
        path = reinterpret_cast<const sockaddr_un*>(address.raw())->sun_path;
        if (path[0] == '\0') path = nullptr;
        if (path != nullptr) TRY(clear_stale_socket(address, path));
        take_no_descriptors(fd.get());
    } else {
        const int on = 1;
        if (setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
            return fail_errno("SO_REUSEADDR", errno);
    }
    if (bind(fd.get(), address.raw(), address.raw_bytes()) != 0)
        return fail_errno("listen on " + address.text(), errno);
    // Nobody can connect between bind and listen.
    if (path != nullptr && chmod(path, mode) != 0)
        return fail_errno("mode of " + std::string(path), errno);
    if (listen(fd.get(), backlog) != 0) return fail_errno("listen on " + address.text(), errno);
    return fd;
}

}  // namespace

Result<Fd> listen_stream(const Address& address, int backlog, mode_t mode, Nanos patience) {
    Backoff backoff(patience);
    for (;;) {
        auto fd = listen_once(address, backlog, mode);
        if (fd || fd.error().code != EADDRINUSE || !backoff.wait()) return fd;
    }
}

Status set_no_delay(int fd) {
    int domain = 0;
    socklen_t bytes = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0)
        return fail_errno("SO_DOMAIN", errno);
    const int on = 1;
    if (domain != AF_UNIX && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        return fail_errno("TCP_NODELAY", errno);
    return {};
}

void end_when_dead(int fd, int idle_s, int again_s, int unsent_s) {
    const int on = 1, times = 3, unsent_ms = unsent_s * 1'000;
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &again_s, sizeof again_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent_ms, sizeof unsent_ms);
}

Result<std::pair<Fd, Fd>> socket_pair() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return fail_errno("socketpair", errno);
    return std::pair(Fd(fds[0]), Fd(fds[1]));
}

}  // namespace souk
