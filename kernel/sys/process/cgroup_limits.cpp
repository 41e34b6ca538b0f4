// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroup, second part: what its processes get and may have. See cgroup.hpp.
#include <algorithm>
#include <cerrno>

#include "kernel/sys/process/cgroup.hpp"

namespace souk {

Status Cgroup::set_cpu_weight(int64_t weight) const {
    TRY_ASSIGN(const Member* member, need("cpu"));
    const Status s =
        member->v2
            ? write_file(member->dir.get(), "cpu.weight", std::to_string(weight))
            : write_file(member->dir.get(), "cpu.shares", std::to_string(weight * 1024 / 100));
    if (!s) return wrap(member->path, s.error());
    return {};
}

Status Cgroup::set_cpu_idle(bool idle) const {
    TRY_ASSIGN(const Member* member, need("cpu"));
    if (const Status s = write_file(member->dir.get(), "cpu.idle", idle ? "1" : "0"); !s)
        return wrap(member->path, s.error());
    return {};
}

bool Cgroup::cpu_idle() const {
    const Member* const member = find("cpu");
    const auto text = member ? read_file(member->dir.get(), "cpu.idle") : fail("");
    return text && text->starts_with("1");
}

// A disk may have weights in two places: its scheduler has them if it is BFQ, and the controller
// itself has them where the kernel reckons costs (iocost). We set both.
Status Cgroup::set_io_weight(int64_t weight) const {
    const Member* const v2 = find("io");
    TRY_ASSIGN(const Member* member, v2 ? Result<const Member*>(v2) : need("blkio"));
    const std::string text = std::to_string(weight);
    const char* const first = v2 ? "io.weight" : "blkio.weight";
    const char* const second = v2 ? "io.bfq.weight" : "blkio.bfq.weight";
    const Status cost = write_file(member->dir.get(), first, text);
    const Status bfq =
        write_file(member->dir.get(), second, std::to_string(std::min<int64_t>(weight, 1'000)));
    if (cost || bfq) return {};
    return wrap(member->path, bfq.error());
}

Status Cgroup::limit_memory(const char* v2, const char* v1, int64_t bytes) const {
    TRY_ASSIGN(const Member* member, need("memory"));
    const std::string none = member->v2 ? "max" : "-1";
    if (const Status s = write_file(member->dir.get(), member->v2 ? v2 : v1,
                                    bytes == 0 ? none : std::to_string(bytes));
        !s)
        return wrap(member->path, s.error());
    return {};
}

Status Cgroup::set_memory_high(int64_t bytes) const {
    return limit_memory("memory.high", "memory.soft_limit_in_bytes", bytes);
}

Status Cgroup::set_memory_max(int64_t bytes) const {
    return limit_memory("memory.max", "memory.limit_in_bytes", bytes);
}

Status Cgroup::set_swap_max(int64_t bytes, int64_t memory_max) const {
    TRY_ASSIGN(const Member* member, need("memory"));
    const std::string any = member->v2 ? "max" : "-1";
    const int64_t limit = member->v2 ? bytes : memory_max + bytes;
    if (const Status s = write_file(member->dir.get(),
                                    member->v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes",
                                    bytes < 0 ? any : std::to_string(limit));
        !s)
        return wrap(member->path, s.error());
    return {};
}

Status Cgroup::set_io_max(const std::vector<std::string>& disks, int64_t bytes_per_s) const {
    const Member* const v2 = find("io");
    TRY_ASSIGN(const Member* member, v2 ? Result<const Member*>(v2) : need("blkio"));
    const std::string n = std::to_string(bytes_per_s);
    const std::string both = bytes_per_s == 0 ? " rbps=max wbps=max" : " rbps=" + n + " wbps=" + n;
    const auto write = [&](const char* file, const std::string& text) -> Status {
        if (const Status s = write_file(member->dir.get(), file, text); !s)
            return wrap(member->path, s.error());
        return {};
    };
    for (const std::string& disk : disks) {
        if (v2) {
            TRY(write("io.max", disk + both));
            continue;
        }
        TRY(write("blkio.throttle.read_bps_device", disk + " " + n));
        TRY(write("blkio.throttle.write_bps_device", disk + " " + n));
    }
    return {};
}

Status Cgroup::set_cpus_max(int64_t cpus, bool bursts) const {
    return set_cpu_milli_max(cpus * 1'000, bursts);
}

Status Cgroup::set_cpu_milli_max(int64_t milli, bool bursts) const {
    constexpr int64_t period_us = 100'000;  // what a group begins with
    TRY_ASSIGN(const Member* member, need("cpu"));
    const std::string quota = std::to_string(milli * period_us / 1'000);
    const char* const burst_file = member->v2 ? "cpu.max.burst" : "cpu.cfs_burst_us";
    // A quota below the burst of before is refused; kernels before 5.14 have no burst.
    (void)write_file(member->dir.get(), burst_file, "0");
    const Status s =
        member->v2 ? write_file(member->dir.get(), "cpu.max", milli == 0 ? "max" : quota)
                   : write_file(member->dir.get(), "cpu.cfs_quota_us", milli == 0 ? "-1" : quota);
    if (!s) return wrap(member->path, s.error());
    if (bursts && milli > 0) (void)write_file(member->dir.get(), burst_file, quota);
    return {};
}

// On v1 the kernel itself refuses a limit below what cannot be given back. On v2 it would kill for
// it, so we hold growth back (memory.high) until what is held fits.
Result<bool> Cgroup::lower_memory_max(int64_t bytes) const {
    TRY_ASSIGN(const Member* member, need("memory"));
    if (!member->v2) {
        const Status set = set_memory_max(bytes);
        if (set) return true;
        if (set.error().code == EBUSY) return false;
        return tl::unexpected(set.error());
    }
    if (const Status s = write_file(member->dir.get(), "memory.high", std::to_string(bytes)); !s)
        return wrap(member->path, s.error());
    TRY_ASSIGN(const int64_t held, memory_bytes());
    const bool fits = held <= bytes;
    const Status set = fits ? set_memory_max(bytes) : Status{};
    if (const Status s = write_file(member->dir.get(), "memory.high", "max"); !s)
        return wrap(member->path, s.error());
    if (!set) return tl::unexpected(set.error());
    return fits;
}

Status Cgroup::set_pids_max(int64_t count) const {
    TRY_ASSIGN(const Member* member, need("pids"));
    if (const Status s =
            write_file(member->dir.get(), "pids.max", count == 0 ? "max" : std::to_string(count));
        !s)
        return wrap(member->path, s.error());
    return {};
}

}  // namespace souk
