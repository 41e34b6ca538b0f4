// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/tcp_repair.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

Result<Fd> take_descriptor(const Pidfd& process, int number) {
    Fd taken(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0)));
    if (!taken)
        return fail_errno("take a descriptor of process " + std::to_string(process.pid()), errno);
    return taken;
}

Result<bool> end_tcp_repair_of(const Pidfd& process, int number) {
    TRY_ASSIGN(const Fd taken, take_descriptor(process, number));
    int repair = 0;
    socklen_t bytes = sizeof repair;
    if (::getsockopt(taken.get(), IPPROTO_TCP, TCP_REPAIR, &repair, &bytes) != 0 || repair == 0)
        return false;
    repair = 0;
    if (::setsockopt(taken.get(), IPPROTO_TCP, TCP_REPAIR, &repair, sizeof repair) != 0)
        return fail_errno("end the repair of a connection", errno);
    return true;
}

int end_tcp_repair(const PidsInside& pids, const EndTcpRepair& end, const LookAt& look) {
    const auto seen = look(pids, {});
    if (!seen) return 0;
    int ended = 0;
    for (const SeenProcess& p : *seen) {
        const auto process = Pidfd::open(pids.at(p.pid));
        if (!process) continue;
        for (const SeenFile& f : p.files) {
            const int number =
                whole_number<int>(f.place.substr(f.place.rfind(' ') + 1)).value_or(-1);
            if (number < 0 || !f.target.starts_with("socket:[")) continue;
            if (end(*process, number).value_or(false)) ++ended;
        }
    }
    return ended;
}

}  // namespace souk
