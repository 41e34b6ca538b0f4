// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-exec/serve.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "kernel/base/number.hpp"
#include "tools/common/args.hpp"
#include "tools/souk-exec/talk.hpp"
#include "tools/souk-exec/wire.hpp"

namespace souk::tools {
namespace {

constexpr const char* me = "souk-exec";
constexpr int connections_max = 256;  // at once
constexpr Nanos handshake_limit = Nanos::from_s(10);

// One program that somebody asked for, in a process of ours that relays for it.
class Relay {
  public:
    explicit Relay(Wire& peer) : peer_(peer) {}
    void run() {
        if (const Status done = serve(); !done)
            (void)peer_.send(frame_of(Say::refused, done.error().message));
        (void)peer_.drain();
        // We read until the peer closes, because closing while something is unread would take back
        // what was sent last.
        ::shutdown(peer_.fd(), SHUT_WR);
        constexpr int limit_ms = 2'000;
        char rest[4096];
        for (pollfd more{peer_.fd(), POLLIN, 0};
             ::poll(&more, 1, limit_ms) > 0 && ::read(peer_.fd(), rest, sizeof rest) > 0;) {
        }
    }

  private:
    Status serve() {
        Frame frame;
        for (bool have = false; !have;) {
            pollfd first{peer_.fd(), POLLIN, 0};
            (void)::poll(&first, 1, -1);
            TRY_ASSIGN(const bool open, peer_.read(frames_.room()));
            TRY_ASSIGN(have, frames_.next(frame));
            if (!open && !have) return fail("no program was named");
        }
        if (frame.say != Say::run) return fail("no program was named");
        TRY(begin(frame.bytes));
        return relay();
    }

    // Directory and words, each ended by a zero byte.
    Status begin(const std::string& bytes) {
        std::vector<std::string> words;
        for (size_t at = 0; at < bytes.size();) {
            words.emplace_back(bytes.c_str() + at);
            at += words.back().size() + 1;
        }
        if (words.size() < 2) return fail("no program was named");
        int pipes[3][2];
        for (auto& ends : pipes)
            if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("make a pipe", errno);
        sigset_t child;
        ::sigemptyset(&child);
        ::sigaddset(&child, SIGCHLD);
        ::sigprocmask(SIG_BLOCK, &child, nullptr);
        ended_ = Fd(::signalfd(-1, &child, SFD_CLOEXEC));
        child_ = ::fork();
        if (child_ < 0) return fail_errno("start a process", errno);
        if (child_ == 0) {
            ::setpgid(0, 0);
            sigset_t none;
            ::sigemptyset(&none);
            ::sigprocmask(SIG_SETMASK, &none, nullptr);
            ::signal(SIGPIPE, SIG_DFL);
            ::dup2(pipes[0][0], 0);
            ::dup2(pipes[1][1], 1);
            ::dup2(pipes[2][1], 2);
            std::vector<char*> argv;
            for (size_t i = 1; i < words.size(); ++i) argv.push_back(words[i].data());
            argv.push_back(nullptr);
            if (::chdir(words[0].c_str()) == 0) ::execvp(argv[0], argv.data());
            complain(me, fail_errno(words[1], errno).value());
            ::_exit(127);
        }
        in_ = Fd(pipes[0][1]);
        ::fcntl(in_.get(), F_SETFL, O_NONBLOCK);
        for (int i = 0; i < 2; ++i) out_[i] = Fd(pipes[i + 1][0]);
        for (const int end : {pipes[0][0], pipes[1][1], pipes[2][1]}) ::close(end);
        return {};
    }

