// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/network_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "kernel/base/number.hpp"
#include "kernel/sys/store/mounts.hpp"

namespace souk {
namespace {
constexpr std::array<std::string_view, 18> types = {
    "nfs",  "nfs4",  "cifs", "smb3",      "smbfs",    "ceph",   "lustre", "afs",      "9p",
    "gfs2", "ocfs2", "coda", "glusterfs", "orangefs", "beegfs", "gpfs",   "virtiofs", "fuse"};
}  // namespace

bool is_network_filesystem(std::string_view type) {
    return std::ranges::find(types, type) != types.end() || type.starts_with("fuse.");
}

std::set<dev_t> network_devices(const std::string& mountinfo,
                                bool (*is_network)(std::string_view)) {
    std::set<dev_t> devices;
    for (const Mount& mount : parse_mounts(mountinfo))
        if (is_network(mount.type)) devices.insert(mount.device);
    return devices;
}

namespace {
bool is_written(int file) {
    struct statx st {};
    return (::fcntl(file, F_GETFL) & O_ACCMODE) != O_RDONLY &&
           ::statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 &&
           S_ISREG(st.stx_mode);
}

bool lies_on(const std::string& path, const std::set<dev_t>& devices) {
    struct statx st {};
    return ::statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 &&
           S_ISREG(st.stx_mode) && devices.contains(makedev(st.stx_dev_major, st.stx_dev_minor));
}
}  // namespace

std::vector<Fd> written_files(const std::vector<pid_t>& pids, const std::set<dev_t>& devices,
                              const std::function<Result<Fd>(const Pidfd&, int)>& take) {
    std::vector<Fd> files;
    for (const pid_t pid : pids) {
        const auto process = Pidfd::open(pid);
        const std::string directory = "/proc/" + std::to_string(pid) + "/fd";
        const auto names =
            process ? list_dir(AT_FDCWD, directory) : Result<std::vector<std::string>>(fail(""));
        if (!names) continue;  // it has ended
        for (const std::string& name : *names) {
            const std::string link = directory + "/" + name;
            char target[2];
            if (::readlink(link.c_str(), target, sizeof target) < 1 || target[0] != '/' ||
                !lies_on(link, devices))
                continue;
            auto file = take(*process, whole_number<int>(name).value_or(-1));
            if (file && is_written(file->get())) files.push_back(std::move(*file));
        }
    }
    return files;
}

}  // namespace souk
