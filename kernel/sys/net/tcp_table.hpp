// SPDX-License-Identifier: GPL-2.0-or-later
// The rows of a /proc/PID/net/tcp or tcp6 (proc(5); Linux, Documentation/networking/
// proc_net_tcp.rst). Pure.
#pragma once

#include <algorithm>
#include <string_view>

namespace souk {

// A row of the table, as it stands there. queues: what waits to be sent, and what waits to be read
// or accepted.
struct TcpRow {
    std::string_view local, remote, state, queues, inode;
};
namespace tcp_state {
inline constexpr std::string_view syn_sent = "02", syn_received = "03", time_wait = "06",
                                  closed = "07", listening = "0A";
}  // namespace tcp_state

// The first row of `table`, which is the rest of it from then on; what is missing of a row is
// empty. False: there is none. (The first row of a whole table names its columns.)
inline bool take_tcp_row(std::string_view& table, TcpRow& row) {
    // sl local remote state tx:rx tr:when retransmits uid timeout inode ...
    constexpr size_t fields_read = 10;
    if (table.empty()) return false;
    std::string_view line = table.substr(0, table.find('\n')), fields[fields_read];
    table.remove_prefix(std::min(line.size() + 1, table.size()));
    for (std::string_view& field : fields) {
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        field = line.substr(0, line.find(' '));
        line.remove_prefix(field.size());
    }
    row = {fields[1], fields[2], fields[3], fields[4], fields[9]};
    return true;
}

}  // namespace souk
