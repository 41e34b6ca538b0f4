// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/cgroup_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "kernel/base/number.hpp"
#include "kernel/sys/loop/backoff.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk {

Result<std::vector<std::string>> groups_in(const std::string& path) {
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()),
                                                  [](DIR* d) { return ::closedir(d); });
    if (!dir) return fail_errno("cgroup " + path, errno);
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(dir.get())) {
        const std::string_view name = entry->d_name;
        if (entry->d_type == DT_DIR && name != "." && name != "..") names.emplace_back(name);
    }
    return names;
}

Status collect_pids(const std::string& path, std::vector<pid_t>& pids) {
    return for_each_below(path, [&](const std::string& group) -> Status {
        const auto text = read_file(AT_FDCWD, group + "/cgroup.procs");
        // A group can go between the listing and the read.
        if (!text)
            return text.error().code == ENOENT || text.error().code == ENODEV
                       ? Status{}
                       : wrap("cgroup", text.error());
        std::string_view rest = *text;
        while (const auto pid = take_number<pid_t>(rest)) {
            if (*pid > 0) pids.push_back(*pid);
            rest.remove_prefix(std::min<size_t>(1, rest.size()));
        }
        return {};
    });
}

namespace {

// 0 or errno. The kernel counts a v1 group's time for real-time policies for a moment after it has
// gone, unless it is given back first.
int remove_group(const std::string& path) {
    (void)write_file(AT_FDCWD, path + "/cpu.rt_runtime_us", "0");
    return ::rmdir(path.c_str()) == 0 || errno == ENOENT ? 0 : errno;
}

}  // namespace

Status remove_tree(const std::string& path, Nanos wait_max, const EndProgram& end) {
    Backoff backoff(wait_max);
    while (true) {
        // Mostly it is empty: then that is all.
        if (remove_group(path) == 0) return {};
        Status done = for_each_below(path, [](const std::string& group) -> Status {
            const int error = remove_group(group);
            return error == 0 ? Status{} : fail_errno("remove cgroup " + group, error);
        });
        if (done || done.error().code != EBUSY) return done;
        std::vector<pid_t> pids;
        TRY(collect_pids(path, pids));
        for (const pid_t pid : pids) {
            const auto process = Pidfd::open(pid);
            if (!process) continue;
            end(*process);  // what may not be killed ends with its souk-init
            TRY(process->exited_within(backoff.left()));
        }
        if (!backoff.wait()) return fail_errno("remove cgroup " + path, ETIMEDOUT);
    }
}

Status make_dirs(const std::string& mount, const std::string& path) {
    // Mostly the parents are there.
    if (::mkdir((mount + "/" + path).c_str(), 0755) == 0 || errno == EEXIST) return {};
    for (size_t end = path.find('/');; end = path.find('/', end + 1)) {
        const std::string dir = mount + "/" + path.substr(0, end);
        if (::mkdir(dir.c_str(), 0755) < 0 && errno != EEXIST)
            return fail_errno("make cgroup " + dir, errno);
        if (end == std::string::npos) return {};
    }
}

}  // namespace souk
