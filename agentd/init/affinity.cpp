// SPDX-License-Identifier: GPL-2.0-or-later
// CPU affinity, which CRIU does not carry: of each thread of the job that has one of its own, as
// records {tid, mask}.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agentd/init/init.hpp"

namespace souk::init {
namespace {
struct Record {
    int32_t tid;
    cpu_set_t cpus;
};

// Calls `visit` for each number that names an entry of the directory; stops when it returns false.
template <class Visit>
bool each_number(const char* path, Visit visit) {
    DIR* dir = opendir(path);
    if (!dir) return true;  // the process has just ended
    bool good = true;
    while (struct dirent* entry = good ? readdir(dir) : nullptr)
        if (const int number = atoi(entry->d_name); number > 0) good = visit(number);
    closedir(dir);
    return good;
}
}  // namespace

const char* affinity_save(int image_dir) {
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) != 0) return "ask for the CPU affinity";
    int out = -1;
    const bool good = each_number("/proc", [&](int pid) {
        if (pid == 1 || !of_the_job(pid)) return true;
        char tasks[32];
        snprintf(tasks, sizeof tasks, "/proc/%d/task", pid);
        return each_number(tasks, [&](int tid) {
            Record r = {tid, {}};
            if (sched_getaffinity(tid, sizeof r.cpus, &r.cpus) != 0 || CPU_EQUAL(&r.cpus, &own))
                return true;
            if (out < 0) out = create_at(image_dir, SOUK_AFFINITY_NAME, O_TRUNC);
            return out >= 0 && write_all(out, &r, sizeof r);
        });
    });
    const int code = errno;
    if (out >= 0) close(out);
    errno = code;
    return good ? nullptr : "write the CPU affinity";
}

// A machine with other CPUs may have none of them: then the thread stays free to run anywhere.
void affinity_restore(int file) {
    Record r;
    while (read_all(file, &r, sizeof r))
        if (sched_setaffinity(r.tid, sizeof r.cpus, &r.cpus) != 0 && errno != EINVAL)
            say("set the CPU affinity", errno);
}

}  // namespace souk::init
