// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/frozen_memory.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "checkpoint/sent_pages.hpp"
#include "kernel/base/number.hpp"

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
        const size_t line = status->find("\nNSpid:");
        if (line == std::string::npos) continue;
        const size_t end = status->find('\n', line + 1), last = status->find_last_of("\t ", end);
        const std::string_view word = std::string_view(*status).substr(last + 1, end - last - 1);
        inside[leading_number<pid_t>(word).value_or(0)] = pid;
    }
    return inside;
}

namespace {
std::string proc(pid_t pid, const char* name) {
    return "/proc/" + std::to_string(pid) + "/" + name;
}

bool has_merged_pages(pid_t pid) {
    // none: a kernel without KSM
    const auto pages = read_file(AT_FDCWD, proc(pid, "ksm_merging_pages"));
    return pages && !pages->empty() && pages->front() != '0';
}

tl::unexpected<Error> unreadable(pid_t pid, int code) {
    return fail_errno("read the memory of process " + std::to_string(pid), code);
}
}  // namespace

Result<FrozenMemory> FrozenMemory::open(const std::vector<PageRange>& ranges,
                                        const std::map<pid_t, pid_t>& pids) {
    FrozenMemory memory;
    for (const PageRange& r : ranges) {
        if (memory.has(r.pid)) continue;
        const auto known = pids.find(r.pid);
        if (known == pids.end())
            return fail("process " + std::to_string(r.pid) + " of the image is not there");
        Process& process = memory.processes_[r.pid];
        process.pid = known->second;
        process.may_share = pids.size() > 1 || has_merged_pages(process.pid);
    }
    return memory;
}

// How many pages from there on are all exclusive, or all not.
Result<uint64_t> FrozenMemory::exclusive_pages(Process& process, uint64_t from, uint64_t pages,
                                               bool& exclusive) {
    constexpr uint64_t entries_max = 64;
    exclusive = true;
    if (!process.may_share) return pages;
    if (!process.pagemap) {
        TRY_ASSIGN(process.pagemap, open_at(AT_FDCWD, proc(process.pid, "pagemap"), O_RDONLY));
    }
    uint64_t entries[entries_max];
    const auto at = static_cast<off_t>(from / page_bytes * sizeof entries[0]);
    const ssize_t n = ::pread(process.pagemap.get(), entries,
                              std::min(pages, entries_max) * sizeof entries[0], at);
    if (n <= 0) return unreadable(process.pid, n < 0 ? errno : ESRCH);
    const uint64_t got = static_cast<uint64_t>(n) / sizeof entries[0];
    exclusive = pagemap::is_exclusive(entries[0]);
    uint64_t run = 1;
    while (run < got && pagemap::is_exclusive(entries[run]) == exclusive) ++run;
    return run;
}

Status FrozenMemory::read(const PageRange& range, char* to) {
    Process& process = processes_.at(range.pid);
    const size_t bytes = range.pages * page_bytes;
    for (size_t got = 0; got < bytes;) {
        const uint64_t from = range.start + got;
        bool exclusive = true;
        TRY_ASSIGN(const uint64_t run,
                   exclusive_pages(process, from, (bytes - got) / page_bytes, exclusive));
        size_t part = run * page_bytes;
        ssize_t n = -1;
        if (exclusive) {
            // An address of another process. NOLINTNEXTLINE(performance-no-int-to-ptr)
            iovec there{reinterpret_cast<void*>(from), part}, here{to + got, part};
            n = ::process_vm_readv(process.pid, &here, 1, &there, 1, 0);
            if (n < 0 && errno != EFAULT) return unreadable(process.pid, errno);
            // memory that the job itself may not read (PROT_NONE): page by page, as a debugger does
            part = page_bytes;
        }
        if (n <= 0) {
            if (!process.memory) {
                TRY_ASSIGN(process.memory, open_at(AT_FDCWD, proc(process.pid, "mem"), O_RDONLY));
            }
            n = ::pread(process.memory.get(), to + got, part, static_cast<off_t>(from));
            if (n <= 0) return unreadable(process.pid, n < 0 ? errno : ESRCH);
        }
        got += static_cast<size_t>(n);
    }
    return {};
}

}  // namespace souk
