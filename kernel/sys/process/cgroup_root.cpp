// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroups: the groups below one root, in each hierarchy that is mounted. See cgroup.hpp.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kernel/base/check.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/loop/backoff.hpp"
#include "kernel/sys/process/cgroup.hpp"
#include "kernel/sys/process/cgroup_tree.hpp"

namespace souk {
namespace {

// The v2 id is the inode number of the group's directory (kernfs, 64 bits).
uint64_t group_id(int dir) {
    struct stat status {};
    return ::fstat(dir, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

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

namespace {
// `wish`: "+cpu +memory ".
bool all_enabled(const std::string& group, std::string_view wish) {
    const auto text = read_file(AT_FDCWD, group + "/cgroup.subtree_control");
    if (!text) return false;
    const std::string enabled = " " + text->substr(0, text->find('\n')) + " ";
    while (!wish.empty()) {
        const size_t end = wish.find(' ');
        const std::string name = " " + std::string(wish.substr(1, end - 1)) + " ";
        if (enabled.find(name) == enabled.npos) return false;
        wish.remove_prefix(end + 1);
    }
    return true;
}
}  // namespace

// Makes the group. On v2 a controller must be enabled in every parent before a child has its files.
Status Cgroups::make_v2(const std::string& path, CgroupUse use) const {
    TRY(make_dirs(layout_.v2, path));
    std::string enable;
    if (use.cpu && layout_.in_v2("cpu")) enable += "+cpu ";
    if (use.memory && layout_.in_v2("memory")) enable += "+memory ";
    if (use.pids && layout_.in_v2("pids")) enable += "+pids ";
    if (use.io && layout_.in_v2("io")) enable += "+io ";
    if (enable.empty()) return {};
    std::string parent = layout_.v2;
    for (size_t at = 0; at < path.size();) {
        const Status s = write_file(AT_FDCWD, parent + "/cgroup.subtree_control", enable);
        // At the top only root may do this, and has done it (hand_over_groups).
        const bool top = parent == layout_.v2;
        if (!s && !(top && s.error().code == EACCES && all_enabled(parent, enable)))
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

// Returns how much of the parent's time for real-time policies the other groups leave.
int64_t realtime_left(const std::string& parent, const std::string& group) {
    const auto siblings = groups_in(parent);
    int64_t left = siblings ? realtime_us(parent) : 0;
    for (const std::string& sibling : siblings.value_or(std::vector<std::string>{}))
        if (const std::string other = parent + "/" + sibling; other != group)
            left -= realtime_us(other);
    return left;
}

// Half of what the others leave, or less: the kernel counts a group that was just removed by others
// for a moment more.
void halve_realtime(const std::string& parent, const std::string& group) {
    const int64_t half = realtime_us(group) == 0 ? realtime_left(parent, group) / 2 : 0;
    for (int64_t part = half; part > half / 1'024; part /= 2)
        if (write_file(AT_FDCWD, group + realtime_file, std::to_string(part))) return;
}

// Two daemons that take half at the same time leave nothing for a third one, so they must take it
// one after another. Anybody may hold this lock; then we go on without it, and the group has no
// time at worst.
Fd realtime_lock(const std::string& mount, int tries) {
    auto lock = open_at(AT_FDCWD, mount, O_RDONLY | O_DIRECTORY);
    if (!lock) return {};
    for (; ::flock(lock->get(), LOCK_EX | LOCK_NB) < 0 && tries > 1; --tries) ::usleep(1'000);
    return std::move(*lock);
}
}  // namespace

// A v1 kernel with RT_GROUP_SCHED gives a new group no time for real-time policies, so that nothing
// in it may have one. A group that has some keeps it, because those below it have parts of it. Each
// parent of a group, and the first group that this object makes below a parent, gets half of what
// the parent has left. Later ones get a quarter of the parent's, or less if others have that. Of
// many groups the last get nothing: to look at all of them would cost each job that starts.
void Cgroups::share_realtime(const std::string& mount, const std::string& path) const {
    const std::string group = mount + "/" + path, parent = group.substr(0, group.rfind('/'));
    constexpr int tries = 500;
    const auto [known, first] = realtime_.try_emplace(parent, 0);
    int64_t& all = known->second;
    if (all == 0) {  // there was none before: others may have given theirs back
        const Fd lock = realtime_lock(mount, first ? tries : 1);
        for (size_t at = 0; (at = path.find('/', at)) != path.npos; ++at) {
            const std::string above = mount + "/" + path.substr(0, at);
            halve_realtime(above.substr(0, above.rfind('/')), above);
        }
        all = realtime_us(parent);
        halve_realtime(parent, group);
    }
    if (realtime_us(group) > 0) return;
    for (int64_t part = all / 4; part > 0 && part >= all / 64; part /= 2)
        if (write_file(AT_FDCWD, group + realtime_file, std::to_string(part))) return;
}

Result<Cgroup> Cgroups::create(const std::string& name, CgroupUse use) const {
    if (!valid_cgroup_name(name)) return fail("bad cgroup name '" + name + "'");
    return make(name, use);
}

Result<Cgroup> Cgroups::make(const std::string& name, CgroupUse use) const {
    Cgroup group;
    group.name_ = name;
    group.end_ = end_;
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
    if (use.io) wanted.emplace_back(layout_.in_v2("io") ? "io" : "blkio");
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
    for (const std::string& mount : mounts())
        TRY(remove_tree(mount + "/" + path, clock.left(), end_));
    return {};
}

}  // namespace souk
