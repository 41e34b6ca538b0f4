// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/capsule.hpp"

#include <linux/magic.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "kernel/base/cause.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/process/init_codec.hpp"

namespace souk {
namespace {
// Returns the groups that may make ICMP sockets here. A capsule with its own network gets the same.
std::string ping_groups() {
    return read_file(AT_FDCWD, "/proc/sys/net/ipv4/ping_group_range").value_or("1\t0\n");
}

// Keeps descriptors with low numbers for what a new process gets, so that the table of files that
// it shares with the daemon need not be copied beyond them. Between two capsules they are
// /dev/null.
struct Handover {
    Fd null, dir, connection, fuse, slots;
};
Result<Handover*> handover() {
    constexpr int above_own = SOUK_FILES_FD + 2;  // souk-init's first numbers
    static Handover kept;
    if (kept.connection) return &kept;
    Handover h;
    TRY_ASSIGN(const Fd null, open_at(AT_FDCWD, "/dev/null", O_RDWR));
    for (Fd* fd : {&h.null, &h.dir, &h.connection, &h.fuse, &h.slots}) {
        *fd = Fd(::fcntl(null.get(), F_DUPFD_CLOEXEC, above_own));
        if (!*fd) return fail_errno("keep file descriptors for capsules", errno);
    }
    kept = std::move(h);
    return &kept;
}

// The first words of souk-init: who its job's user is.
constexpr const char *user_word = "as", *gid_word = "gid", *group_word = "in";

void add_user(std::vector<std::string>& words, const RunsAs& user) {
    if (!user.known) return;
    words.reserve(words.size() + 4 + 2 * user.groups.size());
    words.insert(words.end(),
                 {user_word, std::to_string(user.uid), gid_word, std::to_string(user.gid)});
    for (const uint32_t gid : user.groups)
        words.insert(words.end(), {group_word, std::to_string(gid)});
}

// Runs in the new process, before its exec. It makes system calls only, and writes nothing to
// memory that the daemon uses, because it may be the daemon's own memory (see spawn). Moves what
// souk-init gets to fds 3 and 4.
[[noreturn, gnu::noinline]] void become_init(const CapsuleOptions& o, const Handover& h,
                                             char* const* argv) {
    int connection = h.connection.get();
    const auto give_up = [&connection](const char* what) {
        const int code = errno;
        struct {
            souk_msg head;
            char text[SOUK_WHAT_MAX];
        } record = {};
        const size_t n = std::strlen(what);
        record.head = {SOUK_INIT_VERSION,
                       SOUK_FAILED,
                       static_cast<uint32_t>(sizeof record.head + n),
                       0,
                       code,
                       0,
                       0};
        std::memcpy(record.text, what, n);
        (void)!::write(connection, &record, record.head.length);
        ::_exit(1);
    };
    for (const int procs : o.cgroup_v1)
        if (::write(procs, "0", 1) != 1) give_up("join a cgroup");
    // From here on this process has a table of files of its own, with what is needed and below
    // that.
    const auto above = static_cast<unsigned>(std::max(
                           {h.null.get(), h.dir.get(), connection, h.fuse.get(), h.slots.get()})) +
                       1;
    if (::syscall(SYS_close_range, above, ~0U, CLOSE_RANGE_UNSHARE) != 0)
        give_up("arrange file descriptors");
    for (int fd = 0; fd < 3; ++fd) ::dup2(h.null.get(), fd);
    if (::dup2(h.dir.get(), 3) < 0 || ::dup2(connection, 4) < 0)
        give_up("arrange file descriptors");
    connection = 4;
    if (o.fuse >= 0 &&
        (::dup2(h.fuse.get(), SOUK_FILES_FD) < 0 || ::dup2(h.slots.get(), SOUK_FILES_FD + 1) < 0))
        give_up("arrange file descriptors");
    ::syscall(SYS_close_range, SOUK_FILES_FD + (o.fuse >= 0 ? 2U : 0U), ~0U, 0U);
    char* const no_environment[] = {nullptr};
    ::execve(argv[0], argv, no_environment);
    give_up("run souk-init");
    ::_exit(1);
}

// The new process starts in the daemon's memory, which stands still until souk-init has been loaded
// (as vfork(2)): a copy of it, page by page, costs more than all else. Not under a sanitizer, which
// writes down what each function does.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
constexpr uint64_t as_vfork = 0;
long clone_call(clone_args* args) { return ::syscall(SYS_clone3, args, sizeof *args); }
#else
constexpr uint64_t as_vfork = CLONE_VM | CLONE_VFORK | CLONE_FILES;
// Inlined: a function that returns twice on one stack would find what the new process has left
// there.
[[gnu::always_inline]] inline long clone_call(clone_args* args) {
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "0"(long{SYS_clone3}), "D"(args), "S"(sizeof *args)
                 : "rcx", "r11", "memory");
    if (result < 0) errno = static_cast<int>(-result);
    return result;
}
#endif
}  // namespace

