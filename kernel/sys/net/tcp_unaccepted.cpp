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

// A listening socket counts in its second queue the connections that wait to be accepted.
size_t second_queue(std::string_view queues) {
    const size_t colon = queues.find(':');
    if (colon == std::string_view::npos) return 0;
    uint32_t n = 0;
    std::from_chars(queues.data() + colon + 1, queues.data() + queues.size(), n, 16);
    return n;
}

// Addresses of IPv4 have their bytes in the order of the machine, so 127 comes last.
bool stays_within(const TcpRow& row) {
    const auto address = [](std::string_view end) { return end.substr(0, end.find(':')); };
    const std::string_view remote = address(row.remote);
    return remote == address(row.local) || (remote.size() == 8 && remote.ends_with("7F"));
}

}  // namespace

UnfinishedTcp unfinished_in(std::string_view table) {
    UnfinishedTcp found;
    for (TcpRow row; take_tcp_row(table, row);) {
        if (row.state == tcp_state::syn_received) ++found.unaccepted;
        if (row.state == tcp_state::listening) found.unaccepted += second_queue(row.queues);
        if (row.state == tcp_state::syn_sent && stays_within(row)) ++found.begun_within;
    }
    return found;
}

Result<UnfinishedTcp> unfinished_of(pid_t pid) {
    UnfinishedTcp found;
    for (const char* const name : {"tcp", "tcp6"}) {
        const auto table = read_file(
            AT_FDCWD, "/proc/" + std::to_string(pid) + "/net/" + std::string(name), table_max);
        // a kernel without IPv6
        if (!table && table.error().code == ENOENT && name[3] != '\0') continue;
        if (!table) return tl::unexpected(table.error());
        const UnfinishedTcp more = unfinished_in(*table);
        found.unaccepted += more.unaccepted;
        found.begun_within += more.begun_within;
        if (found.unaccepted > 0) break;
    }
    return found;
}

}  // namespace souk
