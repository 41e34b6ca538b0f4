// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/notify.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "tools/srun/wait.hpp"

namespace souk::tools {
namespace {

// An agentd that is started anew, or upgraded, is back by then.
constexpr Nanos agentd_away_max = Nanos::from_s(600);

// Has no terminal and keeps no file of srun's open, so that nobody waits for this process.
void leave_terminal() {
    (void)::setsid();
    const int null = ::open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) (void)::dup2(null, fd);
    ::syscall(SYS_close_range, 3U, ~0U, 0U);
}

[[noreturn]] void wait_and_run(SrunOptions options, const std::string& socket,
                               const std::vector<JobId>& jobs) {
    options.quiet = true;
    options.json = false;
    options.patience = agentd_away_max;
    int greatest = 0;
    size_t failed = 0;
    std::string why;
    for (const JobId& id : jobs) {
        const auto status = wait_for_jobs(options, socket, {id});
        if (!status) why = status.error().message;
        if (!status) break;
        greatest = std::max(greatest, *status);
        failed += *status != 0;
    }
    const auto set = [](const char* name, const std::string& value) {
        (void)::setenv(name, value.c_str(), 1);
    };
    set("SOUK_JOB_ID", jobs.front().text());
    set("SOUK_JOB_NAME", options.name);
    set("SOUK_JOBS", std::to_string(jobs.size()));
    set("SOUK_FAILED", std::to_string(failed));
    set("SOUK_EXIT", why.empty() ? std::to_string(greatest) : "");
    set("SOUK_WHY", why);
    ::execl("/bin/sh", "sh", "-c", options.notify.c_str(), nullptr);
    ::_exit(127);
}

}  // namespace

Status notify_at_end(const SrunOptions& options, const std::string& socket,
                     const std::vector<JobId>& jobs) {
    if (options.notify.empty() || jobs.empty()) return {};
    const pid_t pid = ::fork();
    if (pid < 0)
        return fail_errno("--notify: start a process; job " + jobs.front().text() + " goes on",
                          errno);
    if (pid > 0) return {};
    leave_terminal();
    wait_and_run(options, socket, jobs);
}

}  // namespace souk::tools
