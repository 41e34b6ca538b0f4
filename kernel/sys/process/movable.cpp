// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/movable.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "kernel/base/cause.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/net/tcp_table.hpp"
#include "kernel/sys/process/own_mappings.h"
#include "kernel/sys/process/own_shares.h"
#include "kernel/sys/process/own_signals.h"

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

// The kinds of files without a name, and of sockets, that CRIU 4.2 knows.
constexpr std::string_view anonymous = "anon_inode:";
constexpr std::string_view known_kinds[] = {"[eventfd]",  "[eventpoll]", "inotify", "[fanotify]",
                                            "[signalfd]", "[timerfd]",   "[pidfd]"};
constexpr std::string_view known_protocols[] = {
    "UNIX",      "UNIX-STREAM", "TCP",   "TCPv6", "UDP",    "UDPv6",   "UDP-Lite",
    "UDPLITEv6", "RAW",         "RAWv6", "PING",  "PINGv6", "NETLINK", "PACKET"};

// CRIU puts all private mappings of a process behind each other before it moves them to where they
// belong (criu/mem.c, premap_priv_vmas): into the largest gap beside its own program, of 93 TB.
constexpr uint64_t reserved_bytes_max = uint64_t{90} << 40;

std::string named(const CapsuleProcess& p) {
    return "process " + std::to_string(p.pid) + " (" + p.name + ")";
}

// The number of a line of /proc/PID/status; 0: there is none.
uint64_t status_number(std::string_view status, std::string_view key) {
    const size_t line = status.find(key);
    if (line == status.npos) return 0;
    status.remove_prefix(line + key.size());
    status.remove_prefix(std::min(status.find_first_not_of(" \t"), status.size()));
    return leading_number<uint64_t>(status).value_or(0);
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

// Holds the tables of the process's network namespace, read when the first socket is met.
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
    if (!target.starts_with(anonymous)) return CauseCode::none;
    target.remove_prefix(anonymous.size());
    return std::ranges::find(known_kinds, target) == std::end(known_kinds)
               ? CauseCode::holds_unsupported
               : CauseCode::none;
}

CauseCode unmovable_socket(std::string_view protocol) {
    if (protocol.starts_with("MPTCP")) return CauseCode::holds_mptcp;
    // A kernel may not tell.
    return protocol.empty() ||
                   std::ranges::find(known_protocols, protocol) != std::end(known_protocols)
               ? CauseCode::none
               : CauseCode::holds_unsupported;
}

namespace {

// The numbers of the mounts that a process has.
std::set<uint64_t> mounts_of(int proc, pid_t pid) {
    std::set<uint64_t> numbers;
    const auto table = read_file(proc, std::to_string(pid) + "/mountinfo");
    for (size_t at = 0; table && at < table->size(); at = table->find('\n', at) + 1) {
        if (const auto number = leading_number<uint64_t>(std::string_view(*table).substr(at)))
            numbers.insert(*number);
        if (table->find('\n', at) == table->npos) break;
    }
    return numbers;
}

// The first kind of namespaces in which `of` is in another one than `base`; empty: none.
std::string_view other_space(std::string_view of, std::string_view base) {
    while (!of.empty()) {
        const std::string_view one = of.substr(0, of.find(' '));
        const std::string_view kind = one.substr(0, one.find(':') + 1);
        const size_t at = base.find(kind);
        if (at != base.npos && !base.substr(at).starts_with(one))
            return kind.substr(0, kind.size() - 1);
        of.remove_prefix(std::min(of.size(), one.size() + 1));
    }
    return {};
}

// Looks at what processes have open.
struct Looker {
    int proc;
    TcpPolicy tcp;
    std::string_view stays = {};   // it does not move with a file of that directory
    std::set<dev_t> servers = {};  // nor with a lock on one of these devices
    TcpTables connections = {};
    std::map<std::string, std::set<uint64_t>> mounts = {};  // by namespace

    // A file is of a kind, or on a file system, that CRIU does not find again.
    Status look_whether_it_is_known(const CapsuleProcess& p, const SeenProcess& all,
                                    const SeenFile& seen, const std::string& name) {
        if (!seen.known || seen.links == 0) return {};
        if (S_ISBLK(seen.mode))
            return fail(CauseCode::file_unsupported,
                        "cannot move: " + named(p) + " has a block device open (file " + name +
                            "), which is of a kind that CRIU does not know");
        // A process with a root directory of its own is not told of all mounts.
        const auto root = std::ranges::find(all.files, "root", &SeenFile::place);
        if (seen.mount == 0 || root == all.files.end() || root->target != "/") return {};
        const auto [known, is_new] = mounts.try_emplace(all.spaces.substr(0, all.spaces.find(' ')));
        if (is_new) known->second = mounts_of(proc, p.pid);
        if (known->second.empty() || known->second.contains(seen.mount)) return {};
        return fail(CauseCode::file_mount_unknown,
                    "cannot move: " + named(p) + " has a file open (file " + name +
                        ") whose file system is not mounted for it any more");
    }

