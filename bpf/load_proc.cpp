// SPDX-License-Identifier: GPL-2.0-or-later
#include "bpf/load_proc.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "kernel/base/number.hpp"

namespace souk {
namespace {

Nanos of_ticks(long long ticks) { return Nanos{ticks * (1'000'000'000 / ::sysconf(_SC_CLK_TCK))}; }

// utime and stime of a process with all of its threads; zero: it has ended.
Nanos process_run(pid_t pid) {
    const auto text = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/stat");
    const size_t name_end = text ? text->rfind(')') : std::string::npos;
    if (name_end == std::string::npos) return {};
    long long user = 0, system = 0;
    const int got =
        std::sscanf(text->c_str() + name_end,
                    ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld", &user, &system);
    return got == 2 ? of_ticks(user + system) : Nanos{};
}

std::vector<pid_t> children_of(const std::string& process) {
    std::vector<pid_t> all;
    const auto tasks = open_at(AT_FDCWD, "/proc/" + process + "/task", O_RDONLY | O_DIRECTORY);
    const auto threads = tasks ? list_dir(tasks->get(), ".") : fail("");
    if (!threads) return all;
    for (const std::string& thread : *threads) {
        const auto text = read_file(tasks->get(), thread + "/children");
        std::istringstream words(text ? *text : std::string());
        for (pid_t pid = 0; words >> pid;) all.push_back(pid);
    }
    return all;
}

// All threads of the kernel are children of one of them, which stands there by its name.
std::vector<pid_t> kernel_threads() {
    const auto name = read_file(AT_FDCWD, "/proc/2/comm");
    return name && *name == "kthreadd\n" ? children_of("2") : std::vector<pid_t>();
}

Nanos used(int who) {
    rusage usage{};
    ::getrusage(who, &usage);
    const auto of = [](const timeval& t) {
        return Nanos{int64_t{t.tv_sec} * 1'000'000'000 + int64_t{t.tv_usec} * 1'000};
    };
    return of(usage.ru_utime) + of(usage.ru_stime);
}

// schedstat: "run_ns wait_ns slices". -1 if the thread is gone.
int64_t thread_wait_ns(int proc, const std::string& thread) {
    const auto text = read_file(proc, thread + "/schedstat");
    if (!text) return -1;
    const size_t blank = text->find(' ');
    if (blank == std::string::npos) return -1;
    return leading_number<int64_t>(std::string_view(*text).substr(blank + 1)).value_or(-1);
}

}  // namespace

Result<Nanos> machine_run() {
    const auto text = read_file(AT_FDCWD, "/proc/stat");
    long long user = 0, nice = 0, system = 0;
    if (!text || std::sscanf(text->c_str(), "cpu %lld %lld %lld", &user, &nice, &system) != 3)
        return fail("read /proc/stat: no line of all CPUs");
    return of_ticks(user + nice + system);
}

Nanos system_run() {
    Nanos all = used(RUSAGE_SELF) + used(RUSAGE_CHILDREN);
    for (const pid_t pid : kernel_threads()) all += process_run(pid);
    for (const pid_t pid : children_of("self")) all += process_run(pid);
    return all;
}

Result<GroupLoad::Sample> GroupLoad::read() {
    TRY_ASSIGN(const Nanos run, group_.cpu_time());
    total_.run = std::max(total_.run, run - start_);
    TRY_ASSIGN(const std::vector<pid_t> pids, group_.pids());
    std::map<pid_t, int64_t> seen;
    for (const pid_t pid : pids) {
        const auto tasks =
            open_at(AT_FDCWD, "/proc/" + std::to_string(pid) + "/task", O_RDONLY | O_DIRECTORY);
        if (!tasks) continue;  // it has just ended
        const auto threads = list_dir(tasks->get(), ".");
        if (!threads) continue;
        for (const std::string& thread : *threads) {
            const int64_t wait_ns = thread_wait_ns(tasks->get(), thread);
            if (wait_ns < 0) continue;
            const pid_t tid = whole_number<pid_t>(thread).value_or(0);
            seen[tid] = wait_ns;
            if (const auto before = wait_ns_.find(tid); before != wait_ns_.end())
                total_.wait.ns += std::max<int64_t>(0, wait_ns - before->second);
        }
    }
    wait_ns_ = std::move(seen);
    return total_;
}

}  // namespace souk
