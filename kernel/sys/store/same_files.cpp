// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/same_files.hpp"

#include <fcntl.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <map>

#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

bool is_below(std::string_view path, std::string_view top) {
    return top == "/" ||
           (path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/'));
}

// Tells whether the mount is the kernel's, or an agentd's own (agentd/daemon/guest_host_start.cpp).
bool is_each_nodes_own(const Mount& mount) {
    constexpr std::string_view tops[] = {"/proc", "/sys", "/dev", "/run"};
    constexpr std::string_view types[] = {
        "proc",     "sysfs",     "devpts",  "devtmpfs",   "cgroup",     "cgroup2",    "nsfs",
        "mqueue",   "hugetlbfs", "debugfs", "tracefs",    "bpf",        "securityfs", "pstore",
        "configfs", "efivarfs",  "autofs",  "rpc_pipefs", "binfmt_misc"};
    const auto is_below_it = [&](std::string_view top) { return is_below(mount.point, top); };
    return std::ranges::any_of(tops, is_below_it) ||
           std::ranges::find(types, mount.type) != std::end(types) ||
           (mount.type == "tmpfs" && mount.source == "souk");
}

std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    for (size_t at = 0; (at = line.find_first_not_of(" \t", at)) != line.npos;) {
        const size_t end = std::min(line.find_first_of(" \t", at), line.size());
        words.push_back(line.substr(at, end - at));
        at = end;
    }
    return words;
}

// Server, port and fsid of the file system of that device; empty: it is not known. Format:
// NV SERVER PORT DEV FSID FSC.
std::string nfs_volume(std::string_view volumes, dev_t device) {
    const std::string wanted = std::to_string(major(device)) + ":" + std::to_string(minor(device));
    for (size_t at = 0; at < volumes.size();) {
        const size_t end = std::min(volumes.find('\n', at), volumes.size());
        const auto words = words_of(volumes.substr(at, end - at));
        if (words.size() >= 5 && words[3] == wanted)
            return std::string(words[1]) + " " + std::string(words[2]) + " " +
                   std::string(words[4]);
        at = end + 1;
    }
    return {};
}

// Returns the server's name of the directory, which stands behind the last ":/" ("host:/export").
std::string_view exported(std::string_view source) {
    const size_t colon = source.rfind(":/");
    return colon == source.npos ? source : source.substr(colon + 1);
}

std::string identity_of(const Mount& m, std::string_view boot, std::string_view volumes) {
    if (m.type == "nfs" || m.type == "nfs4") {
        const std::string volume = nfs_volume(volumes, m.device);
        if (!volume.empty())
            return "nfs " + volume + " " + std::string(exported(m.source)) + " " + m.root;
    }
    return "here " + std::string(boot) + " " + std::to_string(m.device) + " " + m.root;
}

}  // namespace

bool lies_below(std::string_view path, const std::vector<std::string>& directories) {
    return std::ranges::any_of(directories,
                               [&](const std::string& d) { return is_below(path, d); });
}

std::string file_systems_of(const std::vector<Mount>& mounts, std::string_view boot,
                            std::string_view volumes, const std::vector<std::string>& directories) {
    std::map<std::string, const Mount*> shown;  // by where; of several the last is on top
    for (const Mount& m : mounts)
        if (!is_each_nodes_own(m)) shown[m.point] = &m;
    std::map<std::string, const Mount*> wanted;
    for (const auto& [point, mount] : shown)
        if (directories.empty() || lies_below(point, directories)) wanted[point] = mount;
    for (const std::string& directory : directories) {
        const Mount* holds = nullptr;
        for (const auto& [point, mount] : shown)
            if (is_below(directory, point) && (!holds || point.size() > holds->point.size()))
                holds = mount;
        if (holds) wanted[holds->point] = holds;
    }
    std::string text;
    for (const auto& [point, mount] : wanted)
        text += point + " " + identity_of(*mount, boot, volumes) + "\n";
    return text;
}

Result<std::string> own_file_systems(const std::vector<std::string>& directories) {
    TRY_ASSIGN(const auto mounts, own_mounts());
    TRY_ASSIGN(const std::string boot, read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id"));
    const std::string volumes = read_file(AT_FDCWD, "/proc/fs/nfsfs/volumes").value_or("");
    return file_systems_of(mounts, std::string_view(boot).substr(0, boot.find('\n')), volumes,
                           directories);
}

Result<std::vector<std::string>> directories_of(std::string_view text) {
    std::vector<std::string> all;
    for (const std::string_view word : words_of(text)) {
        std::string path(word);
        while (path.size() > 1 && path.ends_with('/')) path.pop_back();
        if (!path.starts_with('/') || (path + "/").find("/../") != path.npos ||
            (path + "/").find("/./") != path.npos || path.find("//") != path.npos)
            return fail("'" + path + "' is no absolute path of a directory");
        all.push_back(std::move(path));
    }
    return all;
}

}  // namespace souk
