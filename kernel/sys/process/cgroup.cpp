// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/cgroup.hpp"

#include <linux/sched.h>
#include <poll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "kernel/base/check.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/loop/backoff.hpp"
#include "kernel/sys/process/cgroup_tree.hpp"

namespace souk {
namespace {

Result<int64_t> number_in(std::string_view text, const std::string& where) {
    const auto value = leading_number<int64_t>(text);
    if (!value) return fail(where + ": not a number");
    return *value;
}

}  // namespace

bool valid_cgroup_name(std::string_view name) {
    if (name.empty() || name.front() == '/' || name.back() == '/') return false;
    for (size_t at = 0; at <= name.size();) {
        const size_t end = std::min(name.find('/', at), name.size());
        const std::string_view part = name.substr(at, end - at);
        if (part.empty() || part == "." || part == ".." || part.size() > 200) return false;
        for (const char c : part)
            if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-'))
                return false;
        at = end + 1;
    }
    return true;
}

int enter_v1(const CgroupEntry& entry) {
    // "0" is the writer itself: the one move that needs no lock over all processes.
    for (const int tasks : entry.v1_tasks)
        if (tasks >= 0 && ::write(tasks, "0", 1) != 1) return errno;
    return 0;
}

Result<Forked> fork_into(const CgroupEntry& entry, uint64_t flags) {
    int pidfd = -1;
    clone_args args{};
    args.flags = flags | CLONE_PIDFD | (entry.v2 >= 0 ? CLONE_INTO_CGROUP : 0);
    args.pidfd = reinterpret_cast<uint64_t>(&pidfd);
    args.exit_signal = SIGCHLD;
    args.cgroup = entry.v2 >= 0 ? static_cast<uint64_t>(entry.v2) : 0;
    const long pid = ::syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0) return fail_errno("clone into cgroup", errno);
    if (pid == 0) {
        if (enter_v1(entry) != 0) ::_exit(125);
        return Forked{true, Pidfd()};
    }
    return Forked{false, Pidfd(Fd(pidfd), static_cast<pid_t>(pid))};
}

const Cgroup::Member* Cgroup::find(std::string_view controller) const {
    const auto it = controllers_.find(controller);
    return it == controllers_.end() ? nullptr : &members_[it->second];
}

Result<const Cgroup::Member*> Cgroup::need(std::string_view controller) const {
    if (const Member* member = find(controller)) return member;
    return fail_errno("cgroup " + name_ + ": no " + std::string(controller) + " controller",
                      ENOTSUP);
}

const Cgroup::Member& Cgroup::tracker() const { return members_.front(); }

CgroupEntry Cgroup::entry() const {
    CgroupEntry entry;
    size_t n = 0;
    for (const Member& member : members_) {
        if (member.v2) {
            entry.v2 = member.dir.get();
        } else {
            MUST(n < entry.v1_tasks.size());
            entry.v1_tasks[n++] = member.tasks.get();
        }
    }
    return entry;
}

Status Cgroup::add(pid_t pid) const {
    for (const Member& member : members_)
        if (const Status s = write_file(member.dir.get(), "cgroup.procs", std::to_string(pid)); !s)
            return wrap("add process " + std::to_string(pid) + " to cgroup " + member.path,
                        s.error());
    return {};
}

Result<int64_t> Cgroup::memory_kills() const {
    TRY_ASSIGN(const Member* member, need("memory"));
    const char* const file = member->v2 ? "memory.events" : "memory.oom_control";
    TRY_ASSIGN(const std::string text, read_file(member->dir.get(), file));
    constexpr std::string_view key = "\noom_kill ";
    const size_t at = text.find(key);
    if (at == std::string::npos) return fail(member->path + "/" + file + ": no oom_kill");
    return number_in(std::string_view(text).substr(at + key.size()), member->path);
}

// cgroup.events raises POLLPRI when a line of it changes.
Status Cgroup::wait_event(std::string_view line, Nanos wait_max) const {
    const Member& member = tracker();
    TRY_ASSIGN(const Fd events, open_at(member.dir.get(), "cgroup.events", O_RDONLY));
    Backoff clock(wait_max);
    while (true) {
        char text[256];
        const ssize_t n = ::pread(events.get(), text, sizeof text, 0);
        if (n < 0) return fail_errno(member.path + "/cgroup.events", errno);
        if (std::string_view(text, static_cast<size_t>(n)).find(line) != std::string_view::npos)
            return {};
        const Nanos left = clock.left();
        if (left.ns == 0)
            return fail_errno("cgroup " + name_ + " did not become '" + std::string(line) + "'",
                              ETIMEDOUT);
        pollfd item{events.get(), POLLPRI, 0};
        const timespec timeout = to_timespec(left);
        if (::ppoll(&item, 1, &timeout, nullptr) < 0 && errno != EINTR)
            return fail_errno(member.path, errno);
    }
}

Status Cgroup::wait_v1_freezer(std::string_view state, Nanos wait_max) const {
    Backoff backoff(wait_max);
    while (true) {
        TRY_ASSIGN(const std::string now, read_file(tracker().dir.get(), "freezer.state"));
        if (now == std::string(state) + "\n") return {};
        if (!backoff.wait())
            return fail_errno("cgroup " + name_ + " did not become " + std::string(state),
                              ETIMEDOUT);
    }
}

std::string_view Cgroup::freezer_word() const { return tracker().v2 ? "1" : "FROZEN"; }

Result<Fd> Cgroup::open_freezer() const {
    const Member& member = tracker();
    return open_at(member.dir.get(), member.v2 ? "cgroup.freeze" : "freezer.state", O_RDWR);
}

