// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/caller_limits.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {
// As the kernel names them (fs/proc/base.c, lnames).
constexpr std::pair<std::string_view, int32_t> names[] = {
    {"Max cpu time", RLIMIT_CPU},
    {"Max file size", RLIMIT_FSIZE},
    {"Max data size", RLIMIT_DATA},
    {"Max stack size", RLIMIT_STACK},
    {"Max core file size", RLIMIT_CORE},
    {"Max resident set", RLIMIT_RSS},
    {"Max processes", RLIMIT_NPROC},
    {"Max open files", RLIMIT_NOFILE},
    {"Max locked memory", RLIMIT_MEMLOCK},
    {"Max address space", RLIMIT_AS},
    {"Max file locks", RLIMIT_LOCKS},
    {"Max pending signals", RLIMIT_SIGPENDING},
    {"Max msgqueue size", RLIMIT_MSGQUEUE},
    {"Max nice priority", RLIMIT_NICE},
    {"Max realtime priority", RLIMIT_RTPRIO},
    {"Max realtime timeout", RLIMIT_RTTIME},
};

// "unlimited            unlimited            seconds": the second.
std::optional<uint64_t> second_number(std::string_view rest) {
    std::string_view word;
    for (int i = 0; i < 2; ++i) {
        const size_t from = rest.find_first_not_of(' ');
        if (from == rest.npos) return std::nullopt;
        const size_t to = std::min(rest.find(' ', from), rest.size());
        word = rest.substr(from, to - from);
        rest = rest.substr(to);
    }
    if (word == "unlimited") return RLIM_INFINITY;
    return whole_number<uint64_t>(word);
}
}  // namespace

Result<std::map<int32_t, uint64_t>> hard_limits(std::string_view text) {
    std::map<int32_t, uint64_t> limits;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string_view line = text.substr(at, end - at);
        at = end + 1;
        for (const auto& [name, resource] : names) {
            if (!line.starts_with(name)) continue;
            const auto hard = second_number(line.substr(name.size()));
            if (!hard) return fail("limits of a process: '" + std::string(line) + "' is no limit");
            limits[resource] = *hard;
        }
    }
    if (limits.size() != std::size(names)) return fail("limits of a process: some are missing");
    return limits;
}

Status clamp_to_caller(std::vector<ResourceLimit>& limits, pid_t pid, uint32_t uid) {
    if (uid == 0) return {};
    const std::string proc = "/proc/" + std::to_string(pid);
    TRY_ASSIGN(const Fd held, open_at(AT_FDCWD, proc, O_PATH | O_DIRECTORY));
    TRY_ASSIGN(const std::string text, read_file(held.get(), "limits"));
    TRY_ASSIGN(const std::string status, read_file(held.get(), "status"));
    const size_t at = status.find("\nUid:\t");
    const auto owner = at == status.npos
                           ? std::nullopt
                           : leading_number<uint32_t>(std::string_view(status).substr(at + 6));
    if (owner != uid) return fail("the process that asks for this job has ended");
    TRY_ASSIGN(const auto hard, hard_limits(text));
    for (ResourceLimit& l : limits) {
        const auto most = hard.find(l.resource);
        if (most == hard.end()) continue;
        l.hard = std::min(l.hard, most->second);
        l.soft = std::min(l.soft, l.hard);
    }
    return {};
}

}  // namespace souk
