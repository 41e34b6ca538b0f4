// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/movable.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>

#include "kernel/base/cause.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/net/tcp_table.hpp"

namespace souk {
namespace {
struct Kind {
    std::string_view prefix;
    CauseCode code;
};
// CRIU 4.2 refuses each of these.
constexpr std::array kinds = {
    Kind{"anon_inode:[io_uring]", CauseCode::holds_io_uring},
    Kind{"anon_inode:[userfaultfd]", CauseCode::holds_userfaultfd},
    Kind{"anon_inode:[perf_event]", CauseCode::holds_perf_event},
    Kind{"anon_inode:bpf", CauseCode::holds_bpf},
    Kind{"anon_inode:kvm", CauseCode::holds_virtual_machine},
    Kind{"/dev/kvm", CauseCode::holds_virtual_machine},
    Kind{"/dev/fuse", CauseCode::holds_fuse_device},
    Kind{"/secretmem", CauseCode::holds_secret_memory},
    Kind{"/dev/nvidia", CauseCode::holds_gpu},
    Kind{"/dev/dri/", CauseCode::holds_gpu},
    Kind{"/dev/kfd", CauseCode::holds_gpu},
};

std::string named(const CapsuleProcess& p) {
    return "process " + std::to_string(p.pid) + " (" + p.name + ")";
}

bool traced(int proc, pid_t pid) {
    const auto status = read_file(proc, std::to_string(pid) + "/status");
    if (!status) return false;
    const size_t line = status->find("\nTracerPid:\t");
    return line != std::string::npos && status->compare(line + 12, 2, "0\n") != 0;
}

// A thread that is not about to end: no SIGKILL waits for it, and the kernel has not begun to end
// it.
bool thread_lives(int proc, const std::string& directory) {
    constexpr unsigned exiting = 4;  // include/linux/sched.h, PF_EXITING
    constexpr std::string_view key = "\nSigPnd:\t";
    const auto status = read_file(proc, directory + "/status");
    const auto stat = read_proc_stat(proc, directory);
    const size_t pending = status ? status->find(key) : std::string::npos;
    if (!stat || pending == std::string::npos) return false;
    const auto signals =
        leading_number<uint64_t>(std::string_view(*status).substr(pending + key.size()), 16);
    if (signals.value_or(0) >> (SIGKILL - 1) & 1) return false;
    return stat->state != 'Z' && stat->state != 'X' && (stat->flags & exiting) == 0;
}

// A process that CRIU does not take: its first thread has ended and another goes on. (All of them
// end one by one too.)
bool goes_on_headless(int proc, const CapsuleProcess& p) {
    if (p.state != 'Z' || p.threads < 2) return false;
    const std::string directory = std::to_string(p.pid) + "/task";
    const auto names = list_dir(proc, directory);
    return names && std::any_of(names->begin(), names->end(), [&](const std::string& name) {
               return thread_lives(proc, directory + "/" + name);
           });
}

// A POSIX message queue looks like a file in /: "/name".
bool is_message_queue(int proc, const std::string& file, std::string_view target) {
    constexpr long mqueue_magic = 0x19800202;  // linux/magic.h has it from 6.6 on
    if (target.size() < 2 || target[0] != '/' || target.find('/', 1) != target.npos) return false;
    const Fd fd(::openat(proc, file.c_str(), O_PATH | O_CLOEXEC));
    struct statfs fs {};
    return fd && ::fstatfs(fd.get(), &fs) == 0 && fs.f_type == mqueue_magic;
}

// "0100007F:1F90" of the kernel's tables: 32-bit words as they lie in memory.
std::string address_text(std::string_view hex) {
    const size_t colon = hex.find(':');
    std::array<uint32_t, 4> words{};
    const auto port = colon == 8 || colon == 32
                          ? leading_number<uint32_t>(hex.substr(colon + 1), 16)
                          : std::nullopt;
    if (!port) return std::string(hex);
    for (size_t i = 0; i < colon / 8; ++i)
        words[i] = leading_number<uint32_t>(hex.substr(i * 8, 8), 16).value_or(0);
    char text[INET6_ADDRSTRLEN] = {};
    ::inet_ntop(colon == 8 ? AF_INET : AF_INET6, words.data(), text, sizeof text);
    const std::string host = text;
    return (colon == 8 ? host : "[" + host + "]") + ":" + std::to_string(*port);
}

// Of the process's network namespace, read when the first socket is met.
struct TcpTables {
    std::string text[2];
    bool read = false;
    std::string peer(int proc, pid_t pid, std::string_view inode) {
        constexpr size_t bytes_max = 16 << 20;
        constexpr std::array names = {"/net/tcp", "/net/tcp6"};
        for (size_t i = 0; i < names.size() && !read; ++i)
            text[i] = read_file(proc, std::to_string(pid) + names[i], bytes_max).value_or("");
        read = true;
        const std::string v4 = tcp_peer(text[0], inode);
        return v4.empty() ? tcp_peer(text[1], inode) : v4;
    }
};
}  // namespace

std::string tcp_peer(std::string_view table, std::string_view inode) {
    for (TcpRow row; take_tcp_row(table, row);) {
        if (row.inode != inode) continue;
        using namespace tcp_state;
        for (const std::string_view none : {syn_received, time_wait, closed, listening})
            if (row.state == none) return {};
        return address_text(row.remote);
    }
    return {};
}

CauseCode unmovable_file(std::string_view target) {
    for (const Kind& kind : kinds)
        if (target.starts_with(kind.prefix)) return kind.code;
    return CauseCode::none;
}

namespace {

// What one process has open.
struct Looker {
    int proc;
    TcpPolicy tcp;
    size_t files_max;
    std::string_view stays = {};  // it does not move with a file of that directory
    size_t files = 0;
    TcpTables connections = {};

