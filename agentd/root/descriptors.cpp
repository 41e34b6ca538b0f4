// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/descriptors.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace souk::root {
namespace {

constexpr unsigned fuse_major = 10, fuse_minor = 229;  // Documentation/admin-guide/devices.txt

}  // namespace

Status check_kind(int fd, mode_t kind, const char* what) {
    struct statx st {};
    if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) != 0)
        return fail_errno(what, errno);
    if ((st.stx_mode & S_IFMT) != kind) return fail(std::string(what) + " is another kind of file");
    return {};
}

Status check_own(int fd, const char* what, AgentUser owner) {
    TRY(check_kind(fd, S_IFDIR, what));
    struct stat st {};
    if (::fstat(fd, &st) != 0) return fail_errno(what, errno);
    if (st.st_uid != owner.uid || (st.st_mode & 077) != 0)
        return fail(std::string(what) + " is not agentd's alone");
    return {};
}

Status check_group(int fd, uint32_t magic, mode_t kind, AgentUser owner) {
    TRY(check_kind(fd, kind, "a control group"));
    struct statfs fs {};
    struct stat st {};
    if (::fstatfs(fd, &fs) != 0 || ::fstat(fd, &st) != 0)
        return fail_errno("a control group", errno);
    if (static_cast<uint32_t>(fs.f_type) != magic) return fail("no control group");
    return st.st_uid == owner.uid ? Status{} : Status(fail("a control group of somebody else"));
}

std::string name_of(int fd) {
    char path[4096];
    const ssize_t n =
        ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
    return {path, n > 0 ? static_cast<size_t>(n) : 0};
}

namespace {
Result<Fd> reopen_one(int fd, AgentUser owner) {
    TRY(check_group(fd, CGROUP_SUPER_MAGIC, S_IFREG, owner));
    const std::string name = name_of(fd);
    if (!name.ends_with("/tasks") && !name.ends_with("/cgroup.procs"))
        return fail("a file of a control group that takes no processes");
    return open_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(fd), O_WRONLY);
}
}  // namespace

Result<std::vector<Fd>> reopen_v1(std::span<const int> fds, AgentUser owner) {
    std::vector<Fd> all;
    for (const int fd : fds) {
        TRY_ASSIGN(Fd one, reopen_one(fd, owner));
        all.push_back(std::move(one));
    }
    return all;
}

Status check_packets(int fd) {
    int type = 0, domain = 0;
    socklen_t n = sizeof type, m = sizeof domain;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) != 0 ||
        ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &m) != 0)
        return fail_errno("a socket", errno);
    return type == SOCK_SEQPACKET && domain == AF_UNIX ? Status{}
                                                       : Status(fail("no socket of packets"));
}

Status check_end(int fd) {
    struct stat st {};
    struct statfs fs {};
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fstat(fd, &st) != 0 || ::fstatfs(fd, &fs) != 0)
        return fail_errno("an end of a job", errno);
    const bool pipe = S_ISFIFO(st.st_mode) && fs.f_type == PIPEFS_MAGIC;
    const bool terminal = S_ISCHR(st.st_mode) && fs.f_type == DEVPTS_SUPER_MAGIC;
    return (flags & O_PATH) == 0 && (pipe || terminal) ? Status{} : Status(fail("no end of a job"));
}

Status check_fuse(int fd) {
    struct stat st {};
    TRY(check_kind(fd, S_IFCHR, "a file system's device"));
    if (::fstat(fd, &st) != 0) return fail_errno("a file system's device", errno);
    if (st.st_rdev != makedev(fuse_major, fuse_minor)) return fail("another device than /dev/fuse");
    return {};
}

std::vector<int> numbers_of(const std::vector<Fd>& fds) {
    std::vector<int> all;
    all.reserve(fds.size());
    for (const Fd& fd : fds) all.push_back(fd.get());
    return all;
}

}  // namespace souk::root
