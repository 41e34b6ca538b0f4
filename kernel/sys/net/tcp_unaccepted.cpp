// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/tcp_unaccepted.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>

#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

constexpr size_t table_max = 1 << 20;
constexpr std::string_view syn_received = "03", listens = "0A";

std::string_view next_word(std::string_view& line) {
    const size_t from = line.find_first_not_of(' ');
    if (from == std::string_view::npos) return line = {};
    const size_t until = line.find(' ', from);
    const std::string_view word = line.substr(from, until - from);
    line.remove_prefix(until == std::string_view::npos ? line.size() : until);
    return word;
}

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
    table.remove_prefix(std::min(table.size(), table.find('\n')));  // what the columns are
    while (!table.empty()) {
        table.remove_prefix(1);
        std::string_view line = table.substr(0, table.find('\n'));
        table.remove_prefix(line.size());
        for (int skipped = 0; skipped < 3; ++skipped) next_word(line);  // number, both ends
        const std::string_view state = next_word(line);
        if (state == syn_received) ++found;
        if (state == listens) found += second_queue(next_word(line));
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
    }
    return found;
}

}  // namespace souk
