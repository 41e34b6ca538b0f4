// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/tcp_unaccepted.hpp"

#include <fcntl.h>

#include <cerrno>
#include <charconv>
#include <string>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/net/tcp_table.hpp"

namespace souk {
namespace {

constexpr size_t table_max = 1 << 20;

// Of a listening socket the second queue is what waits to be accepted.
size_t second_queue(std::string_view queues) {
    const size_t colon = queues.find(':');
    if (colon == std::string_view::npos) return 0;
    uint32_t n = 0;
    std::from_chars(queues.data() + colon + 1, queues.data() + queues.size(), n, 16);
    return n;
}

}  // namespace

size_t unaccepted_in(std::string_view table) {
    size_t found = 0;
    for (TcpRow row; take_tcp_row(table, row);) {
        if (row.state == tcp_state::syn_received) ++found;
        if (row.state == tcp_state::listening) found += second_queue(row.queues);
    }
    return found;
}

Result<size_t> unaccepted_of(pid_t pid) {
    size_t found = 0;
    for (const char* const name : {"tcp", "tcp6"}) {
        const auto table = read_file(
            AT_FDCWD, "/proc/" + std::to_string(pid) + "/net/" + std::string(name), table_max);
        // a kernel without IPv6
        if (!table && table.error().code == ENOENT && name[3] != '\0') continue;
        if (!table) return tl::unexpected(table.error());
        found += unaccepted_in(*table);
        if (found > 0) break;
    }
    return found;
}

}  // namespace souk
