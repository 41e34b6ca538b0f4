// SPDX-License-Identifier: GPL-2.0-or-later
// LoadProbe: that the owner uses the network, by packets at the sockets of the whole machine.
#include <bpf/bpf.h>
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
    TRY_ASSIGN(const Fd root, open_at(AT_FDCWD, cgroups_->layout().v2, O_RDONLY | O_DIRECTORY));
    std::vector<Fd> links;
    const std::pair<int, bpf_attach_type> programs[] = {
        {on_owner_received_.get(), BPF_CGROUP_INET_INGRESS},
        {on_owner_sent_.get(), BPF_CGROUP_INET_EGRESS}};
    for (const auto& [program, type] : programs) {
        Fd link(bpf_link_create(program, root.get(), type, nullptr));
        if (!link) return fail_errno("see the packets of all groups", errno);
        links.push_back(std::move(link));
    }
    owner_packets_ = std::move(links);
    return {};
}

}  // namespace souk
