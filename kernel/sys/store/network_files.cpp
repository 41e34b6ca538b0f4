// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/network_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "kernel/base/number.hpp"
#include "kernel/sys/store/mounts.hpp"

namespace souk {
namespace {
constexpr std::array<std::string_view, 18> network_types = {
    "nfs",  "nfs4",  "cifs", "smb3",      "smbfs",    "ceph",   "lustre", "afs",      "9p",
    "gfs2", "ocfs2", "coda", "glusterfs", "orangefs", "beegfs", "gpfs",   "virtiofs", "fuse"};
}  // namespace

bool is_network_filesystem(std::string_view type) {
    return std::ranges::find(network_types, type) != network_types.end() ||
           type.starts_with("fuse.");
}

bool is_locked_by_server(std::string_view type) {
    constexpr std::array<std::string_view, 5> servers = {
        "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.juicefs", "fuse.mfs"};
    return std::ranges::count(servers, type) > 0 ||
           (is_network_filesystem(type) && !type.starts_with("fuse"));
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

bool lies_on(const std::string& path, const std::set<dev_t>& devices, const FileKeys* among) {
    struct statx st {};
    if (::statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &st) != 0)
        return false;
    const dev_t device = makedev(st.stx_dev_major, st.stx_dev_minor);
    return S_ISREG(st.stx_mode) && devices.contains(device) &&
           (!among || among->contains({device, st.stx_ino}));
}
}  // namespace

std::vector<Fd> written_files(const std::vector<pid_t>& pids, const std::set<dev_t>& devices,
                              const FileKeys* among,
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
                !lies_on(link, devices, among))
                continue;
            auto file = take(*process, whole_number<int>(name).value_or(-1));
            if (file && is_written(file->get())) files.push_back(std::move(*file));
        }
    }
    return files;
}

void add_shared_mappings(const std::string& maps, const std::set<dev_t>& devices, FileKeys& to) {
    for (size_t at = 0; at < maps.size();) {
        const size_t end = std::min(maps.find('\n', at), maps.size());
        char shared = 0;
        unsigned major = 0, minor = 0;
        unsigned long inode = 0;
        const std::string line = maps.substr(at, end - at);
        at = end + 1;
        if (std::sscanf(line.c_str(), "%*s %*3c%c %*s %x:%x %lu", &shared, &major, &minor,
                        &inode) == 4 &&
            shared == 's' && devices.contains(makedev(major, minor)))
            to.emplace(makedev(major, minor), inode);
    }
}

FileKeys shared_mappings(const std::vector<pid_t>& pids, const std::set<dev_t>& devices) {
    FileKeys found;
    for (const pid_t pid : pids)
        if (const auto maps = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/maps"))
            add_shared_mappings(*maps, devices, found);
    return found;
}

// A line of devices, a line of processes; the first begins with an m: what is mapped alone.
std::string sync_words(const SyncWords& words) {
    std::string text = words.mapped_alone ? "m" : "";
    for (const dev_t device : words.devices) text += std::to_string(device) + " ";
    text += "\n";
    for (const pid_t pid : words.pids) text += std::to_string(pid) + " ";
    return text + "\n";
}

Result<SyncWords> parse_sync_words(std::string_view text) {
    SyncWords words;
    words.mapped_alone = text.starts_with('m');
    if (words.mapped_alone) text.remove_prefix(1);
    for (const bool device : {true, false}) {
        const size_t end = text.find('\n');
        if (end == text.npos) return fail("files to sync: a line is missing");
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        while (!line.empty()) {
            const size_t space = std::min(line.find(' '), line.size());
            const auto number = whole_number<uint64_t>(line.substr(0, space));
            const bool good = number && (device || (*number > 0 && *number <= INT32_MAX));
            if (!good) return fail("files to sync: a bad number");
            if (device)
                words.devices.insert(*number);
            else
                words.pids.push_back(static_cast<pid_t>(*number));
            line.remove_prefix(std::min(space + 1, line.size()));
        }
    }
    if (!text.empty()) return fail("files to sync: more than two lines");
    return words;
}

}  // namespace souk
