// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/file_systems.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>

#include "kernel/sys/store/same_files.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {

Result<std::string> file_systems(const std::string& directories) {
    TRY_ASSIGN(const auto all, directories_of(directories));
    TRY_ASSIGN(const std::string text, own_file_systems(all));
    std::string named = trust::sha256(text);
    for (const std::string& directory : all) named += " " + directory;
    return named;
}

bool has_file_systems(const std::string& named) {
    if (named.empty()) return false;
    const size_t blank = std::min(named.find(' '), named.size());
    const auto own = file_systems(named.substr(blank));
    return own && *own == named;
}

Status disk_has_room(int directory, int64_t reserve_bytes) {
    struct statvfs fs {};
    if (::fstatvfs(directory, &fs) != 0) return {};  // it says so where it matters
    constexpr uint64_t most = uint64_t{1} << 30;
    const uint64_t free = fs.f_bavail * fs.f_frsize;
    const uint64_t reserve = reserve_bytes < 0 ? std::min(fs.f_blocks * fs.f_frsize / 20, most)
                                               : static_cast<uint64_t>(reserve_bytes);
    if (free >= reserve) return {};
    return fail("no room on the disk: " + std::to_string(free >> 20) +
                " MB are free, and agentd keeps " + std::to_string(reserve >> 20) +
                " MB for itself (disk_reserve_mb)");
}

Result<uint64_t> image_share_left(int directory, int64_t share_mb, uint64_t taken) {
    struct statvfs fs {};
    if (::fstatvfs(directory, &fs) != 0) return fail_errno("room for an image", errno);
    const uint64_t share = share_mb < 0 ? static_cast<uint64_t>(fs.f_blocks) * fs.f_frsize / 2
                                        : static_cast<uint64_t>(share_mb) << 20;
    if (taken < share) return share - taken;
    return fail("no room for its image: those of its user here have " +
                std::to_string(taken >> 20) + " MB, of " + std::to_string(share >> 20) +
                " that they may have (user_images_mb)");
}

}  // namespace souk
