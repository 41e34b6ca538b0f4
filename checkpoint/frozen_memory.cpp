// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/frozen_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "kernel/base/number.hpp"
#include "kernel/base/proc_status.hpp"

namespace souk {

Result<std::vector<PageRange>> lazy_ranges(int image_directory) {
    constexpr std::string_view prefix = "pagemap-", suffix = ".img";
    std::vector<PageRange> all;
    TRY_ASSIGN(const auto names, list_dir(image_directory, "."));
    for (const std::string& name : names) {
        if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
        const std::string_view digits(name.data() + prefix.size(),
                                      name.size() - prefix.size() - suffix.size());
        const auto pid = whole_number<pid_t>(digits);
        if (!pid) continue;  // pagemap-shmem-N: never left out
        TRY_ASSIGN(const std::string image, read_file(image_directory, name, 64 << 20));
        auto ranges = lazy_ranges_of(image, *pid);
        if (!ranges) return wrap(name, ranges.error());
        all.insert(all.end(), ranges->begin(), ranges->end());
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const PageRange& a, const PageRange& b) { return a.pid < b.pid; });
    return all;
}

std::map<pid_t, pid_t> pids_inside(const std::vector<pid_t>& pids) {
    std::map<pid_t, pid_t> inside;
    for (const pid_t pid : pids) {
        const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/status");
        if (!status) continue;
        if (const auto numbers = pids_of_status(*status)) inside[numbers->own] = pid;
    }
    return inside;
}

Result<FrozenMemory> FrozenMemory::open(const std::vector<PageRange>& ranges,
                                        const std::map<pid_t, pid_t>& pids,
                                        const OpenProcessFiles& open) {
    FrozenMemory memory;
    std::vector<pid_t> inside, here;
    for (const PageRange& r : ranges) {
        if (std::ranges::find(inside, r.pid) != inside.end()) continue;
        const auto known = pids.find(r.pid);
        if (known == pids.end())
            return fail("process " + std::to_string(r.pid) + " of the image is not there");
        inside.push_back(r.pid);
        here.push_back(known->second);
    }
    std::vector<Fd> files = open(here, ProcessFile::memory);
    for (size_t i = 0; i < inside.size(); ++i) {
        if (!files[i])
            return fail_errno("read the memory of process " + std::to_string(inside[i]), ESRCH);
        memory.processes_[inside[i]] = std::move(files[i]);
    }
    return memory;
}

Status FrozenMemory::read(const PageRange& range, char* to) const {
    const int memory = processes_.at(range.pid).get();
    const size_t bytes = range.pages * page_bytes;
    for (size_t got = 0; got < bytes;) {
        const auto from = static_cast<off_t>(range.start + got);
        const ssize_t n = ::pread(memory, to + got, bytes - got, from);
        if (n <= 0)
            return fail_errno("read the memory of process " + std::to_string(range.pid),
                              n < 0 ? errno : ESRCH);
        got += static_cast<size_t>(n);
    }
    return {};
}

}  // namespace souk
