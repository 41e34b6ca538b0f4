// SPDX-License-Identifier: GPL-2.0-or-later
// Reach: what a daemon does to the processes of jobs with rights that it need not have itself: who
// has them does it when asked (agentd/root). As it begins, it is done here and now, which needs
// root.
#pragma once

#include <functional>
#include <vector>

#include "checkpoint/kept_sockets.hpp"
#include "kernel/sys/net/job_port.hpp"
#include "kernel/sys/net/tcp_repair.hpp"

namespace souk {

// A file in /proc of a process: two to be written to, and one that tells the numbers of pages to
// who has opened it with CAP_SYS_ADMIN alone.
enum class ProcessFile : uint8_t { written_marks = 1, oom_score = 2, page_map = 3 };
Result<Fd> open_process_file(const Pidfd& process, ProcessFile file);
// Of each of them, in this order. None: it has ended.
std::vector<Fd> open_process_files(const std::vector<pid_t>& pids, ProcessFile file);
using OpenProcessFiles = std::function<std::vector<Fd>(const std::vector<pid_t>&, ProcessFile)>;

struct Reach {
    OpenProcessFiles open = open_process_files;
    std::function<Result<Fd>(const Pidfd&, int number)> take = take_descriptor;
    // Of a capsule's souk-init.
    std::function<Result<JobInside>(const Pidfd&)> network = [](const Pidfd& init) {
        return open_job_inside(init.get());
    };
    // What a restore has taken over, by the list in an image's directory.
    std::function<Status(int image, bool runs)> settle = settle_sockets;
};

}  // namespace souk