Status Cgroup::stop() const {
    const Member& member = tracker();
    const Status asked =
        write_file(member.dir.get(), member.v2 ? "cgroup.freeze" : "freezer.state", freezer_word());
    if (!asked) return wrap("freeze " + member.path, asked.error());
    return {};
}

Status Cgroup::freeze(Nanos wait_max) const {
    TRY(stop());
    const Member& member = tracker();
    const Status frozen =
        member.v2 ? wait_event("frozen 1", wait_max) : wait_v1_freezer("FROZEN", wait_max);
    if (frozen) return {};
    if (const Status thawed = thaw(); !thawed) return wrap(frozen.error().message, thawed.error());
    return wrap("freeze", frozen.error());
}

Status Cgroup::thaw() const {
    const Member& member = tracker();
    const Status done = member.v2 ? write_file(member.dir.get(), "cgroup.freeze", "0")
                                  : write_file(member.dir.get(), "freezer.state", "THAWED");
    if (!done) return wrap("thaw " + member.path, done.error());
    return {};
}

Status Cgroup::kill_all(Nanos wait_max) const {
    const Member& member = tracker();
    if (member.v2) {
        if (const Status s = write_file(member.dir.get(), "cgroup.kill", "1"); !s)
            return wrap("kill " + member.path, s.error());
        return wait_event("populated 0", wait_max);
    }
    // v1: processes may fork while they are killed, so freeze first; frozen ones die when thawed.
    Backoff backoff(wait_max);
    while (true) {
        TRY(write_file(member.dir.get(), "freezer.state", "FROZEN"));
        std::vector<Pidfd> killed;
        TRY_ASSIGN(const std::vector<pid_t> all, pids());
        for (const pid_t pid : all) {
            auto process = Pidfd::open(pid);
            if (!process) continue;
            end_(*process);  // what may not be killed ends with its souk-init
            killed.push_back(std::move(*process));
        }
        TRY(thaw());
        if (all.empty()) return {};
        for (const Pidfd& process : killed) TRY(process.exited_within(backoff.left()));
        if (!backoff.wait()) return fail_errno("kill cgroup " + name_, ETIMEDOUT);
    }
}

Status Cgroup::remove(Nanos wait_max) {
    Backoff clock(wait_max);
    // A group that still has a process, or groups below it, is busy.
    if (::rmdir(tracker().path.c_str()) < 0 && errno != ENOENT) TRY(kill_all(wait_max));
    for (const Member& member : members_) TRY(remove_tree(member.path, clock.left(), end_));
    return {};
}

Result<std::vector<pid_t>> Cgroup::pids() const {
    std::vector<pid_t> all;
    TRY(collect_pids(tracker().path, all));
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

std::vector<int> Cgroup::dirs() const {
    std::vector<int> all;
    for (const Member& member : members_) all.push_back(member.dir.get());
    return all;
}

Result<Nanos> Cgroup::cpu_time() const {
    if (tracker().v2) {
        TRY_ASSIGN(const std::string text, read_file(tracker().dir.get(), "cpu.stat"));
        constexpr std::string_view key = "usage_usec ";
        const size_t at = text.find(key);
        if (at == std::string::npos) return fail(tracker().path + "/cpu.stat: no usage_usec");
        TRY_ASSIGN(const int64_t us,
                   number_in(std::string_view(text).substr(at + key.size()), tracker().path));
        return Nanos::from_us(us);
    }
    TRY_ASSIGN(const Member* member, need("cpuacct"));
    TRY_ASSIGN(const std::string text, read_file(member->dir.get(), "cpuacct.usage"));
    TRY_ASSIGN(const int64_t ns, number_in(text, member->path));
    return Nanos{ns};
}

Result<int64_t> Cgroup::memory_peak_bytes() const {
    TRY_ASSIGN(const Member* member, need("memory"));
    TRY_ASSIGN(
        const std::string text,
        read_file(member->dir.get(), member->v2 ? "memory.peak" : "memory.max_usage_in_bytes"));
    return number_in(text, member->path);
}

Result<bool> Cgroup::limit_was_reached() const {
    bool reached = false;
    const auto look = [&](const char* controller, const char* file_v2,
                          const char* file_v1) -> Status {
        const Member* const member = find(controller);
        if (member == nullptr || reached) return {};
        TRY_ASSIGN(const std::string text,
                   read_file(member->dir.get(), member->v2 ? file_v2 : file_v1));
        // "max 0\noom 0\n", or a number alone
        for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
            end = std::min(text.find('\n', at), text.size());
            const size_t space = text.rfind(' ', end);
            const size_t from = space == text.npos || space < at ? at : space + 1;
            TRY_ASSIGN(const int64_t n, number_in(std::string_view(text).substr(from, end - from),
                                                  member->path + "/" + file_v2));
            reached = reached || n != 0;
        }
        return {};
    };
    TRY(look("memory", "memory.events", "memory.failcnt"));
    TRY(look("pids", "pids.events", "pids.events"));
    const Member* const memory = find("memory");
    if (reached || memory == nullptr || memory->v2) return reached;
    // also for a limit of a group above
    TRY_ASSIGN(const int64_t kills, memory_kills());
    return kills > 0;
}

Result<int64_t> Cgroup::memory_bytes() const {
    TRY_ASSIGN(const Member* member, need("memory"));
    TRY_ASSIGN(
        const std::string text,
        read_file(member->dir.get(), member->v2 ? "memory.current" : "memory.usage_in_bytes"));
    return number_in(text, member->path);
}

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

bool Cgroup::allows_realtime() const {
    const Member* member = find("cpu");
    if (!member || member->v2) return true;
    const auto text = read_file(member->dir.get(), "cpu.rt_runtime_us");
    return !text || std::strtoll(text->c_str(), nullptr, 10) > 0;
}

}  // namespace souk