Status Capsule::prepare() {
    TRY_ASSIGN([[maybe_unused]] const Handover* kept, handover());
    return {};
}

Result<Capsule> Capsule::spawn(const CapsuleOptions& options) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno("socketpair", errno);
    Fd ours(pair[0]), theirs(pair[1]);
    TRY_ASSIGN(const Handover* given, handover());
    if (::dup3(options.dir, given->dir.get(), O_CLOEXEC) < 0 ||
        ::dup3(theirs.get(), given->connection.get(), O_CLOEXEC) < 0)
        return fail_errno("hand over file descriptors", errno);
    if (options.fuse >= 0 && (::dup3(options.fuse, given->fuse.get(), O_CLOEXEC) < 0 ||
                              ::dup3(options.slots, given->slots.get(), O_CLOEXEC) < 0))
        return fail_errno("hand over file descriptors", errno);
    // Everything that allocates comes before the clone.
    std::vector<std::string> words = {options.init_path};
    add_user(words, options.user);
    if (options.own_net) words.insert(words.end(), {"net", ping_groups()});
    if (options.private_tmp) words.emplace_back("tmp");
    if (options.fuse >= 0) words.emplace_back("files");
    if (options.check_access) words.emplace_back("checks");
    if (options.home_tree) words.emplace_back("tree");
    for (const std::string& path : options.laid_over) words.insert(words.end(), {"over", path});
    for (const std::string& path : options.hidden) words.insert(words.end(), {"hide", path});
    if (options.hosts) words.emplace_back("hosts");
    if (!options.run_keep.empty()) words.insert(words.end(), {"run", options.run_keep});
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int pidfd = -1;
    struct clone_args args = {};
    args.flags = as_vfork | CLONE_PIDFD | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
    if (options.own_net) args.flags |= CLONE_NEWNET;
    args.pidfd = reinterpret_cast<uint64_t>(&pidfd);
    args.exit_signal = SIGCHLD;
    if (options.cgroup >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = static_cast<uint64_t>(options.cgroup);
    }
    const long pid = clone_call(&args);
    if (pid == 0) become_init(options, *given, argv.data());
    const int code = errno;
    for (const Fd* fd : {&given->dir, &given->connection, &given->fuse, &given->slots})
        (void)::dup3(given->null.get(), fd->get(), O_CLOEXEC);
    if (pid < 0) return fail_errno("make a capsule: clone3", code);
    Capsule capsule;
    capsule.pidfd_ = Pidfd(Fd(pidfd), static_cast<pid_t>(pid));
    auto id = process_id(static_cast<pid_t>(pid));
    if (!id) {
        capsule.kill();
        return wrap("make a capsule", std::move(id).error());
    }
    capsule.id_ = *id;
    capsule.connection_ = std::move(ours);
    return capsule;
}

Result<Fd> connect_to_init(const Pidfd& init, int dir) {
    Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return fail_errno("socket", errno);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // Through the held directory: a state directory may have any depth, a socket address only 108
    // bytes.
    std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/" SOUK_CTL_NAME,
                  dir);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
        return fail_errno("connect to souk-init", errno);
    ucred who{};
    socklen_t size = sizeof who;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return fail_errno("who souk-init is", errno);
    TRY_ASSIGN(const bool ended, init.exited_within({}));
    if (ended || who.pid != init.pid())
        return fail_errno("souk-init " + std::to_string(init.pid()), ESRCH);
    return fd;
}

Result<Capsule> Capsule::reconnect(int dir, ProcessId init, const ConnectToInit& connect) {
    Capsule capsule;
    TRY_ASSIGN(capsule.pidfd_, Pidfd::open(init.pid));
    const auto now = process_id(init.pid);
    if (!now || *now != init) return fail_errno("souk-init " + std::to_string(init.pid), ESRCH);
    capsule.id_ = init;
    TRY_ASSIGN(capsule.connection_, connect(capsule.pidfd_, dir));
    return capsule;
}