    Status look_at_file(const CapsuleProcess& p, const SeenProcess& all, const SeenFile& seen) {
        const std::string_view file = seen.target;
        const std::string name = seen.place.substr(seen.place.rfind(' ') + 1);
        CauseCode what = unmovable_file(file);
        std::string kind(file);
        if (seen.wakes || seen.thread) {
            what = CauseCode::holds_unsupported;
            kind = seen.wakes ? "a timer that wakes the machine (CLOCK_REALTIME_ALARM and the like)"
                              : "a pidfd of a thread";
        }
        if (seen.queue) what = CauseCode::holds_message_queue;
        if (seen.packets) what = CauseCode::holds_packet_pipe;
        if (!seen.protocol.empty()) {
            what = unmovable_socket(seen.protocol);
            kind = "a socket of the kind " + seen.protocol;
        }
        if (what != CauseCode::none)
            return fail_because(
                what, {{"process", named(p)},
                       {"kind", kind},
                       {"file", what == CauseCode::holds_secret_memory ? "file " + name : name}});
        if (seen.locked && servers.contains(static_cast<dev_t>(seen.device)))
            return fail_because(CauseCode::holds_server_lock,
                                {{"process", named(p)}, {"file", name}});
        TRY(look_whether_it_stays(p, seen, name));
        TRY(look_whether_it_is_known(p, all, seen, name));
        if (tcp != TcpPolicy::refuse || !file.starts_with("socket:[")) return {};
        const auto peer = connections.peer(proc, p.pid, file.substr(8, file.size() - 9));
        if (peer.empty()) return {};
        return fail_because(CauseCode::holds_connection,
                            {{"process", named(p)}, {"peer", peer}, {"file", name}});
    }

    // A file without a name goes along.
    Status look_whether_it_stays(const CapsuleProcess& p, const SeenFile& seen,
                                 const std::string& name) const {
        const std::string_view file = seen.target;
        if (stays.empty() || !file.starts_with(stays) ||
            (file.size() > stays.size() && file[stays.size()] != '/') || !seen.known ||
            seen.links == 0)
            return {};
        const std::string_view inside = stays.substr(stays.rfind('/'));
        return fail_because(CauseCode::holds_node_file,
                            {{"process", named(p)}, {"path", std::string(inside)}, {"file", name}});
    }

    // Memory that is mapped is as secret without a file that is open. All of it counts as locked,
    // and few processes lock any.
    Status look_at_memory(const CapsuleProcess& p, std::string_view maps) const {
        const size_t at = maps.find(" /secretmem");
        if (at == maps.npos) return {};
        const size_t line = maps.rfind('\n', at) + 1;
        return fail_because(
            CauseCode::holds_secret_memory,
            {{"process", named(p)},
             {"file", "mapped at " + std::string(maps.substr(line, maps.find(' ', line) - line))}});
    }

    // Tells whether what the process has open must be looked at, and whether it has locked memory.
    Result<bool> look(const CapsuleProcess& p, bool& locked) const {
        if (goes_on_headless(proc, p))
            return fail_because(CauseCode::first_thread_ended, {{"process", named(p)}});
        if (p.state == 'Z') return false;
        if (p.reserved_bytes > reserved_bytes_max)
            return fail_because(
                CauseCode::reserves_too_much,
                {{"process", named(p)}, {"text", std::to_string(p.reserved_bytes >> 40)}});
        const auto status = read_file(proc, std::to_string(p.pid) + "/status");
        if (!status) return true;
        if (status_number(*status, "\nTracerPid:") != 0)
            return fail_because(CauseCode::is_traced, {{"process", named(p)}});
        locked = status_number(*status, "\nVmLck:") != 0;
        return look_at_schedule(p);
    }

