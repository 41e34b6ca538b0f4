// SPDX-License-Identifier: GPL-2.0-or-later
// souk-exec C PROGRAM [ARGS]: runs a program in another component of the same job, as its output,
// input and exit status were its own. Nothing else can be reached with it. In its own component it
// becomes the program: some launchers of MPI ask for that one as for any.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"
#include "tools/common/args.hpp"
#include "tools/souk-exec/serve.hpp"
#include "tools/souk-exec/talk.hpp"
#include "tools/souk-exec/wire.hpp"

namespace souk::tools {
namespace {

constexpr const char* me = "souk-exec";
constexpr int unreached = 255;  // as ssh says it
constexpr Nanos patience = Nanos::from_s(30), pause = Nanos::from_ms(50);
// A component that is frozen takes connections, and answers when it goes on.
constexpr Nanos answers_within = Nanos::from_s(600);

struct Options {
    bool serves = false, shell = false;
    std::span<char*> words;
};

std::string_view variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

// Finds the host of a component. The user names it by a number, by c and a number, or by its label;
// the host is c and its number, a name that the component's /etc/hosts has.
Result<std::string> host_of(std::string_view component) {
    const auto all = whole_number<uint32_t>(variable("SOUK_COMPONENTS")).value_or(0);
    const bool short_name = component.starts_with('c') && component.size() > 1;
    auto number = whole_number<uint32_t>(short_name ? component.substr(1) : component);
    std::string_view names = variable("SOUK_NAMES");
    for (uint32_t i = 0; !number && i < all; ++i) {
        const std::string_view name = names.substr(0, names.find(','));
        if (name == component) number = i;
        names.remove_prefix(std::min(names.size(), name.size() + 1));
    }
    if (number && *number < all) return "c" + std::to_string(*number);
    return fail(CauseCode::not_found, "this job has no component '" + std::string(component) + "'");
}

Result<Fd> connect_once(const std::string& host, uint16_t port) {
    addrinfo wish{}, *found = nullptr;
    wish.ai_family = AF_INET;
    wish.ai_socktype = SOCK_STREAM;
    const std::string service = std::to_string(port);
    if (const int error = ::getaddrinfo(host.c_str(), service.c_str(), &wish, &found))
        return fail(host + ": " + ::gai_strerror(error));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd || ::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0)
        return fail_errno(host, errno);
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

// All components start at one moment: another may not listen yet.
Result<Fd> reach(const std::string& host, uint16_t port) {
    const Nanos until = monotonic_now() + patience;
    for (;;) {
        auto fd = connect_once(host, port);
        if (fd || fd.error().code != ECONNREFUSED || monotonic_now() >= until) return fd;
        ::poll(nullptr, 0, static_cast<int>(pause.ms()));
    }
}

// Returns the program's words. With --shell they are one line for a shell, as a launcher hands it
// over.
std::vector<std::string> program_of(const Options& o) {
    const auto given = o.words.subspan(1);
    if (!o.shell) return {given.begin(), given.end()};
    std::string line;
    for (const char* word : given) line += (line.empty() ? "" : " ") + std::string(word);
    return {"/bin/sh", "-c", line};
}

Result<std::string> request(const Options& o) {
    char directory[PATH_MAX];
    if (!::getcwd(directory, sizeof directory)) return fail_errno("the working directory", errno);
    std::string bytes = std::string(directory) + '\0';
    for (const std::string& word : program_of(o)) bytes += word + '\0';
    if (bytes.size() > frame_bytes_max) return fail("the program's words have more than 1 MiB");
    return bytes;
}

bool put(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EPIPE) {  // as it would end whoever writes there
            ::signal(SIGPIPE, SIG_DFL);
            ::raise(SIGPIPE);
        }
        if (n <= 0) return false;
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
}

Status pass_on(int signals, Wire& peer) {
    signalfd_siginfo info{};
    if (::read(signals, &info, sizeof info) != sizeof info) return {};
    return peer.send(frame_of(Say::signal, std::to_string(info.ssi_signo)));
}

// The exit status of the program.
Result<int> stay(Wire& peer, int signals) {
    Frames frames;
    bool input = true;
    for (;;) {
        pollfd polled[] = {{peer.fd(), peer.events(true), 0},
                           {signals, POLLIN, 0},
                           {input && !peer.has_unsent() ? 0 : -1, POLLIN, 0}};
        if (::poll(polled, std::size(polled), -1) < 0 && errno != EINTR)
            return fail_errno("poll", errno);
        if (polled[1].revents) TRY(pass_on(signals, peer));
        if (polled[2].revents) {
            char buffer[65'536];
            const ssize_t n = ::read(0, buffer, sizeof buffer);
            if (n >= 0 || (errno != EINTR && errno != EAGAIN)) {
                input = n > 0;
                TRY(peer.send(
                    frame_of(Say::input, {buffer, static_cast<size_t>(std::max<ssize_t>(n, 0))})));
            }
        }
        if (polled[0].revents & POLLOUT) TRY(peer.flush());
        if (!(polled[0].revents & ~POLLOUT)) continue;
        TRY_ASSIGN(const bool open, peer.read(frames.room()));
        for (Frame frame;;) {
            TRY_ASSIGN(const bool have, frames.next(frame));
            if (!have) break;
            if (frame.say == Say::refused) return fail(CauseCode::not_allowed, frame.bytes);
            if (frame.say == Say::ended) return whole_number<int>(frame.bytes).value_or(unreached);
            if (!put(frame.say == Say::out ? 1 : 2, frame.bytes)) return fail("nobody reads");
        }
        if (!open) return fail(CauseCode::away, "the connection has ended");
    }
}

// Runs the program in the component that asks, which need not serve: the first one does not.
int run_here(const Options& o) {
    std::vector<std::string> words = program_of(o);
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    complain(me, fail_errno(words[0], errno).value());
    return 127;
}

Result<int> call(const Options& o) {
    TRY_ASSIGN(const ExecSecret secret, exec_secret());
    TRY_ASSIGN(const std::string bytes, request(o));
    TRY_ASSIGN(const std::string host, host_of(o.words[0]));
    if (host == "c" + std::string(variable("SOUK_COMPONENT"))) return run_here(o);
    sigset_t passed;
    ::sigemptyset(&passed);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
        ::sigaddset(&passed, number);
    ::signal(SIGPIPE, SIG_IGN);
    TRY_ASSIGN(const Fd socket, reach(host, secret.port));
    auto shaken = Wire::connect(socket.get(), secret, answers_within);
    if (!shaken) return wrap(host, shaken.error());
    Wire& peer = *shaken;
    ::sigprocmask(SIG_BLOCK, &passed, nullptr);
    const Fd signals(::signalfd(-1, &passed, SFD_CLOEXEC));
    TRY(peer.send(frame_of(Say::run, bytes)));
    return stay(peer, signals.get());
}

int run(int argc, char** argv) {
    keep_standard_fds();
    Options o;
    const CommandLine line{
        me,
        "[--shell] COMPONENT PROGRAM [ARGS]",
        "Runs a program in another component of the same job (srun --exec, srun --mpi).",
        {{0, "shell", nullptr, "the words are one line for /bin/sh, as launchers of MPI give them",
          set_flag(o.shell)},
         {0, "serve", nullptr, "run what the other components ask for, until killed",
          set_flag(o.serves)}},
        "\nA COMPONENT is its number or its label. The exit status is the program's; 255: it was "
        "not reached.\n"};
    switch (parse(line, argc, argv, o.words)) {
        case Parsed::done: return 0;
        case Parsed::failed: return 2;
        case Parsed::go: break;
    }
    if (o.serves && !o.words.empty()) return complain(me, "--serve takes no program"), 2;
    if (o.serves) return serve_exec();
    if (o.words.size() < 2) return complain(me, "a component and a program are missing"), 2;
    const auto status = call(o);
    if (!status) return complain(me, status.error()), unreached;
    return *status;
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
