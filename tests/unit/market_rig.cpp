// SPDX-License-Identifier: GPL-2.0-or-later
// Streams before Check, whose macro fail() would break them.
#include <fstream>
#include <sstream>

#include "tests/unit/market_rig.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>

#include "kernel/sys/loop/loop.hpp"

namespace souk::unit {
namespace {

constexpr int wait_ms = 30'000;

std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
}

}  // namespace

std::string marketd_path() {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
            "bin/marketd")
        .string();
}

void MarketPeer::send_raw(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n <= 0) return;  // it has closed: the next read says so
        bytes.remove_prefix(static_cast<size_t>(n));
    }
}

std::optional<std::pair<wire::FrameType, std::string>> MarketPeer::next() {
    const Nanos end = Loop::now() + Nanos::from_ms(wait_ms);
    for (;;) {
        ck_assert_msg(Loop::now() < end, "no frame but pings within %d ms", wait_ms);
        ByteView input = bytes_of(std::string_view(bytes_).substr(taken_));
        const size_t before = input.size();
        auto frame = decoder_.next(input);
        ck_assert_msg(frame.has_value(), "%s", frame ? "" : frame.error().message.c_str());
        taken_ += before - input.size();
        if (*frame) {
            if ((*frame)->type == wire::frame_ping) {
                send_raw(text_of(wire::encode_frame(wire::market_words, wire::frame_pong, {})));
                continue;
            }
            return std::pair{(*frame)->type, std::string((*frame)->body)};
        }
        bytes_.clear();
        taken_ = 0;
        pollfd ready{socket_.get(), POLLIN, 0};
        ck_assert_msg(::poll(&ready, 1, wait_ms) == 1, "nothing came within %d ms", wait_ms);
        char buffer[64 * 1024];
        const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, 0);
        if (n <= 0) return std::nullopt;
        bytes_.assign(buffer, static_cast<size_t>(n));
    }
}

std::string MarketPeer::refusal() {
    std::string text;
    while (const auto frame = next())
        if (frame->first == wire::frame::error_text)
            text = wire::unpack<wire::ErrorText>(frame->second)->text;
    return text;
}

MarketRig::MarketRig(std::string more_config) : more_(std::move(more_config)) { start(); }

MarketRig::~MarketRig() { kill(); }

std::string MarketRig::config(const std::string& listen, const std::string& state,
                              const std::string& socket) const {
    return "name = \"m\"\nlisten = \"" + listen + "\"\nstate = \"" + state + "\"\nsocket = \"" +
           socket + "\"\ninsecure = true\n" + more_;
}

pid_t MarketRig::spawn(const std::string& config_path, const std::string& log_path) const {
    const std::string program = marketd_path();
    const pid_t child = ::fork();
    ck_assert(child >= 0);
    if (child > 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that fails does not reach the rig's end
    const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::dup2(log, 2);
    ::execl(program.c_str(), "marketd", "--config", config_path.c_str(), nullptr);
    ::_exit(127);
}

void MarketRig::start() {
    std::ofstream(dir + "/m.toml") << config("127.0.0.1:0", dir + "/state", dir + "/m.sock");
    std::filesystem::remove(dir + "/log");
    pid = spawn(dir + "/m.toml", dir + "/log");
    for (int waited = 0; waited < wait_ms; waited += 5) {
        const std::string log = text_of_file(dir + "/log");
        if (const size_t at = log.find(" port="); at != std::string::npos) {
            port = std::atoi(log.c_str() + at + 6);
            return;
        }
        ck_assert_msg(::waitpid(pid, nullptr, WNOHANG) == 0, "marketd ended: %s", log.c_str());
        ::poll(nullptr, 0, 5);
    }
    ck_abort_msg("marketd is not ready within %d ms", wait_ms);
}

void MarketRig::kill() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
}

int MarketRig::stop() {
    ::kill(pid, SIGTERM);
    int status = 0;
    ck_assert(::waitpid(pid, &status, 0) == pid);
    pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int MarketRig::run_other(const std::string& text, std::string& stderr_text) const {
    std::ofstream(dir + "/other.toml") << text;
    std::filesystem::remove(dir + "/other.log");
    const pid_t other = spawn(dir + "/other.toml", dir + "/other.log");
    int status = 0;
    ck_assert(::waitpid(other, &status, 0) == other);
    stderr_text = text_of_file(dir + "/other.log");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

MarketPeer MarketRig::connect_tcp(int receive_bytes) const {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (receive_bytes > 0)
        ck_assert(::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &receive_bytes,
                               sizeof receive_bytes) == 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    return MarketPeer(std::move(fd));
}

MarketPeer MarketRig::connect_unix() const {
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, (dir + "/m.sock").c_str(), sizeof to.sun_path - 1);
    ck_assert(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    return MarketPeer(std::move(fd));
}

MarketPeer MarketRig::agent(const std::string& node) const {
    MarketPeer peer = connect_tcp();
    wire::Hello hello;
    hello.role = wire::Role::agent;
    hello.node = node;
    hello.address = "0.0.0.0:7071";
    peer.send(hello);
    ck_assert_text(peer.expect<wire::Welcome>().name, "m");
    return peer;
}

MarketPeer MarketRig::tool() const {
    MarketPeer peer = connect_unix();
    peer.send(wire::Hello{});
    ck_assert_text(peer.expect<wire::Welcome>().name, "m");
    return peer;
}

wire::CtlReply MarketRig::ask(const std::string& verb, std::vector<std::string> args,
                              std::string after) const {
    MarketPeer peer = tool();
    peer.send(wire::CtlRequest{7, 12345, verb, std::move(args), std::move(after)});
    wire::CtlReply reply = peer.expect<wire::CtlReply>();
    ck_assert(reply.request == 7);
    return reply;
}

std::string MarketRig::ask_until(const std::string& verb, const std::vector<std::string>& args,
                                 const std::string& text) const {
    std::string last;
    for (int waited = 0; waited < wait_ms; waited += 10) {
        const wire::CtlReply reply = ask(verb, args);
        last = reply.ok ? reply.json : reply.error;
        if (last.find(text) != std::string::npos) return last;
        ::poll(nullptr, 0, 10);
    }
    ck_abort_msg("no '%s' in the market's answer: %s", text.c_str(), last.c_str());
    return last;
}

}  // namespace souk::unit
