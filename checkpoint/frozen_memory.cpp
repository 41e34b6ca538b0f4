// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/frozen_memory.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>

namespace souk {

Result<std::vector<PageRange>> lazy_ranges(int image_directory) {
    constexpr std::string_view prefix = "pagemap-", suffix = ".img";
    std::vector<PageRange> all;
    TRY_ASSIGN(const auto names, list_dir(image_directory, "."));
    for (const std::string& name : names) {
        pid_t pid = 0;
        if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
        const char* const end = name.data() + name.size() - suffix.size();
        const auto parsed = std::from_chars(name.data() + prefix.size(), end, pid);
        if (parsed.ec != std::errc{} || parsed.ptr != end) continue;  // pagemap-shmem-N: never left out
        TRY_ASSIGN(const std::string image, read_file(image_directory, name, 64 << 20));
        auto ranges = lazy_ranges_of(image, pid);
        if (!ranges) return wrap(name, ranges.error());
        all.insert(all.end(), ranges->begin(), ranges->end());
    }
    std::stable_sort(all.begin(), all.end(), [](const PageRange& a, const PageRange& b) { return a.pid < b.pid; });
    return all;
}

std::map<pid_t, pid_t> pids_inside(const std::vector<pid_t>& pids) {
    std::map<pid_t, pid_t> inside;
    for (const pid_t pid : pids) {
        const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/status");
        if (!status) continue;
        const size_t line = status->find("\nNSpid:");
        if (line == std::string::npos) continue;
        const size_t end = status->find('\n', line + 1), last = status->find_last_of("\t ", end);
        pid_t inner = 0;
        std::from_chars(status->data() + last + 1, status->data() + std::min(end, status->size()), inner);
        inside[inner] = pid;
    }
    return inside;
}

Result<FrozenMemory> FrozenMemory::open(const std::vector<PageRange>& ranges, const std::map<pid_t, pid_t>& pids) {
    FrozenMemory memory;
    for (const PageRange& r : ranges) {
        const auto known = pids.find(r.pid);
        if (known == pids.end()) return fail("process " + std::to_string(r.pid) + " of the image is not there");
        memory.processes_[r.pid].pid = known->second;
    }
    return memory;
}

Status FrozenMemory::read(const PageRange& range, char* to) {
    Process& process = processes_.at(range.pid);
    const uint64_t from = range.start;
    const size_t bytes = range.pages * page_bytes;
    for (size_t got = 0; got < bytes;) {
        // An address of another process. NOLINTNEXTLINE(performance-no-int-to-ptr)
        iovec there{reinterpret_cast<void*>(from + got), bytes - got}, here{to + got, bytes - got};
        ssize_t n = ::process_vm_readv(process.pid, &here, 1, &there, 1, 0);
        if (n <= 0) {
            if (n < 0 && errno != EFAULT) return fail_errno("read the memory of process " + std::to_string(process.pid), errno);
            // Memory that the job itself may not read (PROT_NONE) is read page by page, as a debugger does.
            if (!process.memory) {
                TRY_ASSIGN(process.memory, open_at(AT_FDCWD, "/proc/" + std::to_string(process.pid) + "/mem", O_RDONLY));
            }
            n = ::pread(process.memory.get(), to + got, page_bytes, static_cast<off_t>(from + got));
            if (n <= 0) return fail_errno("read the memory of process " + std::to_string(process.pid), n < 0 ? errno : ESRCH);
        }
        got += static_cast<size_t>(n);
    }
    return {};
}

}  // namespace souk