    // The kernel gives no process of a plain user the rights for it; few have it.
    Result<bool> look_at_schedule(const CapsuleProcess& p) const {
        constexpr int threads_max = 256;
        const std::string directory = std::to_string(p.pid) + "/task";
        const auto threads = p.threads > threads_max
                                 ? Result<std::vector<std::string>>({std::to_string(p.pid)})
                                 : list_dir(proc, directory);
        if (!threads) return true;  // it has ended
        for (const std::string& thread : *threads) {
            const auto stat = read_proc_stat(proc, directory + "/" + thread);
            if (stat && stat->policy == SCHED_DEADLINE)
                return fail_because(CauseCode::dump_refused,
                                    {{"text", "cannot move: " + named(p) +
                                                  " runs by deadlines "
                                                  "(SCHED_DEADLINE), which nobody could promise it "
                                                  "elsewhere"}});
        }
        return true;
    }

    Status look_at_files(const CapsuleProcess& p, const SeenProcess& seen, std::string_view base) {
        if (seen.error == ENOENT || seen.error == ESRCH) return {};  // it ended meanwhile
        if (seen.error != 0)
            return fail_errno("look at what " + named(p) + " has open", seen.error);
        if (const auto space = other_space(seen.spaces, base); !space.empty())
            return fail(CauseCode::namespace_nested, "cannot move: " + named(p) +
                                                         " has a namespace of its own (" +
                                                         std::string(space) + ")");
        for (const SeenFile& f : seen.files)
            if (f.place.starts_with("fd ")) {
                TRY(look_at_file(p, seen, f));
            } else if (f.place == "cwd") {
                TRY(look_whether_it_stays(p, f, f.place));
            }
        return {};
    }
};

// The namespaces of the root are the job's: CRIU makes some of them anew for it.
Status look_at_all(Looker& looker, const std::vector<CapsuleProcess>& processes, size_t files_max,
                   pid_t root, const LookAt& look) {
    PidsInside pids, locked;
    for (const CapsuleProcess& p : processes) {
        bool locks = false;
        TRY_ASSIGN(const bool wanted, looker.look(p, locks));
        if (wanted) pids[p.pid] = p.pid;
        if (wanted && locks) locked[p.pid] = p.pid;
    }
    const bool locks = !looker.servers.empty();
    const LookFor what{.states = true,
                       .kinds = true,
                       .infos = locks,
                       .files_max = static_cast<uint32_t>(files_max)};
    TRY_ASSIGN(const auto seen, look(pids, what));
    const auto base = std::ranges::find(seen, root, &SeenProcess::pid);
    const std::string spaces = base == seen.end() ? "" : base->spaces;
    for (const CapsuleProcess& p : processes) {
        const auto found = std::ranges::find(seen, p.pid, &SeenProcess::pid);
        if (found != seen.end()) TRY(looker.look_at_files(p, *found, spaces));
    }
    if (locked.empty()) return {};
    const auto mapped = look(locked, {.maps = true, .runs = true, .files_max = 0});
    for (const CapsuleProcess& p : processes) {
        if (!mapped) break;  // it changes its mappings just now
        const auto found = std::ranges::find(*mapped, p.pid, &SeenProcess::pid);
        if (found != mapped->end()) TRY(looker.look_at_memory(p, found->maps));
    }
    return {};
}

Status refuse_what_it_has(const CapsuleProcess& p, const std::string& how) {
    return fail_because(CauseCode::dump_refused,
                        {{"text", "cannot move: " + named(p) + " has " + how}});
}

Status look_at_threads(const CapsuleProcess& p) {
    const auto threads = list_dir(AT_FDCWD, "/proc/" + std::to_string(p.pid) + "/task");
    for (size_t i = 0; threads && i < threads->size(); ++i)
        if (const auto thread = whole_number<pid_t>((*threads)[i]); thread && *thread != p.pid)
            if (const char* const own = souk_own_share(p.pid, *thread))
                return refuse_what_it_has(p, own);
    return {};
}

Status look_at_what_lasts(const CapsuleProcess& p) {
    char words[256];
    std::FILE* const maps = std::fopen(("/proc/" + std::to_string(p.pid) + "/maps").c_str(), "re");
    if (!maps) return {};  // it has ended
    const bool lasts = souk_lasting_mapping(maps, words, sizeof words) != 0;
    std::fclose(maps);
    if (lasts) return refuse_what_it_has(p, words);
    return souk_has_signals_above_limit(p.pid) ? refuse_what_it_has(p, SOUK_SIGNALS_ABOVE_LIMIT)
                                               : Status();
}

// The numbers of the processes are those here. Who waits in vfork(2) shares its memory for a
// moment.
Status look_at_shares(const std::vector<CapsuleProcess>& processes) {
    constexpr std::pair<int, const char*> shared[] = {
        {KCMP_FS, SOUK_SHARED_FS}, {KCMP_FILES, SOUK_SHARED_FILES}, {KCMP_VM, SOUK_SHARED_VM}};
    for (const CapsuleProcess& p : processes)
        if (p.state != 'Z') {
            TRY(look_at_threads(p));
            TRY(look_at_what_lasts(p));
        }
    for (const auto& [kind, name] : shared) {
        // They run, and may change meanwhile: a set bears an order that does not hold.
        const auto is_less = [kind = kind](pid_t a, pid_t b) {
            return souk_compare_shares(a, b, kind) == 1;
        };
        std::set<pid_t, decltype(is_less)> seen(is_less);
        for (const CapsuleProcess& p : processes) {
            if (p.state == 'Z' || p.state == 'D') continue;
            const auto [other, is_new] = seen.insert(p.pid);
            if (!is_new && souk_compare_shares(*other, p.pid, kind) == 0)
                return refuse_what_it_has(
                    p, std::string("one and the same ") + name + " as another process");
        }
    }
    return {};
}

// Makes a look that uses the numbers of this /proc.
LookAt look_in(int proc) {
    return [proc](const PidsInside& pids, const LookFor& what) {
        std::vector<pid_t> numbers;
        for (const auto& [inside, here] : pids) numbers.push_back(inside);
        return look_at_processes(proc, numbers, what);
    };
}

// Tells whether the process is of the job: neither souk-init nor one that came from outside.
bool of_job(const CapsuleProcess& p) { return p.pid != 1 && p.parent != 0; }

// The devices of servers, if a process that this /proc has holds a lock at all. Lines of mountinfo
// are read here, as proc(5) has them: srun is linked without libmount.
std::set<dev_t> servers_with_locks(int proc, pid_t of, bool (*is_server)(std::string_view)) {
    std::set<dev_t> devices;
    const auto locks = read_file(proc, "locks");
    if (!locks || locks->empty()) return devices;
    const auto mounts = read_file(proc, std::to_string(of) + "/mountinfo");
    for (size_t at = 0, end = 0; mounts && at < mounts->size(); at = end + 1) {
        end = std::min(mounts->find('\n', at), mounts->size());
        unsigned major = 0, minor = 0;
        const std::string_view line = std::string_view(*mounts).substr(at, end - at);
        const size_t type = line.find(" - ");
        if (type == line.npos ||
            std::sscanf(mounts->c_str() + at, "%*u %*u %u:%u", &major, &minor) != 2)
            continue;
        const std::string_view name = line.substr(type + 3);
        if (is_server(name.substr(0, name.find(' ')))) devices.insert(makedev(major, minor));
    }
    return devices;
}

}  // namespace

