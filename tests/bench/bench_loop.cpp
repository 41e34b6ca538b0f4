// SPDX-License-Identifier: GPL-2.0-or-later
// This program measures the event loop and the channel: round trips and frames per second over unix
// and TCP loopback, between two threads with a loop each. Beside them stand the same figures for
// plain blocking sockets, which are the limit of this machine. It also measures the resident memory
// of many idle connections. JSON on stdout. Usage: bench_loop [SECONDS per figure, default 1]
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernel/base/check.hpp"
#include "kernel/sys/store/statedb.hpp"
#include "kernel/wire/channel.hpp"
#include "market/wire/codec.hpp"
#include "tests/bench/tcp_pair.hpp"

using namespace souk;
using namespace souk::wire;
using souk::bench::tcp_pair;
using souk::bench::value;

namespace {

double seconds_each = 1;
constexpr size_t message_bytes = 64;

std::pair<Fd, Fd> connected(bool tcp) { return tcp ? tcp_pair() : value(socket_pair()); }

struct Spread {
    double median_us, p99_us;
};
Spread spread_of(std::vector<int64_t>& ns) {
    std::sort(ns.begin(), ns.end());
    return {static_cast<double>(ns[ns.size() / 2]) / 1e3,
            static_cast<double>(ns[ns.size() * 99 / 100]) / 1e3};
}

// Ping-pong of `message_bytes` by read and write, an echo thread at the other end.
Spread plain_round_trip(bool tcp) {
    auto [client, server] = connected(tcp);
    std::thread echo([fd = server.get()] {
        char buf[message_bytes];
        while (recv(fd, buf, sizeof buf, MSG_WAITALL) == static_cast<ssize_t>(sizeof buf))
            if (send(fd, buf, sizeof buf, MSG_NOSIGNAL) < 0) return;
    });
    std::vector<int64_t> spans;
    char buf[message_bytes] = {};
    const Nanos end = Loop::now() + Nanos{static_cast<int64_t>(seconds_each * 1e9)};
    for (Nanos start = Loop::now(); start < end;) {
        MUST(send(client.get(), buf, sizeof buf, 0) == sizeof buf);
        MUST(recv(client.get(), buf, sizeof buf, MSG_WAITALL) == sizeof buf);
        const Nanos now = Loop::now();
        spans.push_back((now - start).ns);
        start = now;
    }
    shutdown(client.get(), SHUT_RDWR);
    echo.join();
    return spread_of(spans);
}

// Runs a loop of its own, whose channel hands every frame to `on_frame`, until its peer closes.
void serve(Fd fd, const std::function<void(Channel&, const Frame&)>& on_frame) {
    Loop loop = value(Loop::open());
    std::unique_ptr<Channel> channel;
    ChannelHandlers handlers{[&](const Frame& frame) { on_frame(*channel, frame); },
                             [&](const Error&) { loop.stop(); },
                             {}};
    channel =
        value(Channel::open(loop, std::move(fd), std::move(handlers), {.words = market_words}));
    MUST(loop.run());
}

Spread channel_round_trip(bool tcp) {
    auto [client, server] = connected(tcp);
    std::thread echo([fd = std::move(server)]() mutable {
        serve(std::move(fd), [first = true](Channel& channel, const Frame& frame) mutable {
            MUST(channel.send(std::exchange(first, false) ? frame::welcome : frame.type,
                              frame.body));
        });
    });
    std::vector<int64_t> spans;
    {
        Loop loop = value(Loop::open());
        std::unique_ptr<Channel> channel;
        const std::string body(message_bytes - frame_header_bytes, 'x');
        const Nanos end = Loop::now() + Nanos{static_cast<int64_t>(seconds_each * 1e9)};
        Nanos start = Loop::now();
        ChannelHandlers handlers{[&](const Frame&) {
                                     const Nanos now = Loop::now();
                                     spans.push_back((now - start).ns);
                                     start = now;
                                     if (now > end) return loop.stop();
                                     MUST(channel->send(frame::order, body));
                                 },
                                 [&](const Error&) { loop.stop(); },
                                 {}};
        channel = value(Channel::open(loop, std::move(client), std::move(handlers),
                                      {.words = market_words, .side = Side::connector}));
        MUST(channel->send(frame::hello, body));
        MUST(loop.run());
    }
    echo.join();
    return spread_of(spans);
}

// Sends frames in one direction as fast as the queue takes them. Returns frames per second at the
// receiver.
double channel_rate(bool tcp, FrameType type, size_t body_bytes) {
    auto [client, server] = connected(tcp);
    uint64_t frames = 0;
    std::thread sink([&frames, fd = std::move(server)]() mutable {
        serve(std::move(fd), [&frames](Channel&, const Frame&) { ++frames; });
    });
    const Nanos start = Loop::now();
    const Nanos end = start + Nanos{static_cast<int64_t>(seconds_each * 1e9)};
    {
        Loop loop = value(Loop::open());
        std::unique_ptr<Channel> channel;
        const auto fill = [&] {
            if (Loop::now() > end) return loop.stop();
            while (channel->send(type, std::string(body_bytes, 'x'))) {
            }
        };
        ChannelHandlers handlers{[](const Frame&) {}, [&](const Error&) { loop.stop(); }, fill};
        channel = value(Channel::open(loop, std::move(client), std::move(handlers),
                                      {.words = market_words, .side = Side::connector}));
        MUST(channel->send(frame::hello, std::string_view("x")));
        fill();
        MUST(loop.run());
    }
    sink.join();
    return static_cast<double>(frames) / (Loop::now() - start).seconds();
}

// Measures the same transfer without frames and queue, as images go. Bytes per second.
double raw_rate(bool tcp) {
    auto [client, server] = connected(tcp);
    uint64_t bytes = 0;
    std::thread sink([&bytes, fd = std::move(server)]() mutable {
        serve(std::move(fd), [&bytes](Channel& channel, const Frame&) {
            channel.receive_raw([&bytes](ByteView part) { bytes += part.size(); });
            MUST(channel.send(frame::welcome, std::string_view("x")));
        });
    });
    const Bytes piece(256 << 10, 'x');
    const Nanos start = Loop::now();
    const Nanos end = start + Nanos{static_cast<int64_t>(seconds_each * 1e9)};
    {
        Loop loop = value(Loop::open());
        std::unique_ptr<Channel> channel;
        Watch writable;
        const auto fill = [&](short) {
            if (Loop::now() > end) return loop.stop();
            for (int i = 0; i < 4 && value(channel->send_raw(piece)) > 0; ++i) {
            }
        };
        ChannelHandlers handlers{
            [&](const Frame&) { writable = value(loop.watch(channel->fd(), POLLOUT, fill)); },
            [&](const Error&) { loop.stop(); },
            {}};
        channel = value(Channel::open(loop, std::move(client), std::move(handlers),
                                      {.words = market_words, .side = Side::connector}));
        MUST(channel->send(frame::hello, std::string_view("x")));
        MUST(loop.run());
    }
    sink.join();
    return static_cast<double>(bytes) / (Loop::now() - start).seconds();
}

double plain_bytes_rate(bool tcp) {
    auto [client, server] = connected(tcp);
    uint64_t bytes = 0;
    std::thread sink([&bytes, fd = server.get()] {
        std::vector<char> buf(1 << 20);
        for (ssize_t n; (n = recv(fd, buf.data(), buf.size(), 0)) > 0;)
            bytes += static_cast<uint64_t>(n);
    });
    const std::vector<char> buf(1 << 20);
    const Nanos start = Loop::now();
    while (Loop::now() - start < Nanos{static_cast<int64_t>(seconds_each * 1e9)})
        MUST(send(client.get(), buf.data(), buf.size(), 0) > 0);
    shutdown(client.get(), SHUT_RDWR);
    sink.join();
    return static_cast<double>(bytes) / (Loop::now() - start).seconds();
}

size_t resident_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmRSS:")) return strtoul(line.c_str() + 6, nullptr, 10);
    return 0;
}

