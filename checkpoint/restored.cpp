// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/restored.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "checkpoint/core_image.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

// Numbers inside; none of who came from outside, and no souk-init.
Result<std::vector<CapsuleProcess>> restored(const Capsule& capsule) {
    TRY_ASSIGN(auto all, capsule_processes(capsule));
    std::erase_if(all, [](const CapsuleProcess& p) {
        return p.pid == 1 || p.parent == 0 || p.state == 'Z' || p.state == 'X';
    });
    return all;
}

Status check_thread(int process, const std::string& task, const CriuUser& user) {
    TRY_ASSIGN(const std::string status, read_file(process, "task/" + task + "/status"));
    TRY_ASSIGN(const Credentials is, parse_status(status));
    TRY(fits_user({true, true, is}, user));
    return is.no_new_privs ? Status{} : fail("it could gain privileges");
}

// A terminal that was closed has no name any more either.
bool is_terminal(const struct stat& st) {
    constexpr unsigned first = 136, last = 143;  // linux/major.h: UNIX98_PTY_SLAVE_MAJOR
    return S_ISCHR(st.st_mode) && major(st.st_rdev) >= first && major(st.st_rdev) <= last;
}

Status check_devices(int process) {
    TRY_ASSIGN(const auto names, list_dir(process, "fd"));
    for (const std::string& name : names) {
        struct stat st {};
        if (::fstatat(process, ("fd/" + name).c_str(), &st, 0) != 0) continue;
        if ((S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) && st.st_nlink == 0 && !is_terminal(st))
            return fail("it has a device open that has no name");
    }
    return {};
}

Status check_process(int process, const CriuUser& user) {
    TRY_ASSIGN(const auto tasks, list_dir(process, "task"));
    for (const std::string& task : tasks) TRY(check_thread(process, task, user));
    return check_devices(process);
}

}  // namespace

Status check_restored(const Capsule& capsule, const CriuUser& user) {
    if (user.uid == 0) return {};
    TRY_ASSIGN(const auto all, restored(capsule));
    TRY_ASSIGN(const Fd proc, capsule.open_inside("/proc", O_RDONLY | O_DIRECTORY));
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
void kill_restored(const Capsule& capsule) {
    const auto all = restored(capsule);
    const auto proc = capsule.open_inside("/proc", O_RDONLY | O_DIRECTORY);
    if (!all || !proc) return;
    for (const CapsuleProcess& p : *all) {
        const auto process = open_at(proc->get(), std::to_string(p.pid), O_RDONLY | O_DIRECTORY);
        if (process) ::syscall(SYS_pidfd_send_signal, process->get(), SIGKILL, nullptr, 0);
    }
}

}  // namespace souk