Status check_movable(const Capsule& capsule, pid_t root, TcpPolicy tcp, size_t files_max,
                     std::string_view stays, const LookAt& look,
                     bool (*is_server)(std::string_view)) {
    TRY_ASSIGN(const Fd proc, capsule.directory(CapsuleDirectory::proc));
    TRY_ASSIGN(auto processes, capsule_processes(proc.get()));
    TRY(check_movable(processes, root));
    std::erase_if(processes, [](const CapsuleProcess& p) { return !of_job(p); });
    Looker looker{proc.get(), tcp, stays, servers_with_locks(proc.get(), root, is_server)};
    return look_at_all(looker, processes, files_max, root, look ? look : look_in(proc.get()));
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
    Looker looker{proc.get(), tcp, {}, servers_with_locks(proc.get(), root, is_locked_by_server)};
    TRY(look_at_all(looker, tree, files_max, root, look_in(proc.get())));
    return look_at_shares(tree);
}

Result<bool> holds_locks(const Capsule& capsule, const std::vector<CapsuleProcess>& processes,
                         const LookAt& look) {
    Fd proc;
    if (!look) {
        TRY_ASSIGN(proc, capsule.directory(CapsuleDirectory::proc));
    }
    PidsInside pids;
    for (const CapsuleProcess& p : processes)
        if (of_job(p) && p.state != 'Z') pids[p.pid] = p.pid;
    TRY_ASSIGN(const auto seen, (look ? look : look_in(proc.get()))(pids, {.infos = true}));
    return std::ranges::any_of(
        seen, [](const SeenProcess& p) { return std::ranges::any_of(p.files, &SeenFile::locked); });
}

}  // namespace souk