// Idle channels that have exchanged a hello, in this process; their peers are bare sockets.
void print_memory() {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const size_t wanted = 5000;
    const size_t count = std::min<size_t>(wanted, (files.rlim_cur - 64) / 2);
    const size_t before = resident_kib();
    Loop loop = value(Loop::open());
    const size_t with_loop = resident_kib();
    std::vector<std::unique_ptr<Channel>> channels;
    std::vector<Fd> peers;
    size_t greeted = 0;
    for (size_t i = 0; i < count; ++i) {
        auto [ours, theirs] = connected(false);
        const Bytes hello = encode_frame(market_words, frame::hello, std::string(100, 'x'));
        MUST(send(theirs.get(), hello.data(), hello.size(), 0) > 0);
        channels.push_back(value(Channel::open(
            loop, std::move(ours), {[&](const Frame&) { ++greeted; }, [](const Error&) {}, {}},
            {.words = market_words, .keepalive = Nanos::from_s(30)})));
        peers.push_back(std::move(theirs));
    }
    MUST(value(loop.run_until([&] { return greeted == count; }, Nanos::from_s(30))));
    const size_t after = resident_kib();
    const uint64_t iterations = loop.stats().iterations;
    value(loop.run_until([] { return false; }, Nanos{static_cast<int64_t>(seconds_each * 1e9)}));
    printf(
        "  \"memory\": {\"connections\": %zu, \"loop_kib\": %zu, \"kib_per_connection\": %.2f, "
        "\"wakeups_while_idle\": "
        "%lu},\n",
        count, with_loop - before,
        static_cast<double>(after - with_loop) / static_cast<double>(count),
        loop.stats().iterations - iterations - 1);
}

