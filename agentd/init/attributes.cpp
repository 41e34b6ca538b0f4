// SPDX-License-Identifier: GPL-2.0-or-later
// Attributes of processes that CRIU does not carry, as records beside the image: the CPU affinity
// of each thread that has one of its own ({tid, mask}; set here again), and what else a process has
// that a new one has not (souk_attributes; a CRIU that restores sets it,
// checkpoint/criu_attributes.c). A thread has a record of its own for what is its own: its I/O
// priority and the slack of its timers.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agentd/init/init.hpp"
#include "agentd/init/records.hpp"

namespace souk::init {
namespace {

struct Record {
    int32_t tid;
    cpu_set_t cpus;
};

constexpr unsigned long usual_slack = 50'000, usual_filter = 0x33;

// Reads a file of /proc/PID that says one number; false: the process has just ended, or the kernel
// has no such file.
bool value_of(int pid, const char* name, int base, unsigned long* value) {
    char path[48], text[32] = {};
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    *value = strtoul(text, nullptr, base);
    return n > 0;
}

// The kernel says a priority also for who has none of its own: that of its nice value.
int own_io_priority(int pid) {
    enum { of_process = 1, best_effort = 2 << 13 };
    const long priority = syscall(SYS_ioprio_get, of_process, pid);
    errno = 0;
    const int nice = getpriority(PRIO_PROCESS, static_cast<id_t>(pid));
    const long usual = best_effort | (nice + 20) / 5;
    constexpr long own_class = ~0L << 13;
    return priority < 0 || (priority & own_class) == 0 || priority == usual
               ? 0
               : static_cast<int>(priority);
}

// Rounds to the nearest second, so that the error is as often in the job's favour as not.
uint64_t left_of(rlim_t limit, uint64_t used) {
    if (limit == RLIM_INFINITY) return limit;
    return limit > used + 1 ? limit - used : 1;
}

void cpu_limit(int pid, souk_attributes* a) {
    struct rlimit limit;
    if (prlimit(pid, RLIMIT_CPU, nullptr, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    // The clock of the process that RLIMIT_CPU goes by: of user and system time
    // (include/linux/posix-timers.h, CPUCLOCK_PROF).
    const clockid_t clock = static_cast<clockid_t>(~static_cast<unsigned>(pid) << 3);
    struct timespec used;
    if (clock_gettime(clock, &used) != 0) return;
    const auto seconds = static_cast<uint64_t>(used.tv_sec) + (used.tv_nsec >= 500'000'000 ? 1 : 0);
    a->cpu_soft = left_of(limit.rlim_cur, seconds);
    a->cpu_hard = left_of(limit.rlim_max, seconds);
}

// The numbers are the 38th and the 52nd field of /proc/PID/stat, and the second, the name, ends
// with the last bracket. A zombie is made anew by CRIU, which waits for it by SIGCHLD.
void end_of(int pid, souk_attributes* a) {
    char path[32], text[1024] = {};
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    const char* at = n > 0 ? strrchr(text, ')') : nullptr;
    const bool ended = at && strncmp(at, ") Z", 3) == 0;
    for (int field = 2; at && field < (ended ? 52 : 38); ++field) at = strchr(at + 1, ' ');
    if (!at) return;
    const long value = strtol(at, nullptr, 10);
    if (ended)
        a->exit_status = (value & 0x7f) == 0 && (value & 0x8000) != 0  // CRIU keeps the others
                             ? static_cast<uint8_t>(value >> 8)
                             : 0;
    else
        a->exit_signal = value == SIGCHLD ? 0 : value == 0 ? -1 : static_cast<int16_t>(value);
}

souk_attributes attributes_of_thread(int tid) {
    souk_attributes a = {};
    a.pid = tid;
    unsigned long value;
    if (value_of(tid, "timerslack_ns", 10, &value) && value != usual_slack) a.timer_slack = value;
    a.io_priority = own_io_priority(tid);
    return a;
}

souk_attributes attributes_of(int pid) {
    souk_attributes a = attributes_of_thread(pid);
    unsigned long value;
    if (value_of(pid, "personality", 16, &value)) a.personality = static_cast<uint32_t>(value);
    if (value_of(pid, "coredump_filter", 16, &value) && value != usual_filter) {
        a.has_core_filter = 1;
        a.core_filter = value;
    }
    cpu_limit(pid, &a);
    end_of(pid, &a);
    return a;
}

bool save_affinity(int pid, const cpu_set_t& own, Records* out) {
    char tasks[32];
    snprintf(tasks, sizeof tasks, "/proc/%d/task", pid);
    return each_number(tasks, [&](int tid) {
        Record r = {tid, {}};
        if (sched_getaffinity(tid, sizeof r.cpus, &r.cpus) != 0 || CPU_EQUAL(&r.cpus, &own))
            return true;
        return out->add(&r, sizeof r);
    });
}

bool save_attributes(int pid, Records* out) {
    char tasks[32];
    snprintf(tasks, sizeof tasks, "/proc/%d/task", pid);
    return each_number(tasks, [&](int tid) {
        const souk_attributes a = tid == pid ? attributes_of(pid) : attributes_of_thread(tid);
        const bool usual = a.personality == 0 && a.timer_slack == 0 && !a.has_core_filter &&
                           a.exit_status == 0 && a.exit_signal == 0 && a.io_priority == 0 &&
                           a.cpu_soft == 0;
        return usual || out->add(&a, sizeof a);
    });
}

}  // namespace

const char* attributes_save(int image_dir) {
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) != 0) return "ask for the CPU affinity";
    Records affinities = {image_dir, SOUK_AFFINITY_NAME},
            attributes = {image_dir, SOUK_ATTRIBUTES_NAME};
    Descriptors open(image_dir);
    const bool good = each_number("/proc", [&](int pid) {
        return pid == 1 || !of_the_job(pid) ||
               (save_affinity(pid, own, &affinities) && save_attributes(pid, &attributes) &&
                open.save(pid));
    });
    return good ? nullptr : "write the attributes of its processes";
}

// A machine with other CPUs may have none of them: then the thread stays free to run anywhere.
void affinity_restore(int file) {
    Record r;
    while (read_all(file, &r, sizeof r))
        if (sched_setaffinity(r.tid, sizeof r.cpus, &r.cpus) != 0 && errno != EINVAL)
            say("set the CPU affinity", errno);
}

}  // namespace souk::init
