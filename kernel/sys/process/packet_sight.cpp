// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/packet_sight.hpp"

#include <bpf/bpf.h>
#include <fcntl.h>

#include <cerrno>
#include <utility>

namespace souk {

Result<std::vector<Fd>> see_packets(const std::string& v2, int received, int sent) {
    TRY_ASSIGN(const Fd root, open_at(AT_FDCWD, v2, O_RDONLY | O_DIRECTORY));
    std::vector<Fd> links;
    const std::pair<int, bpf_attach_type> programs[] = {{received, BPF_CGROUP_INET_INGRESS},
                                                        {sent, BPF_CGROUP_INET_EGRESS}};
    for (const auto& [program, type] : programs) {
        Fd link(bpf_link_create(program, root.get(), type, nullptr));
        if (!link) return fail_errno("see the packets of all groups", errno);
        links.push_back(std::move(link));
    }
    return links;
}

}  // namespace souk
