// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/handshake/shaker.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/packets.hpp"

namespace souk::handshake {
namespace {

constexpr size_t shaking_max = 8192, header_bytes = 5;
// A channel's own limit is shorter.
constexpr Nanos shake_limit = Nanos::from_s(10);
constexpr int tell_limit_ms = 5'000;

Result<std::map<std::string, std::string>> names_of(std::string_view rest) {
    std::map<std::string, std::string> names;
    while (!rest.empty()) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        const size_t space = line.find(' ');
        if (space == line.npos || line.size() == rest.size()) return fail("this is no identity");
        names.emplace(line.substr(0, space), line.substr(space + 1));
        rest.remove_prefix(line.size() + 1);
    }
    return names;
}

Result<trust::Identity> identity_of(const IdentityText& text) {
    TRY_ASSIGN(trust::Key key, trust::Key::from_pem(text.key));
    TRY_ASSIGN(auto chain, trust::parse_chain(text.chain));
    TRY_ASSIGN(auto root, trust::parse_chain(text.root));
    trust::Revocations revoked;
    TRY_ASSIGN(revoked.keys, names_of(text.revoked));
    return trust::Identity{std::move(key), std::move(chain), std::move(root.front()),
                           std::move(revoked)};
}

}  // namespace

Result<std::unique_ptr<Shaker>> Shaker::open(Fd control) {
    Fd poll(::epoll_create1(EPOLL_CLOEXEC));
    if (!poll) return fail_errno("epoll_create1", errno);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = 0;
    if (::epoll_ctl(poll.get(), EPOLL_CTL_ADD, control.get(), &event) != 0)
        return fail_errno("epoll_ctl", errno);
    return std::unique_ptr<Shaker>(new Shaker(std::move(control), std::move(poll)));
}

Status Shaker::run() {
    for (;;) {
        TRY_ASSIGN(const bool goes_on, step(Nanos::never()));
        if (!goes_on) return {};
    }
}

Result<bool> Shaker::step(Nanos wait_max) {
    const Nanos now = monotonic_now();
    Nanos wait = wait_max;
    if (!ends_.empty()) wait = std::min(wait, std::max(ends_.front().first - now, Nanos{}));
    const int wait_ms = wait == Nanos::never()
                            ? -1
                            : static_cast<int>(std::min<int64_t>(wait.ns / 1'000'000 + 1, 60'000));
    epoll_event events[64];
    const int n = ::epoll_wait(poll_.get(), events, std::size(events), wait_ms);
    if (n < 0 && errno != EINTR) return fail_errno("epoll_wait", errno);
    bool goes_on = true;
    for (int i = 0; i < n; ++i) {
        const uint64_t number = events[i].data.u64;
        if (number == 0) {
            TRY_ASSIGN(goes_on, hear());
        } else if (const auto it = shaking_.find(number); it != shaking_.end()) {
            turn(number, it->second);
        }
    }
    end_late(monotonic_now());
    if (broken_) return tl::unexpected(*broken_);
    return goes_on;
}

// -------------------------------------------------------------------------------------------------
// agentd

Result<bool> Shaker::hear() {
    constexpr int at_once = 64;
    for (int i = 0; i < at_once; ++i) {
        auto packet = receive_packet(control_.get(), packet_bytes_max);
        if (!packet) return false;
        if (!*packet) break;
        TRY_ASSIGN(const Asked question, parse_asked((*packet)->bytes));
        TRY(asked(question, std::move((*packet)->descriptor)));
    }
    return true;
}

Status Shaker::asked(const Asked& asked, Fd descriptor) {
    if (const auto* s = std::get_if<Shake>(&asked)) {
        begin(*s, std::move(descriptor));
    } else if (const auto* f = std::get_if<Forget>(&asked)) {
        drop(f->number);
    } else if (const auto* e = std::get_if<Examine>(&asked)) {
        examine(e->number, descriptor.get());
    } else {
        const Status taken = take_identity(descriptor.get());
        tell(taken ? Told(Taken{}) : Told(Failed{0, taken.error().code, taken.error().message}));
    }
    return {};
}

// Handshakes that are under way go on with the one before.
Status Shaker::take_identity(int file) {
    TRY_ASSIGN(const std::string bytes, bytes_of(file, identity_bytes_max));
    TRY_ASSIGN(const IdentityText text, parse_identity(bytes));
    TRY_ASSIGN(trust::Identity identity, identity_of(text));
    TRY_ASSIGN(auto sites, names_of(text.sites));
    if (tls_ && tls_->identity()->key.digest() == identity.key.digest() &&
        tls_->identity()->root.digest() == identity.root.digest()) {
        tls_->revoke(std::move(identity.revoked));
        TRY(tls_->know_sites(std::move(sites), wire::OfSites::nodes));
        return tls_->renew(std::move(identity.chain));
    }
    if (tls_) return fail("an identity of another key or market");
    TRY_ASSIGN(tls_, wire::Tls::open(std::move(identity), {}));
    return tls_->know_sites(std::move(sites), wire::OfSites::nodes);
}

void Shaker::examine(uint64_t number, int file) {
    const auto look = [&]() -> Result<trust::Peer> {
        if (!tls_) return fail("certificates before an identity");
        TRY_ASSIGN(const std::string pem, bytes_of(file, identity_bytes_max));
        TRY_ASSIGN(const auto chain, trust::parse_chain(pem));
        const trust::Identity& own = *tls_->identity();
        return trust::verify(chain, own.root, own.revoked, unix_now());
    };
    const auto peer = look();
    tell(peer ? Told(Examined{number, *peer})
              : Told(Failed{number, peer.error().code, peer.error().message}));
}

// Waits for agentd, which reads all that it is told.
void Shaker::tell(const Told& told) {
    const std::string packet = pack(told);
    for (;;) {
        const Status sent = send_packet(control_.get(), packet);
        if (sent) return;
        pollfd p{control_.get(), POLLOUT, 0};
        if (sent.error().code != EAGAIN || ::poll(&p, 1, tell_limit_ms) <= 0) {
            broken_ = sent.error();
            return;
        }
    }
}

// -------------------------------------------------------------------------------------------------
// handshakes

void Shaker::begin(const Shake& how, Fd socket) {
    const auto refuse = [&](const char* why) { tell(Failed{how.number, 0, why}); };
    if (!socket || !tls_ || how.number == 0) return refuse("a handshake without a connection");
    if (shaking_.size() >= shaking_max) return refuse("too many TLS handshakes at once");
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = how.number;
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
        return refuse("a handshake of what is no connection");
    Shaking& s = shaking_[how.number];
    s.socket = std::move(socket);
    s.tls = how.connects ? tls_->connecting(how.roles, how.name) : tls_->accepting();
    s.wants = header_bytes;
    s.ends = monotonic_now() + shake_limit;
    ends_.emplace_back(s.ends, how.number);
    auto first = s.tls->seal({});
    if (!first) return fail_with(how.number, first.error());
    s.unsent = std::move(*first);
    turn(how.number, s);
}

// Runs the handshake as far as it goes without waiting.
void Shaker::turn(uint64_t number, Shaking& s) {
    for (;;) {
        if (const Status sent = send_some(s); !sent) return fail_with(number, sent.error());
        if (!s.unsent.empty()) break;
        if (s.tls->peer()) {
            auto keys = s.tls->hand_over();
            if (!keys) return fail_with(number, keys.error());
            return end(number, Shaken{number, std::move(*keys)});
        }
        const auto more = read_some(s);
        if (!more) return fail_with(number, more.error());
        if (!*more) break;
    }
    epoll_event event{};
    event.events = s.unsent.empty() ? EPOLLIN : EPOLLOUT;
    event.data.u64 = number;
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, s.socket.get(), &event) != 0)
        fail_with(number, fail_errno("epoll_ctl", errno).value());
}

