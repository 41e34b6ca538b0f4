// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/network_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace souk {
namespace {
constexpr std::array<std::string_view, 18> types = {"nfs",  "nfs4", "cifs",  "smb3",      "smbfs",    "ceph",   "lustre", "afs",      "9p",
                                                    "gfs2", "ocfs2", "coda", "glusterfs", "orangefs", "beegfs", "gpfs",   "virtiofs", "fuse"};

// The n-th word, from 0; empty: there are not so many.
std::string_view word(std::string_view line, int n) {
    for (; n > 0 && !line.empty(); --n) line.remove_prefix(std::min(line.size(), line.find(' ')) + (line.find(' ') != line.npos));
    return line.substr(0, line.find(' '));
}
}  // namespace

bool is_network_filesystem(std::string_view type) {
    return std::ranges::find(types, type) != types.end() || type.starts_with("fuse.");
}

// proc(5): id, parent, major:minor, root, mount point, options, any number of tags, "-", type, ...
std::set<dev_t> network_devices(std::string_view mountinfo, bool (*is_network)(std::string_view)) {
    std::set<dev_t> devices;
    while (!mountinfo.empty()) {
        const std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
        mountinfo.remove_prefix(std::min(mountinfo.size(), line.size() + 1));
        const size_t tags_end = line.find(" - ");
        if (tags_end == line.npos || !is_network(word(line.substr(tags_end + 3), 0))) continue;
        const std::string_view device = word(line, 2);
        const char* const end = device.data() + device.size();
        unsigned major = 0, minor = 0;
        const auto first = std::from_chars(device.data(), end, major);
        if (first.ec != std::errc{} || first.ptr == end || *first.ptr != ':') continue;
        if (std::from_chars(first.ptr + 1, end, minor).ec == std::errc{}) devices.insert(makedev(major, minor));
    }
    return devices;
}

std::vector<Fd> written_files(const std::vector<pid_t>& pids, const std::set<dev_t>& devices) {
    std::vector<Fd> files;
    for (const pid_t pid : pids) {
        const auto process = Pidfd::open(pid);
        const std::string directory = "/proc/" + std::to_string(pid) + "/fd";
        const auto names = process ? list_dir(AT_FDCWD, directory) : Result<std::vector<std::string>>(fail(""));
        if (!names) continue;  // it has ended
        for (const std::string& name : *names) {
            char target[2];
            if (::readlink((directory + "/" + name).c_str(), target, sizeof target) < 1 || target[0] != '/') continue;
            Fd file(static_cast<int>(::syscall(SYS_pidfd_getfd, process->get(), std::atoi(name.c_str()), 0)));
            if (!file || (::fcntl(file.get(), F_GETFL) & O_ACCMODE) == O_RDONLY) continue;
            struct statx st {};
            if (::statx(file.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) != 0 || !S_ISREG(st.stx_mode)) continue;
            if (devices.contains(makedev(st.stx_dev_major, st.stx_dev_minor))) files.push_back(std::move(file));
        }
    }
    return files;
}

}  // namespace souk
