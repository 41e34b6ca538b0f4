// SPDX-License-Identifier: GPL-2.0-or-later
// The control groups of a node as another user's. Who makes a group owns its files: so below what
// is given away here nothing needs to be given.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "kernel/sys/process/cgroup.hpp"
#include "kernel/sys/process/cgroup_tree.hpp"

namespace souk {
namespace {

// The directory comes last: as long as it is not his, not all is.
Status give_group(const std::string& path, uint32_t uid, uint32_t gid) {
    auto opened = open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!opened && opened.error().code == ENOENT) return {};
    if (!opened) return tl::unexpected(opened.error());
    struct stat st {};
    if (::fstat(opened->get(), &st) != 0) return fail_errno(path, errno);
    if (st.st_uid == uid) return {};
    TRY_ASSIGN(const auto names, list_dir(opened->get(), "."));
    for (const std::string& name : names)
        if (::fstatat(opened->get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) &&
            ::fchownat(opened->get(), name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) != 0)
            return fail_errno("give " + path + "/" + name + " away", errno);
    if (::fchown(opened->get(), uid, gid) != 0) return fail_errno("give " + path + " away", errno);
    return {};
}

}  // namespace

Status hand_over_groups(const CgroupLayout& layout, const std::string& root,
                        const std::string& node, uint32_t uid, uint32_t gid) {
    std::set<std::string> mounts;
    for (const auto& [controller, mount] : layout.v1) mounts.insert(mount);
    if (!layout.v2.empty()) mounts.insert(layout.v2);
    // Only root may enable these controllers.
    if (uid != 0 && !layout.v2.empty())
        for (const std::string name : {"cpu", "memory", "pids", "io"})
            if (layout.in_v2(name))
                (void)write_file(AT_FDCWD, layout.v2 + "/cgroup.subtree_control", "+" + name);
    for (const std::string& mount : mounts) {
        const std::string top = mount + "/" + root, own = top + "/" + node;
        if (uid != 0) TRY(make_dirs(mount, root + "/" + node + "/jobs"));
        TRY(for_each_below(
            own, [&](const std::string& group) -> Status { return give_group(group, uid, gid); }));
        TRY(give_group(top, uid, gid));
    }
    return {};
}

}  // namespace souk
