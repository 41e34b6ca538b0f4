// SPDX-License-Identifier: GPL-2.0-or-later
// A look says what processes have open and mapped, as the kernel tells it to who may trace them. A
// process with that right takes the look, and others read it as text. So a look has all that they
// need, and they need no right themselves.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

inline constexpr size_t maps_bytes_max = 64 << 20;

// A look always has the number and the name of each open file. `files_max` bounds the files of all
// processes together.
struct LookFor {
    bool states = false;  // what each file is; also of the program and the directories
    bool mapped = false;  // the files that are mapped too; with `states`
    bool kinds = false;   // of which kind pipes, sockets and the like are
    bool infos = false;   // how each is open, and whether it is locked
    bool maps = false;    // the text of /proc/PID/maps
    bool sums = false;    // the text of /proc/PID/smaps_rollup
    // The processes are not stopped. A question about their memory may then wait until a system
    // call of theirs ends.
    bool runs = false;
    uint32_t files_max = UINT32_MAX;
    bool operator==(const LookFor&) const = default;
};

struct SeenFile {
    std::string place;   // "fd 3", "exe", "cwd", "root"; of a mapping "map"
    std::string target;  // as /proc/PID/fd has it
    bool queue = false;  // a POSIX message queue, which looks like a file in /
    // These are told with `kinds`.
    bool packets = false;  // a pipe that keeps each write apart (O_DIRECT)
    bool wakes = false;    // a timerfd that wakes the machine (CLOCK_REALTIME_ALARM)
    bool thread = false;   // a pidfd of a thread (PIDFD_THREAD)
    std::string protocol;  // of a socket: the kernel's name of it ("TCP", "UNIX-STREAM", "MPTCP")
    // These are told with `states`, if the file has a name that begins with '/'.
    bool known = false;
    uint32_t mode = 0, links = 0;
    uint64_t device = 0, inode = 0, rdev = 0;
    uint64_t mount = 0;  // its number in /proc/PID/mountinfo; 0: not told
    // These are told with `infos`.
    uint32_t flags = 0;  // of open(2)
    bool locked = false;
    bool operator==(const SeenFile&) const = default;
};

struct SeenProcess {
    pid_t pid = 0;  // as it was asked for
    int error = 0;  // why nothing is known of what it has open
    std::string maps, sums;
    std::string spaces;  // with `kinds`: its namespaces, as "mnt:[4026531841] pid:[...] ..."
    std::vector<SeenFile> files;
    bool operator==(const SeenProcess&) const = default;
};

// These are upper bounds for one look at a job: files that are open and mapped (once a process),
// and bytes of what /proc/PID/maps says.
struct LookMost {
    uint32_t files = 1 << 19;
    size_t maps_bytes = 128 << 20;
};

// `proc`: a /proc, which has them by these numbers. Who has ended has an error. EFBIG: they have
// more than is looked at. Waits for no file system of theirs, but in what is asked of memory for
// one of them that changes its mappings or its program, which may wait for one.
Result<std::vector<SeenProcess>> look_at_processes(int proc, const std::vector<pid_t>& pids,
                                                   const LookFor& what, LookMost most = {});

std::string encode_look(const std::vector<SeenProcess>& look);
Result<std::vector<SeenProcess>> decode_look(std::string_view text);

// pid inside the innermost namespace -> pid here.
using PidsInside = std::map<pid_t, pid_t>;
// Looks at processes of one job. The answer has their numbers inside.
using LookAt =
    std::function<Result<std::vector<SeenProcess>>(const PidsInside& pids, const LookFor& what)>;
// Looks at processes by their numbers here. Needs the right to trace them.
Result<std::vector<SeenProcess>> look_from_here(const PidsInside& pids, const LookFor& what);

// A file of /proc, or an anonymous one, that is open: from its beginning.
Result<std::string> read_whole(int file, const std::string& what, size_t bytes_max);

// The ranges of a /proc/PID/maps that have a file: their names in /proc/PID/map_files, and what the
// table says of the file. Pure.
struct MappedRange {
    std::string name;
    std::string_view file;  // device, inode and path
};
std::vector<MappedRange> mapped_ranges(std::string_view maps);

}  // namespace souk
