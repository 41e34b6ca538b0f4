// SPDX-License-Identifier: GPL-2.0-or-later
// souk-root's loop: what agentd asks, who connects to the socket of the tools, frames that jobs'
// interfaces hold, and CRIU's words about locks.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "agentd/root/descriptors.hpp"
#include "agentd/root/starter.hpp"
#include "kernel/sys/net/descriptors.hpp"
#include "kernel/sys/net/socket.hpp"

namespace souk::root {
namespace {

// Accepts the connections of tools, notes who has connected, and passes them on to agentd. The
// kernel says who has connected, as of connect(2); it can be believed only of a connection that was
// accepted here.
class DoorKeeper {
  public:
    DoorKeeper(Starter& starter, Door door) : starter_(starter), door_(door) {}
    // Returns what to wait for: somebody who comes, or room to pass a connection on.
    pollfd waits() const {
        if (rests_) return {-1, 0, 0};
        return passing_ ? pollfd{door_.agentd, POLLOUT, 0} : pollfd{door_.listener, POLLIN, 0};
    }
    // -1: no limit.
    int rest_ms() const { return rests_ ? 100 : -1; }
    void look(short ready) {
        rests_ = false;
        if (ready == 0) return;
        if (!passing_) take();
        if (passing_) pass();
    }

  private:
    void take() {
        passing_ = Fd(::accept4(door_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        // Out of files or memory: it passes.
        rests_ = !passing_ && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
        if (!passing_) return;
        const auto who = peer_cred(passing_.get());
        if (!who) return passing_.reset();
        const Status kept =
            starter_.connected({true, who->uid, who->gid, peer_groups(passing_.get())});
        if (!kept)
            std::fprintf(stderr, "souk-root: user %u is not kept: %s\n", who->uid,
                         kept.error().message.c_str());
    }
    // Passes the connection on. If that fails, agentd has ended, and the connection is lost with
    // it.
    void pass() {
        const int fd = passing_.get();
        const auto sent = send_descriptors(door_.agentd, "t", {&fd, 1});
        if (!sent || *sent) passing_.reset();
    }
    Starter& starter_;
    const Door door_;
    Fd passing_;
    bool rests_ = false;
};

Status answer(Starter& starter, int socket, std::string& room) {
    TRY_ASSIGN(auto packet, receive_descriptors(socket, room));
    if (!packet) return {};
    if (packet->bytes == 0) return fail_errno("agentd has ended", EPIPE);
    const std::string_view bytes(room.data(), packet->truncated ? 0 : packet->bytes);
    const Starter::Answer done = starter.take(bytes, packet->descriptors);
    return send_descriptors(socket, pack(done.told), numbers_of(done.descriptors)).map([](bool) {});
}

}  // namespace

Status serve(Starter& starter, int socket, Door door) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (::sigprocmask(SIG_BLOCK, &child, nullptr) != 0) return fail_errno("sigprocmask", errno);
    const Fd ended(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!ended) return fail_errno("signalfd", errno);
    std::string room(packet_bytes_max, '\0');
    DoorKeeper keeper(starter, door);
    std::vector<pollfd> ready;
    for (;;) {
        ready = {{socket, POLLIN, 0},
                 {ended.get(), POLLIN, 0},
                 keeper.waits(),
                 {starter.ports().fd(), POLLIN, 0}};
        const size_t locks = ready.size();
        starter.locks().wait_for(ready);
        if (::poll(ready.data(), ready.size(), keeper.rest_ms()) < 0 && errno != EINTR)
            return fail_errno("poll", errno);
        signalfd_siginfo info{};
        while (::read(ended.get(), &info, sizeof info) > 0) {
        }
        while (::waitpid(-1, nullptr, WNOHANG) > 0) {
        }  // pidfds tell agentd what matters
        starter.locks().look(ready.data() + locks, ready.size() - locks);
        if (ready[0].revents != 0) {
            const Status answered = answer(starter, socket, room);
            if (!answered) return answered.error().code == EPIPE ? Status{} : answered;
        }
        keeper.look(ready[2].revents);
        if (ready[3].revents != 0) starter.ports().look();
    }
}

}  // namespace souk::root
