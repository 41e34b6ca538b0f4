// SPDX-License-Identifier: GPL-2.0-or-later
// Reach: what a daemon does to the processes of jobs with rights that it need not have itself: who
// has them does it when asked (agentd/root). As it begins, it is done here and now, which needs
// root.
#pragma once

#include <functional>
#include <vector>

#include "checkpoint/kept_sockets.hpp"
#include "checkpoint/restored.hpp"
#include "kernel/sys/net/job_port.hpp"
#include "kernel/sys/net/local_port.hpp"
#include "kernel/sys/net/tcp_repair.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/process_files.hpp"

namespace souk {

// A file in /proc of a process: two to be written to; one that tells the numbers of pages to who
// has opened it with CAP_SYS_ADMIN alone; and what only who may trace it can open, to be read: its
// memory, its mappings, its root directory.
enum class ProcessFile : uint8_t {
    written_marks = 1,
    oom_score = 2,
    page_map = 3,
    memory = 4,
    maps = 5,
    root = 6
};
inline constexpr ProcessFile process_file_last = ProcessFile::root;
Result<Fd> open_process_file(const Pidfd& process, ProcessFile file);
// Opens the file of each process, in this order. The Fd is empty if the process has ended.
std::vector<Fd> open_process_files(const std::vector<pid_t>& pids, ProcessFile file);
using OpenProcessFiles = std::function<std::vector<Fd>(const std::vector<pid_t>&, ProcessFile)>;

// Looks at the processes with these numbers inside the capsule.
Result<std::vector<SeenProcess>> look_inside(const Pidfd& init, const std::vector<pid_t>& pids,
                                             const LookFor& what);

// Makes the daemon that has this directory open the owner of what root has made there, so that the
// daemon can read it.
using GiveOver = std::function<Status(int dir)>;

struct Reach {
    OpenProcessFiles open = open_process_files;
    std::function<Result<Fd>(const Pidfd&, int number)> take = take_descriptor;  // of a souk-init
    // An interface in the network of a capsule, which its souk-init stands for. `network`: of this
    // node.
    std::function<Result<MadePort>(const Pidfd&, const std::optional<JobNetwork>& network,
                                   const PortPlan&)>
        port =
            [](const Pidfd& init, const auto& network, const PortPlan& plan) -> Result<MadePort> {
        TRY_ASSIGN(MadePort made, LocalPort::open(network, plan, init.get()));
        return made;
    };
    EndTcpRepair mend = end_tcp_repair_of;  // of a process of a job
    // Settles the sockets that a restore has taken over, as the list in an image's directory says.
    std::function<Status(int image, bool runs)> settle = settle_sockets;
    // All of these take the souk-init that stands for a capsule. They open one of its directories;
    // connect to it; end a program in it; look at what its processes have open; check that the user
    // may have what a restore has made, and end the processes if not (restored.hpp); tell whether a
    // restore still waits for its CRIU.
    OpenInside inside = open_capsule_directory;
    ConnectToInit connect = connect_to_init;
    EndProgram end = kill_program;  // `end` also kills a process that has joined the capsule from
                                    // outside.
    GiveOver give = [](int) { return Status{}; };
    std::function<Result<std::vector<SeenProcess>>(const Pidfd&, const std::vector<pid_t>&,
                                                   const LookFor&)>
        look = look_inside;
    std::function<Status(const Pidfd&, const RestoredJob&)> fit = fit_restored;
    std::function<Result<bool>(const Pidfd&)> waits = restored_waits;
};

}  // namespace souk
