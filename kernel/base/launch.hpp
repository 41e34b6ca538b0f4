// SPDX-License-Identifier: GPL-2.0-or-later
// A LaunchSpec says which program to run, and as whom; it is the one description of a program to
// start. It is part of a JobSpec (agentd/core/messages.hpp), which is stored and sent. A capsule
// starts it (kernel/sys/process/init_codec.hpp), and gets no other part of the job. Its list of
// fields is in value_fields.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace souk {

struct ResourceLimit {
    int32_t resource = 0;  // RLIMIT_*
    uint64_t soft = 0, hard = 0;
    bool operator==(const ResourceLimit&) const = default;
};

// The submitter had all this when srun took it; the kernel named the credentials.
struct LaunchSpec {
    std::vector<std::string> argv;  // at least one; argv[0] as the user typed it
    std::string path;               // absolute path of the program
    std::vector<std::string> env;
    std::string cwd;
    uint32_t umask = 022;
    std::vector<ResourceLimit> rlimits;
    uint32_t uid = 0, gid = 0;
    std::vector<uint32_t> groups;
    bool tty = false;  // a terminal of its own; else three pipes
    uint16_t rows = 24, cols = 80;
    bool operator==(const LaunchSpec&) const = default;
};

// A job runs as this user on the nodes, once one node has said so. Its memory and files are that
// user's, and an image names the user by number, so the job goes where its user is the same.
struct RunsAs {
    bool known = false;
    uint32_t uid = 0, gid = 0;
    std::vector<uint32_t> groups;
    bool operator==(const RunsAs&) const = default;
};

// No user has this number. To the kernel it means "as before", so that a process that asks for it
// would stay root.
inline constexpr uint32_t no_id = UINT32_MAX;

}  // namespace souk
