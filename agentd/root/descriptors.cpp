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

#include "kernel/base/number.hpp"

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

Status check_fuse(int fd) {
    struct stat st {};
    TRY(check_kind(fd, S_IFCHR, "a file system's device"));
    if (::fstat(fd, &st) != 0) return fail_errno("a file system's device", errno);
    if (st.st_rdev != makedev(fuse_major, fuse_minor)) return fail("another device than /dev/fuse");
    return {};
}

namespace {
// Its number here, and its /proc/PID/status.
Result<std::pair<pid_t, std::string>> status_of(int pidfd) {
    TRY_ASSIGN(const std::string info,
               read_file(AT_FDCWD, "/proc/self/fdinfo/" + std::to_string(pidfd)));
    const size_t at = info.find("\nPid:\t");
    const auto pid = at == info.npos ? std::nullopt
                                     : leading_number<pid_t>(std::string_view(info).substr(at + 6));
    if (!pid || *pid <= 0) return fail("no process of a capsule");
    TRY_ASSIGN(std::string status,
               read_file(AT_FDCWD, "/proc/" + std::to_string(*pid) + "/status"));
    return std::pair(*pid, std::move(status));
}
}  // namespace

Result<Inside> process_inside(int pidfd) {
    TRY_ASSIGN(const auto found, status_of(pidfd));
    const auto& [pid, status] = found;
    const size_t line = status.find("\nNSpid:\t");
    const size_t end = line == status.npos ? line : status.find('\n', line + 1);
    if (end == status.npos) return fail("a kernel that does not tell of namespaces");
    const std::string_view numbers = std::string_view(status).substr(line + 8, end - line - 8);
    const size_t tab = numbers.rfind('\t');
    if (tab == numbers.npos) return fail("no process of a capsule");
    return Inside{pid, whole_number<pid_t>(numbers.substr(tab + 1)).value_or(0)};
}

Result<Pidfd> check_capsule(int pidfd) {
    TRY_ASSIGN(const Inside process, process_inside(pidfd));
    if (process.inside != 1) return fail("no PID 1 of a capsule");
    TRY_ASSIGN(Fd own, duplicate(pidfd));
    return Pidfd(std::move(own), process.here);
}

Result<ino_t> namespace_of(pid_t pid) {
    struct stat st {};
    if (::stat(("/proc/" + std::to_string(pid) + "/ns/pid").c_str(), &st) == 0) return st.st_ino;
    if (errno == ENOENT || errno == ESRCH) return 0;
    return fail_errno("the namespace of process " + std::to_string(pid), errno);
}

Status check_started(int pidfd) {
    if (process_inside(pidfd)) return {};
    TRY_ASSIGN(const auto found, status_of(pidfd));
    const std::string line = "\nPPid:\t" + std::to_string(::getpid()) + "\n";
    return found.second.find(line) != std::string::npos
               ? Status{}
               : Status(fail("no process that was started here"));
}

}  // namespace souk::root
