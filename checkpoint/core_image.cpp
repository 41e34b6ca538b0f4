// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/core_image.hpp"

#include <fcntl.h>

#include "kernel/base/proc_status.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

Status compare_credentials(const ImageFacts& image, const std::map<pid_t, pid_t>& pids) {
    std::map<pid_t, std::string> threads;  // by their numbers inside
    for (const auto& [inside, pid] : pids) {
        const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
        const auto names = list_dir(AT_FDCWD, tasks);
        if (!names) continue;
        for (const std::string& name : *names) {
            auto status = read_file(AT_FDCWD, tasks + "/" + name + "/status");
            if (!status) continue;
            if (const auto numbers = pids_of_status(*status))
                threads[numbers->own] = std::move(*status);
        }
    }
    for (const auto& [thread, core] : image.cores) {
        if (!core.has_credentials && !core.alive) continue;
        const std::string name = "core-" + std::to_string(thread) + ".img";
        const auto status = threads.find(thread);
        if (status == threads.end()) return fail(name + ": there is no such thread");
        TRY_ASSIGN(const Credentials real, parse_status(status->second));
        if (core.credentials != real || !core.has_credentials)
            return fail(name + ": the credentials in the image are not those of the process");
    }
    return {};
}

}  // namespace souk