    void asked(const Frame& frame) {
        if (frame.say == Say::input && !frame.bytes.empty()) unread_ += frame.bytes;
        if (frame.say == Say::input && frame.bytes.empty()) no_more_ = true;
        if (frame.say == Say::signal)
            if (const auto number = whole_number<int>(frame.bytes)) ::kill(-child_, *number);
    }
    void feed() {
        if (!unread_.empty()) {
            const ssize_t n = ::write(in_.get(), unread_.data(), unread_.size());
            if (n < 0 && errno != EAGAIN && errno != EINTR) in_.reset();
            if (n > 0) unread_.erase(0, static_cast<size_t>(n));
        }
        if (no_more_ && unread_.empty()) in_.reset();
    }
    // Returns false if that stream has ended.
    Result<bool> copy(int stream) {
        char buffer[65'536];
        const ssize_t n = ::read(out_[stream].get(), buffer, sizeof buffer);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
        if (n <= 0) return false;
        TRY(peer_.send(
            frame_of(stream == 0 ? Say::out : Say::err, {buffer, static_cast<size_t>(n)})));
        return true;
    }

    // Sends what the program wrote until its end. Programs that it leaves behind may hold the pipes
    // open, so we do not wait until they close.
    Status end() {
        int status = 0;
        if (::waitpid(child_, &status, WNOHANG) != child_) return {};
        for (int stream = 0; stream < 2; ++stream) {
            ::fcntl(out_[stream].get(), F_SETFL, O_NONBLOCK);
            char buffer[65'536];
            for (ssize_t n; (n = ::read(out_[stream].get(), buffer, sizeof buffer)) > 0;)
                TRY(peer_.send(
                    frame_of(stream == 0 ? Say::out : Say::err, {buffer, static_cast<size_t>(n)})));
        }
        gone_ = true;
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return peer_.send(frame_of(Say::ended, std::to_string(code)));
    }

    // The program that asked is gone, so its program must end too.
    Status hang_up() const {
        (void)::kill(-child_, SIGHUP);
        return {};
    }
    Status relay() {
        constexpr size_t input_max = 1 << 20;
        while (!gone_) {
            for (Frame frame;;) {
                TRY_ASSIGN(const bool have, frames_.next(frame));
                if (!have) break;
                asked(frame);
            }
            if (in_) feed();
            pollfd polled[] = {{peer_.fd(), peer_.events(unread_.size() < input_max), 0},
                               {ended_.get(), POLLIN, 0},
                               {out_[0] && !peer_.has_unsent() ? out_[0].get() : -1, POLLIN, 0},
                               {out_[1] && !peer_.has_unsent() ? out_[1].get() : -1, POLLIN, 0},
                               {in_ && !unread_.empty() ? in_.get() : -1, POLLOUT, 0}};
            if (::poll(polled, std::size(polled), -1) < 0 && errno != EINTR)
                return fail_errno("poll", errno);
            if ((polled[0].revents & POLLOUT) && !peer_.flush()) return hang_up();
            if (polled[0].revents & ~POLLOUT) {
                const auto open = peer_.read(frames_.room());
                if (!open || !*open) return hang_up();
            }
            for (int stream = 0; stream < 2; ++stream)
                if (polled[2 + stream].revents) {
                    TRY_ASSIGN(const bool goes_on, copy(stream));
                    if (!goes_on) out_[stream].reset();
                }
            if (polled[1].revents) TRY(end());
        }
        return {};
    }

    Wire& peer_;
    Frames frames_;
    pid_t child_ = -1;
    Fd in_, out_[2], ended_;
    std::string unread_;
    bool no_more_ = false, gone_ = false;
};

Result<Fd> listen_on(uint16_t port) {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(fd.get(), connections_max) != 0)
        return fail_errno("listen on port " + std::to_string(port), errno);
    return fd;
}

// Reaps processes, also daemons that a program left to us, because we are the first process of the
// job.
void reap(int& connections, const std::vector<pid_t>& ours) {
    for (pid_t pid; (pid = ::waitpid(-1, nullptr, WNOHANG)) > 0;)
        for (const pid_t one : ours) connections -= one == pid;
}

}  // namespace

int serve_exec() {
    const auto secret = exec_secret();
    const auto listening = secret ? listen_on(secret->port) : tl::unexpected(secret.error());
    if (!listening) return complain(me, listening.error()), 1;
    ::signal(SIGPIPE, SIG_IGN);
    int connections = 0;
    std::vector<pid_t> ours;
    for (;;) {
        pollfd ready{connections < connections_max ? listening->get() : -1, POLLIN, 0};
        (void)::poll(&ready, 1, 1'000);
        reap(connections, ours);
        if (!(ready.revents & POLLIN)) continue;
        const Fd peer(::accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!peer) continue;
        const int on = 1;
        ::setsockopt(peer.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        const pid_t pid = ::fork();
        if (pid == 0) {
            if (auto wire = Wire::accept(peer.get(), *secret, handshake_limit)) Relay(*wire).run();
            ::_exit(0);
        }
        if (pid < 0) continue;
        ++connections;
        ours.push_back(pid);
        if (ours.size() > size_t{4} * connections_max) ours.erase(ours.begin());
    }
}

}  // namespace souk::tools
