// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/pids.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <string>

#include "kernel/base/proc_status.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

Result<pid_t> pid_of(int pidfd) {
    TRY_ASSIGN(const std::string info,
               read_file(AT_FDCWD, "/proc/self/fdinfo/" + std::to_string(pidfd)));
    const auto said = status_line(info, "Pid");
    if (!said) return fail("no pidfd");
    const auto pid = whole_number<pid_t>(*said);
    if (!pid || *pid <= 0) return fail_errno("a process by its pidfd", ESRCH);
    return *pid;
}

Result<ino_t> namespace_of(pid_t pid, const char* kind) {
    struct stat st {};
    const std::string path = "/proc/" + std::to_string(pid) + "/ns/" + kind;
    if (::stat(path.c_str(), &st) != 0) return fail_errno(path, errno == ENOENT ? ESRCH : errno);
    return st.st_ino;
}

Result<ProgramFile> program_file(int proc, pid_t pid) {
    const std::string path = std::to_string(pid) + "/exe";
    struct statx st {};
    if (::statx(proc, path.c_str(), AT_STATX_DONT_SYNC, STATX_INO, &st) != 0)
        return fail_errno(path, errno == ENOENT ? ESRCH : errno);
    return ProgramFile{makedev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino};
}

}  // namespace souk
