// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/wire/spec_check.hpp"

#include <sys/resource.h>

#include "agentd/core/files_choice.hpp"
#include "agentd/wire/types.hpp"

namespace souk::wire {

static_assert(spec_rlimits_max == RLIM_NLIMITS);

namespace {

void check_size(const LaunchSpec& launch, size_t strings_max, size_t bytes_max, Check& c) {
    size_t bytes = 0;
    for (const auto& [field, list] : {std::pair("argv", &launch.argv), {"env", &launch.env}}) {
        for (const std::string& s : *list) bytes += s.size() + 1;
        if (list->size() > strings_max)
            c.bad(field, std::to_string(list->size()) + " strings, at most " +
                             std::to_string(strings_max));
        if (bytes > bytes_max)
            c.bad(field, "arguments and environment have " + std::to_string(bytes) +
                             " bytes, at most " + std::to_string(bytes_max));
    }
}

}  // namespace

void check_given_spec(const JobSpec& spec, Check& c) {
    check_size(spec.launch, spec_strings_max, spec_bytes_max, c);
}

void check_spec(JobSpec& spec, Check& c) {
    const LaunchSpec& launch = spec.launch;
    check_size(launch, spec_strings_max + spec_added_strings_max,
               spec_bytes_max + spec_added_bytes_max, c);
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
