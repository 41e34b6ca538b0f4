// SPDX-License-Identifier: GPL-2.0-or-later
// Benchmarks of connections share this file. It gives them a value or the end of the program, and
// the two ends of one TCP connection over loopback.
#pragma once

#include <errno.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "kernel/base/check.hpp"
#include "kernel/sys/net/socket.hpp"

namespace souk::bench {

template <class T>
T value(Result<T> result) {
    if (!result) {
        std::fprintf(stderr, "%s: %s\n", program_invocation_short_name,
                     result.error().message.c_str());
        std::exit(1);
    }
    return std::move(*result);
}

inline std::pair<Fd, Fd> tcp_pair() {
    const Fd listening = value(listen_stream(value(Address::parse("127.0.0.1:0"))));
    const Address address = value(Address::local(listening.get()));
    Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    MUST(connect(client.get(), address.raw(), address.raw_bytes()) == 0);
    Fd server(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    MUST(server && set_no_delay(client.get()) && set_no_delay(server.get()));
    return {std::move(client), std::move(server)};
}

}  // namespace souk::bench
