// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/process.hpp"

#include "kernel/sys/host/fd.hpp"

namespace souk {

Result<ProcStat> read_proc_stat(int proc, const std::string& directory) {
    const std::string path = directory + "/stat";
    TRY_ASSIGN(const std::string text, read_file(proc, path));
    ProcStat stat;
    if (!parse_proc_stat(text.c_str(), &stat)) return fail(path + ": unexpected text");
    return stat;
}

Result<ProcStat> read_proc_stat(pid_t pid) {
    return read_proc_stat(AT_FDCWD, "/proc/" + std::to_string(pid));
}

Result<ProcessId> process_id(pid_t pid) {
    TRY_ASSIGN(const ProcStat stat, read_proc_stat(pid));
    return ProcessId{pid, stat.start_ticks};
}

}  // namespace souk