Result<RunsAs> capsule_user(const Pidfd& init) {
    constexpr size_t bytes_max = 4 << 20;
    TRY_ASSIGN(const std::string text,
               read_file(AT_FDCWD, "/proc/" + std::to_string(init.pid()) + "/cmdline", bytes_max));
    TRY_ASSIGN(const bool ended, init.exited_within({}));
    if (ended) return fail_errno("souk-init " + std::to_string(init.pid()), ESRCH);
    if (text.empty()) return fail_errno("souk-init is being started", EAGAIN);
    std::string_view rest = text;
    const auto next = [&rest] {
        const std::string_view word = rest.substr(0, rest.find('\0'));
        rest.remove_prefix(std::min(word.size() + 1, rest.size()));
        return word;
    };
    next();  // the program
    RunsAs user;
    for (std::string_view word = next(); !word.empty(); word = next()) {
        const auto number = whole_number<uint32_t>(next());
        if (word == user_word && number && !user.known)
            user = {true, *number, 0, {}};
        else if (word == gid_word && number && user.known)
            user.gid = *number;
        else if (word == group_word && number && user.known)
            user.groups.push_back(*number);
        else
            break;
    }
    return user;
}

Result<Fd> open_capsule_directory(const Pidfd& init, CapsuleDirectory which) {
    const char* const path = which == CapsuleDirectory::proc ? "/root/proc" : "/root/run";
    TRY_ASSIGN(Fd opened, open_at(AT_FDCWD, "/proc/" + std::to_string(init.pid()) + path,
                                  O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(const bool ended, init.exited_within({}));
    if (ended) return fail_errno("souk-init " + std::to_string(init.pid()), ESRCH);
    struct statfs fs {};
    // A job of root may have mounted something else there.
    if (which == CapsuleDirectory::proc &&
        (::fstatfs(opened.get(), &fs) != 0 || fs.f_type != PROC_SUPER_MAGIC))
        return fail("the /proc of a capsule is none");
    return opened;
}

Result<Fd> Capsule::directory(CapsuleDirectory which) const { return open_(pidfd_, which); }

Result<Fd> Capsule::open_inside(const std::string& path, int flags) const {
    return open_at(AT_FDCWD, "/proc/" + std::to_string(id_.pid) + "/root" + path, flags);
}

Result<std::string> read_exit_record(int dir) {
    return read_file(dir, SOUK_EXIT_NAME, sizeof(souk_exit));
}

Result<std::vector<CapsuleProcess>> capsule_processes(const Capsule& capsule) {
    TRY_ASSIGN(const Fd proc, capsule.directory(CapsuleDirectory::proc));
    return capsule_processes(proc.get());
}

Result<std::vector<CapsuleProcess>> capsule_processes(int proc) {
    TRY_ASSIGN(const auto names, list_dir(proc, "."));
    std::vector<CapsuleProcess> processes;
    for (const std::string& name : names) {
        const auto pid = whole_number<pid_t>(name);
        if (!pid) continue;
        if (const auto stat = read_proc_stat(proc, name))  // else it ended meanwhile
            processes.push_back({*pid, stat->parent, stat->state, stat->name, stat->threads,
                                 stat->reserved_bytes, stat->resident_pages, stat->session});
    }
    if (processes.empty()) return fail_errno("list the capsule's processes", ESRCH);
    return processes;
}

namespace {
using ByPid = std::map<pid_t, const CapsuleProcess*>;

// A session is restored by its leader, which forks who belongs to it; where that has ended, only
// the root can adopt them (CRIU criu/pstree.c, prepare_pstree_ids).
bool session_can_be_made(const CapsuleProcess& p, const ByPid& by_pid, pid_t root) {
    const CapsuleProcess* parent = by_pid.at(p.parent);
    if (p.session == 0 || p.parent == root || p.session == p.pid || p.session == parent->session)
        return true;
    while (parent->pid != p.session && parent->pid != root && by_pid.contains(parent->parent))
        parent = by_pid.at(parent->parent);
    return parent->pid == p.session;
}
}  // namespace

Status check_movable(const std::vector<CapsuleProcess>& processes, pid_t root) {
    ByPid by_pid;
    for (const CapsuleProcess& p : processes) by_pid[p.pid] = &p;
    if (!by_pid.contains(root))
        return tl::unexpected(Error{ESRCH, "cannot move: the job's root process is gone"});
    for (const CapsuleProcess& p : processes) {
        if (p.pid == 1) continue;
        pid_t at = p.pid, above = p.parent;
        while (at != root && above > 1 && by_pid.contains(above)) {
            at = above;
            above = by_pid[at]->parent;
        }
        // Parent 0: it came in from outside (CRIU, a helper). A zombie of PID 1 is about to be
        // reaped.
        if (above == 0 || (p.state == 'Z' && p.parent == 1)) continue;
        auto why = CauseCode::none;
        if (at != root)
            why = CauseCode::left_process_tree;
        else if (p.pid != root && !session_can_be_made(p, by_pid, root))
            why = CauseCode::session_lost;
        if (why != CauseCode::none)
            return fail_because(
                why, {{"process", "process " + std::to_string(p.pid) + " (" + p.name + ")"}});
    }
    return {};
}

}  // namespace souk
