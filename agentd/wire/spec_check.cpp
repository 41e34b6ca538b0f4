// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/wire/spec_check.hpp"

#include <sys/resource.h>

#include "agentd/core/files_choice.hpp"
#include "agentd/wire/types.hpp"

namespace souk::wire {

static_assert(spec_rlimits_max == RLIM_NLIMITS);

void check_spec(JobSpec& spec, Check& c) {
    const LaunchSpec& launch = spec.launch;
    size_t bytes_left = spec_bytes_max;
    const auto count = [&](const char* field, const std::vector<std::string>& strings) {
        for (const std::string& s : strings) {
            if (s.size() > bytes_left)
                return c.bad(field, std::to_string(s.size()) + " bytes, at most " +
                                        std::to_string(bytes_left));
            bytes_left -= std::min(bytes_left, s.size() + 1);
        }
    };
    count("argv", launch.argv);
    count("env", launch.env);
    if (launch.argv.empty()) c.bad("argv", "empty");
    if (!launch.path.starts_with('/')) c.bad("path", "not absolute");
    if (!launch.cwd.starts_with('/')) c.bad("cwd", "not absolute");
    for (const ResourceLimit& r : launch.rlimits)
        if (r.soft > r.hard) c.bad("rlimits", "a soft limit above its hard one");
    for (const std::string& path : spec.local_paths)
        if (!may_lie_over(path))
            c.bad("local_paths", "'" + path + "' is no directory that may lie over a home's");
    if ((spec.net == NetMode::own) != (spec.tcp == TcpPolicy::keep))
        c.bad("tcp", "connections go along with a network of its own, and only with that");
}

}  // namespace souk::wire
