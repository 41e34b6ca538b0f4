// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/reach.hpp"

#include <fcntl.h>

#include <cerrno>
#include <string>

namespace souk {

// The number stands for the process as long as the pidfd has not told of its end: that is looked at
// once the file is open.
Result<Fd> open_process_file(const Pidfd& process, ProcessFile file) {
    constexpr const char* names[] = {"clear_refs", "oom_score_adj", "pagemap"};
    const std::string path =
        "/proc/" + std::to_string(process.pid()) + "/" + names[static_cast<size_t>(file) - 1];
    TRY_ASSIGN(Fd opened,
               open_at(AT_FDCWD, path, file == ProcessFile::page_map ? O_RDONLY : O_WRONLY));
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

}  // namespace souk
