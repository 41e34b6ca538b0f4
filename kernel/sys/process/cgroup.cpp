// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/cgroup.hpp"

#include <dirent.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "kernel/base/check.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/loop/backoff.hpp"

namespace souk {
namespace {

Result<int64_t> number_in(std::string_view text, const std::string& where) {
    const auto value = leading_number<int64_t>(text);
    if (!value) return fail(where + ": not a number");
    return *value;
}

// The groups directly below one. A listing alone: to look at each of a group's some dozen files
// would make the kernel keep them all. (Every control group file system tells which are
// directories.)
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

// Children before parents.
Status for_each_below(const std::string& path, const auto& visit) {
    const auto names = groups_in(path);
    if (!names)
        return names.error().code == ENOENT ? Status{} : Status(tl::unexpected(names.error()));
    for (const std::string& name : *names) TRY(for_each_below(path + "/" + name, visit));
    return visit(path);
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

// The group's tree in one hierarchy, with what is left in it, ended.
Status remove_tree(const std::string& path, Nanos wait_max) {
    Backoff backoff(wait_max);
    while (true) {
        // Mostly it is empty: then that is all.
        if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return {};
        Status done = for_each_below(path, [](const std::string& group) -> Status {
            if (::rmdir(group.c_str()) < 0 && errno != ENOENT)
                return fail_errno("remove cgroup " + group, errno);
            return {};
        });
        if (done || done.error().code != EBUSY) return done;
        std::vector<pid_t> pids;
        TRY(collect_pids(path, pids));
        for (const pid_t pid : pids) {
            const auto process = Pidfd::open(pid);
            if (!process) continue;
            TRY(process->signal(SIGKILL));
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

// The v2 id is the inode number of the group's directory (kernfs, 64 bits).
uint64_t group_id(int dir) {
    struct stat status {};
    return ::fstat(dir, &status) == 0 ? status.st_ino : 0;
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

Status Cgroup::set_cpu_weight(int64_t weight) const {
    TRY_ASSIGN(const Member* member, need("cpu"));
    const Status s =
        member->v2
            ? write_file(member->dir.get(), "cpu.weight", std::to_string(weight))
            : write_file(member->dir.get(), "cpu.shares", std::to_string(weight * 1024 / 100));
    if (!s) return wrap(member->path, s.error());
    return {};
}

Status Cgroup::set_memory_max(int64_t bytes) const {
    TRY_ASSIGN(const Member* member, need("memory"));
    const char* const file = member->v2 ? "memory.max" : "memory.limit_in_bytes";
    const char* const none = member->v2 ? "max" : "-1";
    if (const Status s =
            write_file(member->dir.get(), file, bytes == 0 ? none : std::to_string(bytes));
        !s)
        return wrap(member->path, s.error());
    return {};
}

Status Cgroup::set_cpus_max(int64_t cpus, bool bursts) const {
    constexpr int64_t period_us = 100'000;  // what a group begins with
    TRY_ASSIGN(const Member* member, need("cpu"));
    const std::string quota = std::to_string(cpus * period_us);
    const char* const burst_file = member->v2 ? "cpu.max.burst" : "cpu.cfs_burst_us";
    // never above the quota; kernels before 5.14 have none
    if (bursts) (void)write_file(member->dir.get(), burst_file, "0");
    const Status s =
        member->v2 ? write_file(member->dir.get(), "cpu.max", cpus == 0 ? "max" : quota)
                   : write_file(member->dir.get(), "cpu.cfs_quota_us", cpus == 0 ? "-1" : quota);
    if (!s) return wrap(member->path, s.error());
    if (bursts && cpus > 0) (void)write_file(member->dir.get(), burst_file, quota);
    return {};
}

// On v1 the kernel itself refuses a limit below what cannot be given back. On v2 it would kill for
// it: so growth is held back (memory.high) until what is held fits.
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
            TRY(process->signal(SIGKILL));
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
    for (const Member& member : members_) TRY(remove_tree(member.path, clock.left()));
    return {};
}

Result<std::vector<pid_t>> Cgroup::pids() const {
    std::vector<pid_t> all;
    TRY(collect_pids(tracker().path, all));
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
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

Result<int64_t> Cgroup::memory_bytes() const {
    TRY_ASSIGN(const Member* member, need("memory"));
    TRY_ASSIGN(
        const std::string text,
        read_file(member->dir.get(), member->v2 ? "memory.current" : "memory.usage_in_bytes"));
    return number_in(text, member->path);
}

Result<Cgroups> Cgroups::open(CgroupLayout layout, std::string root) {
    MUST(valid_cgroup_name(root) && root.find('/') == std::string::npos);
    if (layout.v2.empty() && !layout.v1.contains("freezer"))
        return fail_errno("no cgroup v2 and no v1 freezer is mounted", ENOTSUP);
    return Cgroups(std::move(layout), std::move(root));
}

Result<Cgroups> Cgroups::open(std::string root) {
    TRY_ASSIGN(const std::string mountinfo, read_file(AT_FDCWD, "/proc/self/mountinfo"));
    return open(detect_cgroups(mountinfo), std::move(root));
}

std::vector<std::string> Cgroups::mounts() const {
    std::vector<std::string> all;
    if (!layout_.v2.empty()) all.push_back(layout_.v2);
    for (const auto& [controller, mount] : layout_.v1)
        if (std::find(all.begin(), all.end(), mount) == all.end()) all.push_back(mount);
    return all;
}

// On v2 a controller must be enabled in every parent before a child has its files.
Status Cgroups::make_v2(const std::string& path, CgroupUse use) const {
    TRY(make_dirs(layout_.v2, path));
    std::string enable;
    if (use.cpu && layout_.in_v2("cpu")) enable += "+cpu ";
    if (use.memory && layout_.in_v2("memory")) enable += "+memory ";
    if (use.pids && layout_.in_v2("pids")) enable += "+pids ";
    if (enable.empty()) return {};
    std::string parent = layout_.v2;
    for (size_t at = 0; at < path.size();) {
        if (const Status s = write_file(AT_FDCWD, parent + "/cgroup.subtree_control", enable); !s)
            return wrap("enable " + enable + "for " + path, s.error());
        const size_t end = std::min(path.find('/', at), path.size());
        parent += "/" + path.substr(at, end - at);
        at = end + 1;
    }
    return {};
}

namespace {
constexpr const char* realtime_file = "/cpu.rt_runtime_us";

// 0 where the kernel does not divide it.
int64_t realtime_us(const std::string& group) {
    const auto text = read_file(AT_FDCWD, group + realtime_file);
    return text ? leading_number<int64_t>(*text).value_or(0) : 0;
}

// Half of what the parent has left. In vain if another takes of it just now.
void halve_realtime(const std::string& parent, const std::string& group) {
    int64_t left = realtime_us(parent);
    const auto siblings = groups_in(parent);
    if (left <= 0 || !siblings) return;
    for (const std::string& sibling : *siblings) left -= realtime_us(parent + "/" + sibling);
    if (left > 1) (void)write_file(AT_FDCWD, group + realtime_file, std::to_string(left / 2));
}
}  // namespace

bool Cgroup::allows_realtime() const {
    const Member* member = find("cpu");
    if (!member || member->v2) return true;
    const auto text = read_file(member->dir.get(), realtime_file + 1);
    return !text || std::strtoll(text->c_str(), nullptr, 10) > 0;
}

// A v1 kernel with RT_GROUP_SCHED gives a new group no time for real-time policies, so that nothing
// in it may have one. Each parent of a group gets half of what its own parent has left, once; the
// group itself a quarter of its parent's, or less if others have that. Of many groups the last get
// nothing: to look at all of them would cost each job that starts.
void Cgroups::share_realtime(const std::string& mount, const std::string& path) const {
    const std::string group = mount + "/" + path, parent = group.substr(0, group.rfind('/'));
    const auto known = realtime_.find(parent);
    int64_t all = known == realtime_.end() ? 0 : known->second;
    if (known == realtime_.end()) {
        for (size_t at = 0; (at = path.find('/', at)) != path.npos; ++at) {
            const std::string above = mount + "/" + path.substr(0, at);
            if (realtime_us(above) == 0) halve_realtime(above.substr(0, above.rfind('/')), above);
        }
        all = realtime_[parent] = realtime_us(parent);
    }
    for (int64_t part = all / 4; part > 0 && part >= all / 64; part /= 2)
        if (write_file(AT_FDCWD, group + realtime_file, std::to_string(part))) return;
}

Result<Cgroup> Cgroups::create(const std::string& name, CgroupUse use) const {
    if (!valid_cgroup_name(name)) return fail("bad cgroup name '" + name + "'");
    Cgroup group;
    group.name_ = name;
    const std::string path = below_root(name);
    const bool v2 = !layout_.v2.empty();
    const auto join = [&](const std::string& mount, bool is_v2) -> Result<size_t> {
        for (size_t i = 0; i < group.members_.size(); ++i)
            if (group.members_[i].path == mount + "/" + path) return i;
        Cgroup::Member member{mount + "/" + path, Fd(), Fd(), is_v2};
        TRY(is_v2 ? make_v2(path, use) : make_dirs(mount, path));
        TRY_ASSIGN(member.dir, open_at(AT_FDCWD, member.path, O_RDONLY | O_DIRECTORY));
        if (!is_v2) {
            TRY_ASSIGN(member.tasks, open_at(member.dir.get(), "tasks", O_WRONLY));
        }
        group.members_.push_back(std::move(member));
        return group.members_.size() - 1;
    };
    // The hierarchy that processes are tracked in comes first.
    TRY_ASSIGN(const size_t first, join(v2 ? layout_.v2 : layout_.v1.at("freezer"), v2));
    if (v2) group.id_ = group_id(group.members_[first].dir.get());
    std::vector<std::string> wanted;
    if (use.cpu) wanted.emplace_back("cpu");
    if (use.memory) wanted.emplace_back("memory");
    if (use.pids) wanted.emplace_back("pids");
    if (!v2) wanted.emplace_back("cpuacct");
    for (const std::string& controller : wanted) {
        if (layout_.in_v2(controller)) {
            group.controllers_[controller] = first;
        } else if (const auto mount = layout_.v1.find(controller); mount != layout_.v1.end()) {
            TRY_ASSIGN(group.controllers_[controller], join(mount->second, false));
            if (controller == "cpu") share_realtime(mount->second, path);
        }
    }
    return group;
}

Result<std::vector<std::string>> Cgroups::list(const std::string& parent) const {
    std::vector<std::string> all;
    for (const std::string& mount : mounts()) {
        const std::string path = mount + "/" + below_root(parent);
        const auto names = groups_in(path);
        if (!names && names.error().code == ENOENT) continue;
        if (!names) return wrap("list cgroups", names.error());
        all.insert(all.end(), names->begin(), names->end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

Status Cgroups::remove(const std::string& name, Nanos wait_max) const {
    if (!name.empty() && !valid_cgroup_name(name)) return fail("bad cgroup name '" + name + "'");
    const std::string path = below_root(name);
    Backoff clock(wait_max);
    // First in the hierarchies that stop and kill: a process that the v1 freezer holds does not die
    // in any other.
    if (!layout_.v2.empty())
        if (const Status s = write_file(AT_FDCWD, layout_.v2 + "/" + path + "/cgroup.kill", "1");
            !s && s.error().code != ENOENT)
            return wrap("kill", s.error());
    if (const auto freezer = layout_.v1.find("freezer"); freezer != layout_.v1.end())
        TRY(for_each_below(freezer->second + "/" + path, [](const std::string& group) -> Status {
            const Status s = write_file(AT_FDCWD, group + "/freezer.state", "THAWED");
            return s || s.error().code == ENOENT ? Status{} : s;
        }));
    for (const std::string& mount : mounts()) TRY(remove_tree(mount + "/" + path, clock.left()));
    return {};
}

}  // namespace souk
