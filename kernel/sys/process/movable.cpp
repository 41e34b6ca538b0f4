// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/movable.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "kernel/base/number.hpp"

namespace souk {
namespace {
struct Kind {
    std::string_view prefix, name;
};
// CRIU 4.2 refuses each of these.
constexpr std::array kinds = {
    Kind{"anon_inode:[io_uring]", "an io_uring"},
    Kind{"anon_inode:[userfaultfd]", "a userfaultfd"},
    Kind{"anon_inode:[perf_event]", "a perf event"},
    Kind{"anon_inode:bpf", "a BPF object"},
    Kind{"anon_inode:kvm", "a virtual machine"},
    Kind{"/dev/kvm", "a virtual machine"},
    Kind{"/dev/fuse", "a FUSE server's device"},
    Kind{"/secretmem", "secret memory"},
    Kind{"/dev/nvidia", "a GPU"},
    Kind{"/dev/dri/", "a GPU"},
    Kind{"/dev/kfd", "a GPU"},
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
    // proc(5): sl local remote state tx:rx tr:when retransmits uid timeout inode ...
    enum { remote = 2, state = 3, inode_field = 9 };
    for (size_t at = 0; at < table.size();) {
        const size_t end = std::min(table.find('\n', at), table.size());
        std::string_view line = table.substr(at, end - at), fields[inode_field + 1];
        at = end + 1;
        for (std::string_view& field : fields) {
            line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
            field = line.substr(0, line.find(' '));
            line.remove_prefix(field.size());
        }
        if (fields[inode_field] != inode) continue;
        constexpr std::string_view syn_received = "03", time_wait = "06", closed = "07",
                                   listening = "0A";
        for (const std::string_view none : {syn_received, time_wait, closed, listening})
            if (fields[state] == none) return {};
        return address_text(fields[remote]);
    }
    return {};
}

std::string_view unmovable_file(std::string_view target) {
    for (const Kind& kind : kinds)
        if (target.starts_with(kind.prefix)) return kind.name;
    return {};
}

Status check_movable(const Capsule& capsule, pid_t root, TcpPolicy tcp, size_t files_max) {
    TRY_ASSIGN(const auto processes, capsule_processes(capsule));
    TRY(check_movable(processes, root));
    TRY_ASSIGN(const Fd proc, capsule.open_inside("/proc", O_RDONLY | O_DIRECTORY));
    size_t files = 0;
    TcpTables connections;
    for (const CapsuleProcess& p : processes) {
        if (p.pid == 1 || p.parent == 0) continue;  // souk-init, and who came from outside
        if (goes_on_headless(proc.get(), p))
            return fail("cannot move: the first thread of " + named(p) +
                        " has ended, and others go on");
        if (p.state == 'Z') continue;
        if (traced(proc.get(), p.pid)) return fail("cannot move: " + named(p) + " is being traced");
        const std::string directory = std::to_string(p.pid) + "/fd";
        const auto names = list_dir(proc.get(), directory);
        if (!names) continue;  // it ended meanwhile
        for (const std::string& name : *names) {
            if (++files > files_max) return {};
            char target[64];
            const ssize_t n =
                ::readlinkat(proc.get(), (directory + "/" + name).c_str(), target, sizeof target);
            if (n <= 0) continue;
            const std::string_view file(target, static_cast<size_t>(n));
            if (const auto what = unmovable_file(file); !what.empty())
                return fail("cannot move: " + named(p) + " has " + std::string(what) +
                            " open (file " + name + ")");
            if (is_message_queue(proc.get(), directory + "/" + name, file))
                return fail("cannot move: " + named(p) + " has a POSIX message queue open (file " +
                            name + ")");
            if (tcp != TcpPolicy::refuse || !file.starts_with("socket:[")) continue;
            if (const auto peer =
                    connections.peer(proc.get(), p.pid, file.substr(8, file.size() - 9));
                !peer.empty())
                return fail("cannot move: " + named(p) + " is connected to " + peer + " (file " +
                            name + "), and --tcp=refuse keeps that");
        }
    }
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