// Returns false if nothing is there.
Result<bool> Shaker::read_some(Shaking& s) {
    const size_t have = s.record.size();
    s.record.resize(s.wants);
    const ssize_t n = ::recv(s.socket.get(), s.record.data() + have, s.wants - have, MSG_DONTWAIT);
    s.record.resize(have + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n < 0) return fail_errno("receive", errno);
    if (n == 0) return fail("the peer closed the connection");
    if (s.record.size() == s.wants) TRY(taken(s));
    return true;
}

// A header, and what OpenSSL says of it; then the body, which it tells the length of.
Status Shaker::taken(Shaking& s) {
    const Bytes bytes = std::exchange(s.record, {});
    const auto clear = s.tls->open(bytes, s.unsent);
    if (!clear) {
        (void)send_some(s);  // the alert that says why
        return tl::unexpected(clear.error());
    }
    if (!clear->empty()) return fail("bytes of a session before its handshake is done");
    const size_t body = s.body ? 0 : static_cast<size_t>(bytes[3]) << 8 | bytes[4];
    s.body = body > 0;
    s.wants = s.body ? body : header_bytes;
    return {};
}

Status Shaker::send_some(Shaking& s) {
    if (s.unsent.empty()) return {};
    const ssize_t n =
        ::send(s.socket.get(), s.unsent.data(), s.unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (n < 0) return fail_errno("send", errno);
    s.unsent.erase(s.unsent.begin(), s.unsent.begin() + n);
    return {};
}

// agentd has the connection too, so that its end here would not end what is watched of it.
void Shaker::drop(uint64_t number) {
    const auto it = shaking_.find(number);
    if (it == shaking_.end()) return;
    (void)::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, it->second.socket.get(), nullptr);
    shaking_.erase(it);
}

void Shaker::end(uint64_t number, const Told& told) {
    drop(number);
    tell(told);
}

void Shaker::fail_with(uint64_t number, const Error& why) {
    end(number, Failed{number, why.code, why.message});
}

void Shaker::end_late(Nanos now) {
    while (!ends_.empty() && ends_.front().first <= now) {
        const uint64_t number = ends_.front().second;
        ends_.pop_front();
        if (shaking_.contains(number))
            fail_with(number, Error{ETIMEDOUT, "no TLS handshake in time"});
    }
}

}  // namespace souk::handshake
