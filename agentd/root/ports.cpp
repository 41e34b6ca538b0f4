// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/ports.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace souk::root {
namespace {

constexpr size_t ports_max = 4096;

Result<uint64_t> number_of(int socket) {
    uint64_t number = 0;
    socklen_t bytes = sizeof number;
    if (::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &number, &bytes) != 0)
        return fail("no interface of a job");
    return number;
}

}  // namespace

Result<Fd> Ports::add(std::unique_ptr<LocalPort> port) {
    if (ports_.size() >= ports_max) return fail("too many interfaces of jobs");
    if (!events_) events_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    int ends[2];
    if (!events_ || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return fail_errno("an end of an interface", errno);
    Fd theirs(ends[0]);
    Port one{std::move(port), Fd(ends[1]), {}};
    TRY_ASSIGN(const uint64_t number, number_of(theirs.get()));
    epoll_event its{};  // that the other end is gone
    its.data.u64 = number;
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, one.end.get(), &its) != 0)
        return fail_errno("wait for the end of an interface", errno);
    ports_.insert_or_assign(number, std::move(one));
    return theirs;
}

Status Ports::with(int end, const std::function<Status(PortWork&)>& f) {
    TRY_ASSIGN(const uint64_t number, number_of(end));
    const auto one = ports_.find(number);
    if (one == ports_.end()) return fail("no interface of a job");
    forget_frames(one->second);
    Status done = f(*one->second.work);
    wait_for(number, one->second);
    return done;
}

void Ports::look() {
    constexpr int events_max = 64;
    epoll_event events[events_max];
    const int count = ::epoll_wait(events_.get(), events, events_max, 0);
    for (int i = 0; i < count; ++i) {
        const auto one = ports_.find(events[i].data.u64);
        if (one == ports_.end()) continue;  // it has ended in this round
        if ((events[i].events & EPOLLIN) != 0) one->second.work->look();
        char byte = 0;
        if ((events[i].events & EPOLLHUP) == 0 ||
            ::recv(one->second.end.get(), &byte, 1, MSG_DONTWAIT) > 0)
            continue;
        forget_frames(one->second);
        ports_.erase(one);
    }
}

// Watches the port's descriptors. Frames from other descriptors wait in the kernel until they are
// asked for.
void Ports::wait_for(uint64_t number, Port& port) const {
    port.awaited = port.work->awaited();
    for (const int fd : port.awaited) {
        epoll_event its{};
        its.events = EPOLLIN;
        its.data.u64 = number;
        (void)::epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &its);
    }
}

// A socket of frames is closed on a thread, and comes here until then.
void Ports::forget_frames(Port& port) const {
    for (const int fd : port.awaited) (void)::epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr);
    port.awaited.clear();
}

}  // namespace souk::root
