// SPDX-License-Identifier: GPL-2.0-or-later
// souk-web: the market as web pages. It asks the daemon that marketctl asks, as the user whom it
// runs as, and only ever asks; with --actions also for users who log in, and gives their orders.
// answers.hpp says what each address shows, orders.hpp what can be ordered, tools/web writes it.
#include <signal.h>
#include <systemd/sd-daemon.h>

#include <fstream>
#include <thread>

#include "kernel/base/number.hpp"
#include "kernel/trust/openssl.hpp"
#include "tools/common/args.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/paths.hpp"
#include "tools/souk-web/logins.hpp"
#include "tools/souk-web/server.hpp"

namespace souk::tools::web {
namespace {

constexpr const char* souk_web = "souk-web";
constexpr size_t key_least = 16, key_most = 256;

// ADDRESS:PORT, or either alone.
Status set_listen(Options& o, const char* text) {
    std::string_view value = text;
    const size_t colon = value.rfind(':');
    const bool alone = value.find_first_not_of("0123456789") == std::string_view::npos;
    std::string_view port = alone ? value : "";
    if (!alone && colon != std::string_view::npos && !value.ends_with(']') &&
        (value.find(':') == colon || value.starts_with('['))) {
        port = value.substr(colon + 1);
        value = value.substr(0, colon);
    }
    if (!alone) {
        if (value.starts_with('[') && value.ends_with(']'))
            value = value.substr(1, value.size() - 2);
        if (value.empty())
            return fail(CauseCode::invalid, "'" + std::string(text) + "' names no address");
        o.address = value;
    }
    if (port.empty()) return {};
    const auto number = whole_number<uint16_t>(port);
    if (!number) return fail(CauseCode::invalid, "'" + std::string(port) + "' is not a port");
    o.port = *number;
    return {};
}

Result<std::string> key_of_file(const std::string& path) {
    std::ifstream file(path);
    std::string key;
    if (!std::getline(file, key))
        return fail(CauseCode::invalid, "key file " + path + ": it cannot be read, or is empty");
    if (key.size() < key_least || key.size() > key_most ||
        key.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") !=
            std::string::npos)
        return fail(CauseCode::invalid,
                    "key file " + path + ": its first line must be 16 to 256 letters and digits");
    return key;
}

Status serve(Options& o, const std::string& key_file) {
    const bool everywhere = o.address == "0.0.0.0" || o.address == "::";
    if (everywhere && o.hosts.empty())
        return fail(
            CauseCode::invalid,
            "an address of all interfaces needs --host NAME: under which name it is called");
    const bool here =
        o.address == "localhost" || o.address == "::1" || o.address.starts_with("127.");
    if (o.actions && !here)
        return fail(
            CauseCode::invalid,
            "--actions needs an address of this host alone, such as 127.0.0.1: for others put a "
            "web server before it that brings TLS (docs/web.md)");
    TRY_ASSIGN(o.remote, remote_of(o.where, [] { return wire::find_market("", "").has_value(); }));
    if (!o.open) {
        TRY_ASSIGN(o.key,
                   key_file.empty() ? trust::random_secret(secret_bytes) : key_of_file(key_file));
    }
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before any thread: all inherit it
    Feed feed(o);
    TRY_ASSIGN(const auto server, Server::listen(o, feed));
    const std::string host = everywhere ? o.hosts.front() : o.address;
    const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
    std::string url = "http://" + name + ":" + std::to_string(server->port()) + "/";
    if (!o.open && key_file.empty()) url += "?key=" + o.key;
    TRY(print(url));
    std::thread until_told([&] {
        int signal = 0;
        sigwait(&ends, &signal);
        sd_notify(0, "STOPPING=1");
        feed.stop();
        server->stop();
    });
    sd_notify(0, "READY=1");
    server->run();
    ::kill(::getpid(), SIGTERM);  // if the server ended by itself
    until_told.join();
    return {};
}

int run(int argc, char** argv) {
    keep_standard_fds();
    Options o;
    std::string key_file;
    const CommandLine line{
        souk_web,
        "[options]",
        "Serves the market as web pages; prints the link to open.",
        {{0, "listen", "ADDRESS:PORT", "where it listens (default 127.0.0.1:7780; port 0: any)",
          [&o](const char* text) { return set_listen(o, text); }},
         {0, "host", "NAME", "answer under this name too, as behind a proxy; may be repeated",
          [&o](const char* text) -> Status {
              o.hosts.emplace_back(text);
              return {};
          }},
         {0, "open", nullptr,
          "let everybody read who reaches the port, without the key in the link", set_flag(o.open)},
         {0, "actions", nullptr,
          "let users log in (marketctl web-token) and give orders for their own jobs, operators "
          "for all",
          set_flag(o.actions)},
         {0, "key-file", "FILE", "the key is this file's first line (default: a new one)",
          set_text(key_file)},
         {0, "node", "NAME", "ask through this node's agentd (default: the market on this machine)",
          set_text(o.where.node)},
         {0, "socket", "PATH", "ask through this daemon's socket", set_text(o.where.socket)},
         {0, "market", "HOST:PORT",
          "the market, on another host (default $SOUK_MARKET, then the file `market` beside the "
          "certificate)",
          set_text(o.where.market)},
         {0, "cert", "DIR",
          "an operator's key and certificate, as souk operator add made them (default $SOUK_CERT, "
          "then ~/.config/souk/operator): everything is shown, as to root",
          set_text(o.where.cert)},
         {'d', "delay", "TIME", "ask so often at most (default 2s; a number alone: seconds)",
          set_span(o.every, Nanos::from_s(1), Nanos::from_s(3'600))}}};
    if (const auto ended = parse_options(line, argc, argv)) return *ended;
    if (const Status served = serve(o, key_file); !served) {
        complain(souk_web, served.error());
        return 1;
    }
    return 0;
}

}  // namespace
}  // namespace souk::tools::web

int main(int argc, char** argv) { return souk::tools::web::run(argc, argv); }
