// SPDX-License-Identifier: GPL-2.0-or-later
// LoadProbe: that the owner uses the network, by packets at the sockets of the whole machine.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "bpf/load.h"
#include "bpf/load.hpp"

namespace souk {

// The id of a group is the inode of its directory.
LoadProbe::Own LoadProbe::group_of(pid_t daemon) const {
    Own own;
    const auto text = read_file(AT_FDCWD, "/proc/" + std::to_string(daemon) + "/cgroup");
    const size_t at = !text                      ? std::string::npos
                      : text->starts_with("0::") ? 0
                                                 : text->rfind("\n0::");
    if (at == std::string::npos) return own;
    const size_t begin = text->find("::", at) + 2, end = text->find('\n', begin);
    const std::string path = text->substr(begin, end - begin);
    own.root = path == "/";
    struct stat status {};
    if (own.root || ::stat((cgroups_->layout().v2 + path).c_str(), &status) != 0) return own;
    own.level = static_cast<int>(std::count(path.begin(), path.end(), '/'));
    own.id = status.st_ino;
    return own;
}

// Attached at the root only meanwhile: each packet of the machine costs a little.
Status LoadProbe::notice_network(uint64_t bytes) {
    if (bytes == 0) owner_packets_.clear();
    for (size_t i = 0; cpus_ != nullptr && i < cpu_count_; ++i)
        __atomic_store_n(&cpus_[i].notice_bytes, bytes, __ATOMIC_RELAXED);
    if (bytes == 0 || !owner_packets_.empty()) return {};
    if (!on_owner_sent_) return fail("packets are not counted: " + why_no_network_);
    if (daemon_in_root_)
        return fail("agentd has no control group of its own, so that its packets are as his");
    TRY_ASSIGN(owner_packets_, see_packets_
                                   ? see_packets_()
                                   : see_packets(cgroups_->layout().v2, on_owner_received_.get(),
                                                 on_owner_sent_.get()));
    return {};
}

}  // namespace souk
