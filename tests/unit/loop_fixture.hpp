// SPDX-License-Identifier: GPL-2.0-or-later
// Tests of the event loop, and of what is built on it, share this. run_until(condition) drives the
// loop until the condition holds; the limit only ends a test that fails.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "kernel/base/rng.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

inline constexpr Nanos limit = Nanos::from_s(20);

inline Loop open_loop(const LoopOptions& options = {}) {
    auto loop = Loop::open(options);
    ck_assert_msg(loop.has_value(), "%s", loop ? "" : loop.error().message.c_str());
    return std::move(*loop);
}

#define OK(expr) ck_assert_msg((expr).has_value(), "%s", #expr)
#define UNTIL(loop, condition)                                                 \
    do {                                                                       \
        auto until_ = (loop).run_until([&] { return (condition); }, limit);    \
        ck_assert_msg(until_.has_value() && *until_, "never: %s", #condition); \
    } while (0)

// Waits for a condition that looks at a peer's socket. The loop does not know that socket, so the
// condition is tested every few milliseconds.
#define UNTIL_PEER(loop, condition)                                                         \
    do {                                                                                    \
        bool met_ = false;                                                                  \
        for (const Nanos end_ = Loop::now() + limit; !met_ && Loop::now() < end_;) {        \
            auto until_ = (loop).run_until([&] { return (condition); }, Nanos::from_ms(3)); \
            ck_assert(until_.has_value());                                                  \
            met_ = *until_;                                                                 \
        }                                                                                   \
        ck_assert_msg(met_, "never: %s", #condition);                                       \
    } while (0)

inline std::pair<Fd, Fd> pair_of_sockets() {
    auto pair = socket_pair();
    OK(pair);
    return std::move(*pair);
}

inline void set_nonblocking(int fd) {
    ck_assert_int_eq(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

inline void write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
        ck_assert_int_gt(n, 0);
        text.remove_prefix(static_cast<size_t>(n));
    }
}

// Reads the bytes that are there now, without waiting. Sets `eof` if the peer has ended.
inline std::string read_some(int fd, bool* eof = nullptr) {
    std::string out;
    char buf[65536];
    for (;;) {
        const ssize_t n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
        if (n == 0 && eof != nullptr) *eof = true;
        if (n <= 0) return out;
        out.append(buf, static_cast<size_t>(n));
    }
}

struct Got {
    std::string data;
    int eofs = 0, errors = 0, drains = 0;
    std::string error;
    StreamHandlers handlers() {
        return {[this](ByteView bytes) { data += text_of(bytes); }, [this] { ++eofs; },
                [this](const Error& e) { ++errors, error = e.message; }, [this] { ++drains; }};
    }
};

inline std::string pattern(size_t bytes, uint64_t seed) {
    Rng rng(seed);
    std::string text(bytes, '\0');
    for (char& c : text) c = static_cast<char>(rng.next());
    return text;
}

}  // namespace souk::unit
