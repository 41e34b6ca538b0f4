// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/restored.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <sstream>

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

// A process of the capsule has the first ones in common with its souk-init. CRIU may have made
// others of the last two for it, which are nobody's but its own.
constexpr const char* shared_namespaces[] = {"ns/mnt", "ns/net", "ns/pid", "ns/user", "ns/cgroup"};
constexpr const char* own_namespaces[] = {"ns/ipc", "ns/uts"};

std::string link_of(int directory, const std::string& name) {
    char target[256];
    const ssize_t n = ::readlinkat(directory, name.c_str(), target, sizeof target);
    return n > 0 ? std::string(target, static_cast<size_t>(n)) : std::string();
}

// One line of a file of /proc/PID; empty: the kernel has none.
std::string line_of(int process, const char* name) {
    std::string text = read_file(process, name).value_or("");
    while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
    return text;
}

// Returns the inodes of sockets that only root makes, as /proc/PID/net has them. A kernel without
// such a kind of sockets lacks its table.
Result<std::set<std::string>> special_sockets(int process) {
    constexpr size_t table_max = 256 << 20;
    std::set<std::string> inodes;
    for (const auto& [table, column] :
         {std::pair{"net/packet", 8}, {"net/raw", 9}, {"net/raw6", 9}}) {
        const auto read = read_file(process, table, table_max);
        if (!read && read.error().code != ENOENT) return tl::unexpected(read.error());
        const std::string text = read.value_or("");
        for (size_t at = text.find('\n'); at < text.size() && at + 1 < text.size();
             at = text.find('\n', at + 1)) {
            std::istringstream words(text.substr(at + 1, text.find('\n', at + 1) - at - 1));
            std::string word;
            for (int i = 0; i <= column; ++i) words >> word;
            inodes.insert("socket:[" + word + "]");
        }
    }
    return inodes;
}

// Tells whether the job's user could have opened that himself. A namespace must be one of
// souk-init's or of the process itself.
bool is_usual(const std::string& target, int process, int init) {
    constexpr std::string_view kinds[] = {"/",
                                          "pipe:[",
                                          "socket:[",
                                          "(unreachable)",
                                          "anon_inode:[eventpoll]",
                                          "anon_inode:[eventfd]",
                                          "anon_inode:[signalfd]",
                                          "anon_inode:[timerfd]",
                                          "anon_inode:[pidfd]",
                                          "anon_inode:inotify",
                                          "pidfd:["};
    const auto begins = [&](std::string_view kind) { return target.starts_with(kind); };
    const auto is_of_init = [&](const char* name) { return link_of(init, name) == target; };
    const auto is_either = [&](const char* name) {
        return is_of_init(name) || link_of(process, name) == target;
    };
    return std::ranges::any_of(kinds, begins) ||
           std::ranges::any_of(shared_namespaces, is_of_init) ||
           std::ranges::any_of(own_namespaces, is_either);
}

Status check_descriptors(int process, int init) {
    TRY_ASSIGN(const auto names, list_dir(process, "fd"));
    std::optional<std::set<std::string>> special;
    for (const std::string& name : names) {
        const std::string target = link_of(process, "fd/" + name);
        if (target.empty()) continue;
        if (!is_usual(target, process, init))
            return fail("it has something open that is none of a user's: " + target);
        if (!target.starts_with("socket:[")) continue;
        if (!special) {
            TRY_ASSIGN(special, special_sockets(process));
        }
        if (special->contains(target)) return fail("it has a socket that only root can make");
    }
    return check_devices(process);
}

// Session and group have numbers inside, or it would be in those of whoever made it. A node's
// records say whose login something comes from, and its policy which label it has.
Status check_place(int process, int init) {
    for (const char* name : shared_namespaces)
        if (link_of(process, name) != link_of(init, name))
            return fail("it is in a namespace that is not the capsule's: " +
                        link_of(process, name));
    for (const char* name : own_namespaces) {
        const std::string its = link_of(process, name);
        if (its != link_of(init, name) &&
            its == link_of(AT_FDCWD, std::string("/proc/self/") + name))
            return fail("it is in a namespace of the node's: " + its);
    }
    const std::string stat = line_of(process, "stat");
    int group = 0, session = 0;
    const size_t at = stat.rfind(')');
    if (at == stat.npos ||
        std::sscanf(stat.c_str() + at, ") %*c %*d %d %d", &group, &session) != 2 || group == 0 ||
        session == 0)
        return fail("it is in a session of another capsule's");
    if (line_of(process, "loginuid") != line_of(init, "loginuid"))
        return fail("it would count as somebody else's login");
    const std::string label = line_of(process, "attr/current"), own = line_of(init, "attr/current");
    return own == "unconfined" || label == own ? Status{}
                                               : fail("it would have the label " + label);
}

Status check_process(int process, int init, const CriuUser& user) {
    TRY_ASSIGN(const auto tasks, list_dir(process, "task"));
    for (const std::string& task : tasks) TRY(check_thread(process, task, user));
    TRY(check_place(process, init));
    return check_descriptors(process, init);
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
    TRY_ASSIGN(const Fd first, open_at(proc.get(), "1", O_RDONLY | O_DIRECTORY));
    for (const CapsuleProcess& p : all) {
        TRY_ASSIGN(const Fd process,
                   open_at(proc.get(), std::to_string(p.pid), O_RDONLY | O_DIRECTORY));
        if (auto fits = check_process(process.get(), first.get(), user); !fits)
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
        // `may` can be higher than a limit of 0 (RLIMIT_CORE). If this daemon may not raise the
        // limit, it stays 0.
        if (::prlimit(pid, which, &may, nullptr) != 0 && now.rlim_max > may.rlim_max)
            return fail_errno("lower " + what, errno);
    }
    return {};
}

}  // namespace souk
