// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/reach.hpp"

#include <fcntl.h>

#include <cerrno>
#include <string>

namespace souk {

// The number stands for the process as long as the pidfd has not told of its end: that is looked at
// once the file is open.
Result<Fd> open_process_file(const Pidfd& process, ProcessFile file) {
    struct Known {
        const char* name;
        int flags;
    };
    constexpr Known files[] = {{"clear_refs", O_WRONLY}, {"oom_score_adj", O_WRONLY},
                               {"pagemap", O_RDONLY},    {"mem", O_RDONLY},
                               {"maps", O_RDONLY},       {"root", O_PATH | O_DIRECTORY}};
    const auto& [name, flags] = files[static_cast<size_t>(file) - 1];
    TRY_ASSIGN(Fd opened,
               open_at(AT_FDCWD, "/proc/" + std::to_string(process.pid()) + "/" + name, flags));
    TRY_ASSIGN(const bool ended, process.exited_within({}));
    if (ended) return fail_errno("process " + std::to_string(process.pid()), ESRCH);
    return opened;
}

std::vector<Fd> open_process_files(const std::vector<pid_t>& pids, ProcessFile file) {
    std::vector<Fd> all;
    for (const pid_t pid : pids) {
        const auto process = Pidfd::open(pid);
        auto opened = process ? open_process_file(*process, file) : fail("");
        all.push_back(opened ? std::move(*opened) : Fd());
    }
    return all;
}

Result<std::vector<SeenProcess>> look_inside(const Pidfd& init, const std::vector<pid_t>& pids,
                                             const LookFor& what) {
    TRY_ASSIGN(const Fd proc, open_capsule_directory(init, CapsuleDirectory::proc));
    return look_at_processes(proc.get(), pids, what);
}

}  // namespace souk
