// SPDX-License-Identifier: GPL-2.0-or-later
// This program measures TLS beside plain connections in one run: the time of a connection until
// both hellos are heard, bulk data between two processes, and the memory of idle connections. JSON
// on stdout. Usage: bench_tls [MB of bulk data, default 512]
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <poll.h>

#include "kernel/base/check.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/wire/channel.hpp"
#include "kernel/wire/tls.hpp"
#include "market/wire/codec.hpp"
#include "tests/bench/tcp_pair.hpp"

using namespace souk;
using namespace souk::wire;
using souk::bench::tcp_pair;
using souk::bench::value;

namespace {

// Two nodes of one market; null: plain.
struct Nodes {
    std::unique_ptr<Tls> n1, n2;
    explicit Nodes(bool tls) {
        if (!tls) return;
        const auto root = value(trust::make_root("bench", unix_now()));
        const auto issuing = value(trust::make_issuing(root, "bench", unix_now()));
        const auto make = [&](const char* name) {
            const auto key = value(trust::Key::make());
            const auto own =
                value(trust::issue(issuing, key, {name, trust::node_roles}, unix_now()));
            return value(Tls::open({key, {own, issuing.certificate}, root.certificate, {}}, {}));
        };
        n1 = make("n1");
        n2 = make("n2");
    }
};

std::unique_ptr<Channel> channel_of(Loop& loop, Fd fd, Side side, Tls* tls,
                                    std::function<void(const Frame&)> on_frame) {
    ChannelHandlers handlers{std::move(on_frame),
                             [](const Error& e) {
                                 fprintf(stderr, "bench_tls: %s\n", e.message.c_str());
                                 exit(1);
                             },
                             {}};
    ChannelOptions options;
    options.words = market_words;
    options.side = side;
    return value(Channel::open(
        loop, std::move(fd), std::move(handlers), options,
        side == Side::acceptor ? acceptor(tls) : connector(tls, trust::node_roles, "n2")));
}

// A connection of two channels in one loop, greeted both ways.
struct Greeted {
    std::unique_ptr<Channel> client, server;
    int heard = 0;
    Greeted(Loop& loop, const Nodes& nodes) {
        auto [a, b] = tcp_pair();
        server = channel_of(loop, std::move(b), Side::acceptor, nodes.n2.get(), [this](auto&) {
            ++heard;
            MUST(server->send(frame::welcome, "w"));
        });
        client = channel_of(loop, std::move(a), Side::connector, nodes.n1.get(),
                            [this](auto&) { ++heard; });
        MUST(client->send(frame::hello, "h"));
        MUST(value(loop.run_until([&] { return heard == 2; }, Nanos::from_s(5))));
    }
};

double connection_us(const Nodes& nodes) {
    Loop loop = value(Loop::open());
    std::vector<int64_t> spans;
    for (int i = 0; i < 300; ++i) {
        const Nanos start = process_cpu_time();
        const Greeted pair(loop, nodes);
        spans.push_back((process_cpu_time() - start).ns);
    }
    std::nth_element(spans.begin(), spans.begin() + 150, spans.end());
    return static_cast<double>(spans[150]) / 1e3;
}

double resident_kb() {
    std::ifstream in("/proc/self/statm");
    long all = 0, resident = 0;
    in >> all >> resident;
    return static_cast<double>(resident) * 4;
}

double idle_kb(const Nodes& nodes) {
    constexpr int count = 400;
    Loop loop = value(Loop::open());
    const Greeted first(loop, nodes);
    std::vector<std::unique_ptr<Greeted>> pairs;
    const double before = resident_kb();
    pairs.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) pairs.push_back(std::make_unique<Greeted>(loop, nodes));
    return (resident_kb() - before) / count / 2;  // each pair has two ends
}

// The other process: takes so many bytes behind the hello, then ends.
[[noreturn]] void take(Fd fd, const Nodes& nodes, size_t wanted) {
    Loop loop = value(Loop::open());
    size_t came = 0;
    std::unique_ptr<Channel> channel;
    channel = channel_of(loop, std::move(fd), Side::acceptor, nodes.n2.get(), [&](auto&) {
        channel->receive_raw([&](ByteView bytes) { came += bytes.size(); });
        MUST(channel->send(frame::welcome, "w"));
    });
    (void)loop.run_until([&] { return came >= wanted; }, Nanos::from_s(120));
    _exit(came == wanted ? 0 : 1);
}

struct Bulk {
    double mb_per_s, cpu_s;  // of both ends
};

Bulk bulk(const Nodes& nodes, size_t mb) {
    auto [a, b] = tcp_pair();
    const size_t wanted = mb << 20;
    const pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        a.reset();
        take(std::move(b), nodes, wanted);
    }
    b.reset();
    Loop loop = value(Loop::open());
    bool welcome = false;
    const auto channel = channel_of(loop, std::move(a), Side::connector, nodes.n1.get(),
                                    [&](auto&) { welcome = true; });
    MUST(channel->send(frame::hello, "h"));
    MUST(value(loop.run_until([&] { return welcome; }, Nanos::from_s(5))));
    const std::string piece(256 * 1024, 'x');
    const Nanos start = Loop::now(), cpu = process_cpu_time();
    size_t sent = 0;
    Watch writable;
    const auto pump = [&] {
        while (sent < wanted) {
            const size_t part = std::min(piece.size(), wanted - sent);
            const size_t taken =
                value(channel->send_raw({reinterpret_cast<const uint8_t*>(piece.data()), part}));
            if (taken == 0) return;
            sent += taken;
        }
    };
    pump();
    writable = value(loop.watch(channel->fd(), POLLOUT, [&](short) { pump(); }));
    MUST(value(loop.run_until([&] { return sent == wanted && channel->queued() == 0; },
                              Nanos::from_s(120))));
    int status = 0;
    rusage used{};
    MUST(wait4(child, &status, 0, &used) == child && status == 0);
    const double s = static_cast<double>((Loop::now() - start).ns) / 1e9;
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    return {static_cast<double>(mb) / s, static_cast<double>((process_cpu_time() - cpu).ns) / 1e9 +
                                             seconds(used.ru_utime) + seconds(used.ru_stime)};
}

}  // namespace

int main(int argc, char** argv) {
    const size_t mb = argc > 1 ? strtoul(argv[1], nullptr, 10) : 512;
    const Nodes plain(false), tls(true);
    Bulk best[2] = {};
    for (int round = 0; round < 5; ++round)  // in turns, the best of each
        for (const bool sealed : {false, true}) {
            const Bulk one = bulk(sealed ? tls : plain, mb);
            if (one.mb_per_s > best[sealed].mb_per_s) best[sealed] = one;
        }
    printf("{\"connection_cpu_us\": {\"plain\": %.0f, \"tls\": %.0f},\n", connection_us(plain),
           connection_us(tls));
    printf(" \"idle_connection_kb\": {\"plain\": %.1f, \"tls\": %.1f},\n", idle_kb(plain),
           idle_kb(tls));
    printf(" \"bulk_mb\": %zu, \"bulk_mb_per_s\": {\"plain\": %.0f, \"tls\": %.0f},\n", mb,
           best[0].mb_per_s, best[1].mb_per_s);
    printf(" \"bulk_cpu_s\": {\"plain\": %.3f, \"tls\": %.3f}}\n", best[0].cpu_s, best[1].cpu_s);
    return 0;
}
