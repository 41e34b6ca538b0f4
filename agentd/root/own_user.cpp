// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/own_user.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/cgroup.hpp"
#include "kernel/sys/store/linkless.hpp"
#include "kernel/sys/store/mounts.hpp"

namespace souk::root {
namespace {

constexpr uint32_t tmpfs_magic = 0x01021994;
constexpr int64_t capsules_mb = 128;  // for the few pages that each of guests_max keeps
constexpr int depth_max = 64;
constexpr unsigned long tmpfs_flags = MS_NOSUID | MS_NODEV | MS_NOEXEC, no_links = MS_NOSYMFOLLOW;

// -------------------------------------------------------------------------------------------------
// files

// Gives a file of one name, or a directory, to a user. Anything else stays as it is, because nobody
// may give it away.
Status give(int at, const std::string& name, AgentUser from, AgentUser to) {
    struct stat st {};
    if (::fstatat(at, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? Status{} : Status(fail_errno(name, errno));
    if (st.st_uid == to.uid || (st.st_uid != 0 && st.st_uid != from.uid)) return {};
    if (S_ISLNK(st.st_mode)) return {};
    TRY_ASSIGN(const Fd one, open_at(at, name, O_PATH | O_NOFOLLOW));
    if (::fstat(one.get(), &st) != 0) return fail_errno(name, errno);
    const bool file = S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode);
    if ((!file || st.st_nlink != 1) && !S_ISDIR(st.st_mode)) return {};
    if (st.st_uid != 0 && st.st_uid != from.uid) return {};
    if (::fchownat(one.get(), "", to.uid, to.gid, AT_EMPTY_PATH) != 0)
        return fail_errno("give " + name + " away", errno);
    return {};
}

// Gives a user a directory with all below it, but nothing in other mounts. The directory itself
// comes last: as long as it is not his, not all of it is.
Status give_tree(int at, const std::string& name, AgentUser from, AgentUser to, int depth = 0) {
    if (depth > depth_max) return fail(name + ": too deep");
    TRY_ASSIGN(const Fd dir, open_at(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    struct stat own {};
    if (::fstat(dir.get(), &own) != 0) return fail_errno(name, errno);
    TRY_ASSIGN(const auto names, list_dir(dir.get(), "."));
    for (const std::string& below : names) {
        struct stat st {};
        if (::fstatat(dir.get(), below.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (!S_ISDIR(st.st_mode)) {
            TRY(give(dir.get(), below, from, to));
        } else if (st.st_dev == own.st_dev) {
            TRY(give_tree(dir.get(), below, from, to, depth + 1));
        }
    }
    return give(at, name, from, to);
}

// Gives a user what lies directly in a directory, and the directory.
Status give_each(int at, const std::string& name, AgentUser from, AgentUser to) {
    TRY_ASSIGN(const Fd dir, open_at(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    TRY_ASSIGN(const auto names, list_dir(dir.get(), "."));
    for (const std::string& below : names) {
        struct stat st {};
        const bool there = ::fstatat(dir.get(), below.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (there && !S_ISDIR(st.st_mode)) {
            TRY(give(dir.get(), below, from, to));
        }
    }
    return give(at, name, from, to);
}

// -------------------------------------------------------------------------------------------------
// the state directory

// An old daemon's mount follows links still.
Status mount_room(int dir, const std::string& name, int64_t size_mb, const char* more) {
    const std::string path = "/proc/self/fd/" + std::to_string(dir);
    struct statfs fs {};
    if (::fstatfs(dir, &fs) != 0) return fail_errno("stat " + name, errno);
    if (static_cast<uint32_t>(fs.f_type) != tmpfs_magic) {
        const std::string options = "mode=0700,size=" + std::to_string(size_mb) + "m" + more;
        if (::mount("souk", path.c_str(), "tmpfs", tmpfs_flags | no_links, options.c_str()) == 0)
            return {};
        // A kernel before 5.10.
        if (errno == EINVAL &&
            ::mount("souk", path.c_str(), "tmpfs", tmpfs_flags, options.c_str()) == 0)
            return {};
        return fail_errno("mount a tmpfs on " + name, errno);
    }
    if (!is_linkless(dir))  // where it is a part of another one, it cannot be
        (void)::mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_BIND | tmpfs_flags | no_links,
                      nullptr);
    return {};
}

int64_t memory_total_mb() {
    struct sysinfo info {};
    ::sysinfo(&info);
    return static_cast<int64_t>(info.totalram) * info.mem_unit >> 20;
}

Status mount_rooms(int state, int64_t ram_mb) {
    const int64_t size_mb = ram_mb > 0 ? ram_mb : memory_total_mb() / 2;
    TRY_ASSIGN(const Fd ram, open_at(state, "ram", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    // Big pages make writing and reading an image more than twice as fast; kernels without them
    // refuse the option.
    if (auto made = mount_room(ram.get(), "ram", size_mb, ",huge=within_size"); !made)
        TRY(mount_room(ram.get(), "ram", size_mb, ""));
    // Files that tell of a capsule are of no use after a reboot, and nothing is slower on a disk's
    // file system than some files for each job that starts and ends. So they are in memory, unless
    // capsules of an older daemon have theirs on the disk.
    TRY_ASSIGN(const Fd guests, open_at(state, "guests", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    TRY_ASSIGN(const auto older, list_dir(guests.get(), "."));
    struct statfs fs {};
    const bool mounted =
        ::fstatfs(guests.get(), &fs) == 0 && static_cast<uint32_t>(fs.f_type) == tmpfs_magic;
    return older.empty() || mounted ? mount_room(guests.get(), "guests", capsules_mb, "")
                                    : Status{};
}

// Asks the kernel with that user's rights on files alone whether he reaches the directory.
Status check_reach(const std::string& path, AgentUser user) {
    ::setfsgid(user.gid);
    ::setfsuid(user.uid);
    const auto found = open_at(AT_FDCWD, path, O_PATH | O_DIRECTORY);
    const Status reached = found.map([](const Fd&) {});
    ::setfsuid(0);
    ::setfsgid(0);
    return reached ? Status{} : Status(wrap("user " + std::to_string(user.uid), reached.error()));
}

Status hand_over_state(const AgentPlace& place, AgentUser user) {
    std::error_code error;
    std::filesystem::create_directories(place.state, error);
    if (error) return fail("create " + place.state + ": " + error.message());
    if (user) TRY(check_reach(place.state, user));
    TRY_ASSIGN(const Fd state, open_at(AT_FDCWD, place.state, O_RDONLY | O_DIRECTORY));
    struct stat st {};
    if (::fstat(state.get(), &st) != 0) return fail_errno(place.state, errno);
    const AgentUser from{st.st_uid, st.st_gid};
    if (::fchmod(state.get(), 0700) != 0) return fail_errno("chmod " + place.state, errno);
    const char* const below[] = {"home", "guests", "images", "refused", "ram", "files"};
    for (const char* name : below)
        if (::mkdirat(state.get(), name, 0700) != 0 && errno != EEXIST)
            return fail_errno("create " + place.state + "/" + name, errno);
    TRY(mount_rooms(state.get(), place.ram_mb));
    // CRIU and souk-init make files here as root, so these are looked for at each start. The rest
    // is given once.
    const bool all = from.uid != user.uid;
    for (const char* name : {"guests", "images", "refused", "ram"})
        TRY(give_tree(state.get(), name, from, user));
    for (const char* name : {"home", "contents"})
        if (all && ::faccessat(state.get(), name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
            TRY(give_tree(state.get(), name, from, user));
        }
    // Below `files` there may be files of users.
    TRY(give_each(state.get(), "files", from, user));
    TRY(give_each(state.get(), ".", from, user));
    // Root may have laid a certificate there. Below the state its directory is agentd's to swap.
    const bool below_state = place.identity.starts_with(place.state + "/");
    const std::string identity =
        below_state ? place.identity.substr(place.state.size() + 1) : place.identity;
    const int at = below_state ? state.get() : AT_FDCWD;
    if (::faccessat(at, identity.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) return {};
    return give_tree(at, identity, from, user);
}

// -------------------------------------------------------------------------------------------------
// control groups

// A machine without them goes on without.
Status hand_over_control(const std::string& name, AgentUser user) {
    const size_t slash = name.find('/');
    TRY_ASSIGN(const std::string mounts, read_file(AT_FDCWD, "/proc/self/mountinfo"));
    return hand_over_groups(detect_cgroups(mounts), name.substr(0, slash), name.substr(slash + 1),
                            user.uid, user.gid);
}

Status check_machine() {
    const auto links = read_file(AT_FDCWD, "/proc/sys/fs/protected_hardlinks");
    if (!links || !links->starts_with("1"))
        return fail(
            "fs.protected_hardlinks is 0 on this machine: then a user may give root's files "
            "names of his own");
    TRY_ASSIGN(const auto mounts, own_mounts());
    for (const Mount& mount : mounts)
        if (mount.point == "/proc" && mount.options.find("hidepid=") != mount.options.npos &&
            mount.options.find("hidepid=0") == mount.options.npos &&
            mount.options.find("hidepid=off") == mount.options.npos)
            return fail("/proc hides the processes of others (hidepid)");
    TRY_ASSIGN(const Fd top, open_at(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY));
    return linkless(top.get()).map([](const Fd&) {});
}

}  // namespace

Result<AgentUser> find_agent_user(const std::string& name) {
    AgentUser user;
    if (const auto number = whole_number<uint32_t>(name)) {
        user = {*number, *number};
    } else if (const passwd* const account = ::getpwnam(name.c_str())) {
        user = {account->pw_uid, account->pw_gid};
    } else {
        return fail("this machine has no user " + name);
    }
    if (user.uid == UINT32_MAX || user.gid == UINT32_MAX) return fail(name + " is nobody");
    if (!user) return AgentUser{};
    if (user.gid == 0) return fail("user " + name + " is of root's group");
    TRY(check_machine());
    return user;
}

Status hand_over(const AgentPlace& place, AgentUser user) {
    if (auto done = hand_over_state(place, user); !done)
        return wrap("hand over " + place.state, done.error());
    if (auto done = hand_over_control(place.cgroup, user); !done)
        return wrap("hand over control groups", done.error());
    return {};
}

Status give_files(int dir, AgentUser user) {
    if (!user) return {};
    TRY_ASSIGN(const auto names, list_dir(dir, "."));
    for (const std::string& name : names) TRY(give(dir, name, {}, user));
    return {};
}

}  // namespace souk::root