// Durable commits of one and of a hundred rows of 1 KiB, beside a bare 4 KiB write and fdatasync.
void print_state() {
    const char* base = std::getenv("SOUK_BENCH_DIR");
    std::string path = std::string(base ? base : "/var/tmp") + "/souk-bench-XXXXXX";
    MUST(mkdtemp(path.data()) != nullptr);
    const auto median_of = [](const std::function<void(int)>& work) {
        std::vector<int64_t> spans;
        const Nanos end = Loop::now() + Nanos{static_cast<int64_t>(seconds_each * 1e9)};
        for (int i = 0; Loop::now() < end; ++i) {
            const Nanos start = Loop::now();
            work(i);
            spans.push_back((Loop::now() - start).ns);
        }
        return spread_of(spans).median_us;
    };
    const size_t before = resident_kib();
    double one, hundred;
    size_t after;
    {
        StateDb state = value(StateDb::open(path, 1));
        const auto rows = [&](int n) {
            return [&state, n](int i) {
                for (int k = 0; k < n; ++k)
                    state.put("job", "n1." + std::to_string((i * n + k) % 1000),
                              std::string(1024, static_cast<char>(i)));
                MUST(state.commit());
            };
        };
        one = median_of(rows(1));
        hundred = median_of(rows(100));
        after = resident_kib();
    }
    const Fd file = value(open_at(AT_FDCWD, path + "/plain", O_RDWR | O_CREAT, 0600));
    const std::vector<char> page(4096, 'x');
    const double plain = median_of([&](int i) {
        MUST(pwrite(file.get(), page.data(), page.size(), i % 256 * 4096) == 4096);
        MUST(fdatasync(file.get()) == 0);
    });
    for (const char* name : {"/plain", "/state.db", "/state.db-wal", "/lock"})
        unlink((path + name).c_str());
    rmdir(path.c_str());
    printf(
        "  \"state\": {\"commit_1_row_us\": %.0f, \"commit_100_rows_us\": %.0f, \"per_row_us\": "
        "%.1f, "
        "\"plain_write_fdatasync_us\": %.0f, \"resident_kib\": %zu}\n",
        one, hundred, (hundred - one) / 99, plain, after - before);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 2 || (argc == 2 && (seconds_each = atof(argv[1])) <= 0)) {
        fprintf(stderr, "usage: bench_loop [SECONDS]\n");
        return 2;
    }
    printf("{\n");
    print_memory();
    for (const bool tcp : {false, true}) {
        const Spread plain = plain_round_trip(tcp), channel = channel_round_trip(tcp);
        const double small = channel_rate(tcp, frame::order, 256), bulk = raw_rate(tcp);
        const double plain_bytes = plain_bytes_rate(tcp);
        printf(
            "  \"%s\": {\"round_trip_us\": %.1f, \"round_trip_p99_us\": %.1f, "
            "\"plain_round_trip_us\": %.1f, "
            "\"plain_round_trip_p99_us\": %.1f, \"frames_per_s\": %.0f, \"bulk_mb_per_s\": %.0f, "
            "\"plain_mb_per_s\": "
            "%.0f},\n",
            tcp ? "tcp" : "unix", channel.median_us, channel.p99_us, plain.median_us, plain.p99_us,
            small, bulk / 1e6, plain_bytes / 1e6);
        fflush(stdout);
    }
    print_state();
    printf("}\n");
    return 0;
}
