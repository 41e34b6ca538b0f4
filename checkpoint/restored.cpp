// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/restored.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "checkpoint/core_image.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

// Numbers inside; none of who came from outside, and no souk-init.
Result<std::vector<CapsuleProcess>> restored(int proc) {
    TRY_ASSIGN(auto all, capsule_processes(proc));
    std::erase_if(all, [](const CapsuleProcess& p) {
        return p.pid == 1 || p.parent == 0 || p.state == 'Z' || p.state == 'X';
    });
    return all;
}

// CRIU's restorer waits in futex(2), in a mapping that is anonymous, private, writable and
// executable.
bool thread_waits_for_criu(int proc, const std::string& thread) {
    const auto call = read_file(proc, thread + "/syscall");
    const auto maps = read_file(proc, thread + "/maps", 16 << 20);
    long number = 0;
    unsigned long at = 0, start = 0, end = 0, inode = 0;
    if (!call || !maps ||
        std::sscanf(call->c_str(), "%ld %*s %*s %*s %*s %*s %*s %*s %lx", &number, &at) != 2)
        return false;
    if (number != SYS_futex) return false;
    for (size_t line = 0; line < maps->size(); line = maps->find('\n', line) + 1) {
        char rights[5] = {};
        if (std::sscanf(maps->c_str() + line, "%lx-%lx %4s %*x %*s %lu", &start, &end, rights,
                        &inode) != 4)
            return false;
        if (at >= start && at < end) return std::string_view(rights) == "rwxp" && inode == 0;
    }
    return false;
}
Status check_thread(int process, const std::string& task, const CriuUser& user) {
    TRY_ASSIGN(const std::string status, read_file(process, "task/" + task + "/status"));
    TRY_ASSIGN(const Credentials is, parse_status(status));
    TRY(fits_user({true, true, is}, user));
    return is.no_new_privs ? Status{} : fail("it could gain privileges");
}

// A terminal that was closed has no name any more either.
bool is_terminal(const struct statx& st) {
    constexpr unsigned first = 136, last = 143;  // linux/major.h: UNIX98_PTY_SLAVE_MAJOR
    return S_ISCHR(st.stx_mode) && st.stx_rdev_major >= first && st.stx_rdev_major <= last;
}

Status check_process(int process, const CriuUser& user) {
    TRY_ASSIGN(const auto tasks, list_dir(process, "task"));
    for (const std::string& task : tasks) TRY(check_thread(process, task, user));
    return check_devices(process);
}

}  // namespace

Status check_devices(int process) {
    TRY_ASSIGN(const auto names, list_dir(process, "fd"));
    for (const std::string& name : names) {
        struct statx st {};
        if (::statx(process, ("fd/" + name).c_str(), AT_STATX_DONT_SYNC, STATX_TYPE | STATX_NLINK,
                    &st) != 0)
            continue;
        if ((S_ISCHR(st.stx_mode) || S_ISBLK(st.stx_mode)) && st.stx_nlink == 0 && !is_terminal(st))
            return fail("it has a device open that has no name");
    }
    return {};
}

Status check_restored(const Pidfd& init, const CriuUser& user) {
    if (user.uid == 0) return {};
    TRY_ASSIGN(const Fd proc, open_capsule_directory(init, CapsuleDirectory::proc));
    TRY_ASSIGN(const auto all, restored(proc.get()));
    for (const CapsuleProcess& p : all) {
        TRY_ASSIGN(const Fd process,
                   open_at(proc.get(), std::to_string(p.pid), O_RDONLY | O_DIRECTORY));
        if (auto fits = check_process(process.get(), user); !fits)
            return wrap("process " + std::to_string(p.pid) + ", restored for user " +
                            std::to_string(user.uid),
                        fits.error());
    }
    return {};
}

// The directory of a process in /proc stands for it, as a pidfd does (pidfd_send_signal(2)).
void kill_restored(const Pidfd& init) {
    const auto proc = open_capsule_directory(init, CapsuleDirectory::proc);
    const auto all = proc ? restored(proc->get()) : Result<std::vector<CapsuleProcess>>(fail(""));
    if (!all) return;
    for (const CapsuleProcess& p : *all) {
        const auto process = open_at(proc->get(), std::to_string(p.pid), O_RDONLY | O_DIRECTORY);
        if (process) ::syscall(SYS_pidfd_send_signal, process->get(), SIGKILL, nullptr, 0);
    }
}

Status fit_restored(const Pidfd& init, const RestoredJob& job) {
    Status fit = check_restored(init, job.user);
    for (const pid_t pid : job.pids) {
        if (!fit || job.user.uid == 0) break;
        const Status lowered = lower_limits(pid, job.limits);
        if (!lowered && lowered.error().code != ESRCH) fit = lowered;  // else it has ended
    }
    if (!fit) kill_restored(init);
    return fit;
}

Result<bool> restored_waits(const Pidfd& init) {
    TRY_ASSIGN(const Fd proc, open_capsule_directory(init, CapsuleDirectory::proc));
    TRY_ASSIGN(const auto all, restored(proc.get()));
    for (const CapsuleProcess& p : all) {
        const std::string tasks = std::to_string(p.pid) + "/task";
        const auto threads = list_dir(proc.get(), tasks);
        if (!threads) return false;
        for (const std::string& thread : *threads)
            if (!thread_waits_for_criu(proc.get(), tasks + "/" + thread)) return false;
    }
    return !all.empty();
}

rlimit bounded(int resource, const rlimit& wish, uint64_t most) {
    if (resource == RLIMIT_CORE && most == no_core_bytes) return {no_core_bytes, no_core_bytes};
    return {std::min<rlim_t>(wish.rlim_cur, most), std::min<rlim_t>(wish.rlim_max, most)};
}

Status lower_limits(pid_t pid, const std::map<int, uint64_t>& limits_max) {
    for (const auto& [resource, most] : limits_max) {
        rlimit now{};
        const auto which = static_cast<__rlimit_resource>(resource);
        const std::string what =
            "limit " + std::to_string(resource) + " of process " + std::to_string(pid);
        if (::prlimit(pid, which, nullptr, &now) != 0) return fail_errno("read " + what, errno);
        const rlimit may = bounded(resource, now, most);
        if (may.rlim_cur == now.rlim_cur && may.rlim_max == now.rlim_max) continue;
        // Where this daemon may not raise a limit of 0 to that, it stays.
        if (::prlimit(pid, which, &may, nullptr) != 0 && now.rlim_max > may.rlim_max)
            return fail_errno("lower " + what, errno);
    }
    return {};
}

}  // namespace souk