    Status look_at_file(const CapsuleProcess& p, const std::string& directory,
                        const std::string& name) {
        char target[64];
        const ssize_t n =
            ::readlinkat(proc, (directory + "/" + name).c_str(), target, sizeof target);
        if (n <= 0) return {};
        const std::string_view file(target, static_cast<size_t>(n));
        CauseCode what = unmovable_file(file);
        if (what == CauseCode::none && is_message_queue(proc, directory + "/" + name, file))
            what = CauseCode::holds_message_queue;
        if (what != CauseCode::none)
            return fail_because(what, {{"process", named(p)}, {"file", name}});
        TRY(look_whether_it_stays(p, directory + "/" + name, name, file));
        if (tcp != TcpPolicy::refuse || !file.starts_with("socket:[")) return {};
        const auto peer = connections.peer(proc, p.pid, file.substr(8, file.size() - 9));
        if (peer.empty()) return {};
        return fail_because(CauseCode::holds_connection,
                            {{"process", named(p)}, {"peer", peer}, {"file", name}});
    }

    // A file without a name goes along.
    Status look_whether_it_stays(const CapsuleProcess& p, const std::string& link,
                                 const std::string& name, std::string_view file) const {
        struct stat st {};
        if (stays.empty() || !file.starts_with(stays) ||
            (file.size() > stays.size() && file[stays.size()] != '/') ||
            ::fstatat(proc, link.c_str(), &st, 0) != 0 || st.st_nlink == 0)
            return {};
        const std::string_view inside = stays.substr(stays.rfind('/'));
        return fail_because(CauseCode::holds_node_file,
                            {{"process", named(p)}, {"path", std::string(inside)}, {"file", name}});
    }

    Status look(const CapsuleProcess& p) {
        if (goes_on_headless(proc, p))
            return fail_because(CauseCode::first_thread_ended, {{"process", named(p)}});
        if (p.state == 'Z') return {};
        if (traced(proc, p.pid)) return fail_because(CauseCode::is_traced, {{"process", named(p)}});
        const std::string directory = std::to_string(p.pid) + "/fd";
        const auto names = list_dir(proc, directory);
        if (!names && names.error().code != ENOENT && names.error().code != ESRCH)
            return wrap("look at what " + named(p) + " has open", names.error());
        if (!names) return {};  // it ended meanwhile
        char cwd[64];
        const std::string link = std::to_string(p.pid) + "/cwd";
        const ssize_t n = stays.empty() ? 0 : ::readlinkat(proc, link.c_str(), cwd, sizeof cwd);
        if (n > 0) TRY(look_whether_it_stays(p, link, "cwd", {cwd, static_cast<size_t>(n)}));
        for (const std::string& name : *names) {
            if (++files > files_max) return {};
            TRY(look_at_file(p, directory, name));
        }
        return {};
    }
};

}  // namespace

Status check_movable(const Capsule& capsule, pid_t root, TcpPolicy tcp, size_t files_max,
                     std::string_view stays) {
    TRY_ASSIGN(const auto processes, capsule_processes(capsule));
    TRY(check_movable(processes, root));
    TRY_ASSIGN(const Fd proc, capsule.open_inside("/proc", O_RDONLY | O_DIRECTORY));
    Looker looker{proc.get(), tcp, files_max, stays};
    for (const CapsuleProcess& p : processes)
        if (p.pid != 1 && p.parent != 0)  // souk-init, and who came from outside
            TRY(looker.look(p));
    return {};
}

Status check_movable_here(pid_t root, TcpPolicy tcp, size_t files_max) {
    TRY_ASSIGN(const Fd proc, open_at(AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(const auto names, list_dir(proc.get(), "."));
    std::map<pid_t, std::vector<CapsuleProcess>> children;
    std::vector<CapsuleProcess> tree;
    for (const std::string& name : names) {
        const auto pid = whole_number<pid_t>(name);
        if (!pid) continue;
        const auto stat = read_proc_stat(proc.get(), name);
        if (!stat) continue;  // it ended meanwhile
        const CapsuleProcess p{
            *pid,          stat->parent,         stat->state,          stat->name,
            stat->threads, stat->reserved_bytes, stat->resident_pages, stat->session};
        if (*pid == root)
            tree.push_back(p);
        else
            children[p.parent].push_back(p);
    }
    if (tree.empty())
        return tl::unexpected(Error{ESRCH, "there is no process " + std::to_string(root)});
    for (size_t i = 0; i < tree.size(); ++i)
        for (const CapsuleProcess& p : children[tree[i].pid]) tree.push_back(p);
    Looker looker{proc.get(), tcp, files_max};
    for (const CapsuleProcess& p : tree) TRY(looker.look(p));
    return {};
}

Result<bool> holds_locks(const Capsule& capsule, const std::vector<CapsuleProcess>& processes) {
    TRY_ASSIGN(const Fd proc, capsule.open_inside("/proc", O_RDONLY | O_DIRECTORY));
    for (const CapsuleProcess& p : processes) {
        if (p.pid == 1 || p.parent == 0 || p.state == 'Z') continue;
        const std::string directory = std::to_string(p.pid) + "/fdinfo";
        const auto names = list_dir(proc.get(), directory);
        if (!names) continue;
        for (const std::string& name : *names) {
            const auto info = read_file(proc.get(), directory + "/" + name);
            if (info && info->find("\nlock:\t") != std::string::npos) return true;
        }
    }
    return false;
}

}  // namespace souk
