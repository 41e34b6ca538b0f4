// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/starter.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/host/status_file.hpp"
#include "kernel/sys/net/descriptors.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/init_protocol.h"
#include "kernel/sys/process/process.hpp"
#include "kernel/sys/process/program.hpp"

namespace souk::root {
namespace {

constexpr unsigned fuse_major = 10, fuse_minor = 229;  // Documentation/admin-guide/devices.txt

// -------------------------------------------------------------------------------------------------
// what descriptors are

// Asks no file server: one of a job's files may be served through the agentd that waits for this.
Status check_kind(int fd, mode_t kind, const char* what) {
    struct statx st {};
    if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) != 0)
        return fail_errno(what, errno);
    if ((st.stx_mode & S_IFMT) != kind) return fail(std::string(what) + " is another kind of file");
    return {};
}

// Nobody else makes, or swaps, a file in it.
Status check_own_directory(int fd, const char* what) {
    TRY(check_kind(fd, S_IFDIR, what));
    struct stat st {};
    if (::fstat(fd, &st) != 0) return fail_errno(what, errno);
    if (st.st_uid != ::geteuid() || (st.st_mode & 077) != 0)
        return fail(std::string(what) + " is not root's alone");
    return {};
}

Status check_group(int fd, uint32_t magic, mode_t kind) {
    TRY(check_kind(fd, kind, "a control group"));
    struct statfs fs {};
    if (::fstatfs(fd, &fs) != 0) return fail_errno("a control group", errno);
    return static_cast<uint32_t>(fs.f_type) == magic ? Status{} : Status(fail("no control group"));
}

// A new process writes itself into these.
Status check_v1(int fd) {
    TRY(check_group(fd, CGROUP_SUPER_MAGIC, S_IFREG));
    char path[4096];
    const ssize_t n =
        ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
    const std::string_view name(path, n > 0 ? static_cast<size_t>(n) : 0);
    if (!name.ends_with("/tasks") && !name.ends_with("/cgroup.procs"))
        return fail("a file of a control group that takes no processes");
    return {};
}

Status check_packets(int fd) {
    int type = 0, domain = 0;
    socklen_t n = sizeof type, m = sizeof domain;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) != 0 ||
        ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &m) != 0)
        return fail_errno("a socket", errno);
    return type == SOCK_SEQPACKET && domain == AF_UNIX ? Status{}
                                                       : Status(fail("no socket of packets"));
}

Status check_fuse(int fd) {
    struct stat st {};
    TRY(check_kind(fd, S_IFCHR, "a file system's device"));
    if (::fstat(fd, &st) != 0) return fail_errno("a file system's device", errno);
    if (st.st_rdev != makedev(fuse_major, fuse_minor)) return fail("another device than /dev/fuse");
    return {};
}

// Of a process in a PID namespace below this one: its number here, and the one in its own
// namespace.
struct Inside {
    pid_t here = 0, inside = 0;
};
// Its number here, and its /proc/PID/status.
Result<std::pair<pid_t, std::string>> status_of(int pidfd) {
    TRY_ASSIGN(const std::string info,
               read_file(AT_FDCWD, "/proc/self/fdinfo/" + std::to_string(pidfd)));
    const size_t at = info.find("\nPid:\t");
    const auto pid = at == info.npos ? std::nullopt
                                     : leading_number<pid_t>(std::string_view(info).substr(at + 6));
    if (!pid || *pid <= 0) return fail("no process of a capsule");
    TRY_ASSIGN(std::string status,
               read_file(AT_FDCWD, "/proc/" + std::to_string(*pid) + "/status"));
    return std::pair(*pid, std::move(status));
}

Result<Inside> process_inside(int pidfd) {
    TRY_ASSIGN(const auto found, status_of(pidfd));
    const auto& [pid, status] = found;
    const size_t line = status.find("\nNSpid:\t");
    const size_t end = line == status.npos ? line : status.find('\n', line + 1);
    if (end == status.npos) return fail("a kernel that does not tell of namespaces");
    const std::string_view numbers = std::string_view(status).substr(line + 8, end - line - 8);
    const size_t tab = numbers.rfind('\t');
    if (tab == numbers.npos) return fail("no process of a capsule");
    return Inside{pid, whole_number<pid_t>(numbers.substr(tab + 1)).value_or(0)};
}

// CRIU goes nowhere else. The capsule's PID 1, as this process has it.
Result<Pidfd> check_capsule(int pidfd) {
    TRY_ASSIGN(const Inside process, process_inside(pidfd));
    if (process.inside != 1) return fail("no PID 1 of a capsule");
    TRY_ASSIGN(Fd own, duplicate(pidfd));
    return Pidfd(std::move(own), process.here);
}

// Of its processes; 0: it has ended.
Result<ino_t> namespace_of(pid_t pid) {
    struct stat st {};
    if (::stat(("/proc/" + std::to_string(pid) + "/ns/pid").c_str(), &st) == 0) return st.st_ino;
    if (errno == ENOENT || errno == ESRCH) return 0;
    return fail_errno("the namespace of process " + std::to_string(pid), errno);
}

Status check_started(int pidfd) {
    if (process_inside(pidfd)) return {};
    TRY_ASSIGN(const auto found, status_of(pidfd));
    const std::string line = "\nPPid:\t" + std::to_string(::getpid()) + "\n";
    return found.second.find(line) != std::string::npos
               ? Status{}
               : Status(fail("no process that was started here"));
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// requests

Result<Starter::Answer> Starter::start(const StartProgram& asked,
                                       const std::vector<int>& fds) const {
    constexpr std::array names = {"souk-handshake", "souk-inspect", "souk-files"};
    const char* const name = names[static_cast<size_t>(asked.program) - 1];
    TRY_ASSIGN(const Pidfd process, start_program(name, asked.words, fds, asked.session));
    TRY_ASSIGN(Fd pidfd, duplicate(process.get()));
    Answer done{Started{process.pid(), 0}, {}};
    done.descriptors.push_back(std::move(pidfd));
    return done;
}

Result<Starter::Answer> Starter::start(const MakeCapsule& asked,
                                       const std::vector<int>& fds) const {
    size_t at = 0;
    CapsuleOptions options;
    options.dir = fds[at++];
    TRY(check_own_directory(options.dir, "the directory of a capsule"));
    if (asked.files) {
        options.fuse = fds[at++];
        options.slots = fds[at++];
        TRY(check_fuse(options.fuse));
        TRY(check_kind(options.slots, S_IFREG, "a table of requests"));
    }
    if (asked.cgroup) TRY(check_group(options.cgroup = fds[at++], CGROUP2_SUPER_MAGIC, S_IFDIR));
    for (; at < fds.size(); ++at) {
        TRY(check_v1(fds[at]));
        options.cgroup_v1.push_back(fds[at]);
    }
    options.init_path = program_path("souk-init");
    options.own_net = asked.own_net;
    options.private_tmp = asked.private_tmp;
    options.check_access = asked.check_access;
    options.home_tree = asked.home_tree;
    options.hosts = asked.hosts;
    options.laid_over = asked.laid_over;
    options.hidden = asked.hidden;
    options.run_keep = asked.run_keep;
    TRY_ASSIGN(Capsule capsule, Capsule::spawn(options));
    TRY_ASSIGN(Fd pidfd, duplicate(capsule.pidfd().get()));
    Answer done{Started{capsule.id().pid, capsule.id().start_ticks}, {}};
    done.descriptors.push_back(std::move(pidfd));
    done.descriptors.push_back(capsule.take_connection());
    return done;
}

Result<Starter::Answer> Starter::start(const StartCriu& asked, const std::vector<int>& fds) const {
    size_t at = 0;
    CriuLaunch how;
    how.capsule = fds[at++];
    how.socket = fds[at++];
    how.images = fds[at++];
    TRY(check_capsule(how.capsule));
    TRY(check_packets(how.socket));
    TRY(check_own_directory(how.images, "the directory of an image"));
    if (!asked.restores) TRY(check_kind(how.ended = fds[at++], S_IFSOCK, "a closed stream"));
    if (asked.cgroup) TRY(check_group(how.cgroup = fds[at++], CGROUP2_SUPER_MAGIC, S_IFDIR));
    for (size_t i = 0; i < asked.ends; ++i) how.job_ends.push_back(fds[at++]);
    for (; at < fds.size(); ++at) {
        TRY(check_v1(fds[at]));
        how.cgroup_v1.push_back(fds[at]);
    }
    how.user = {asked.uid, asked.gid, asked.groups};
    if (!criu_) return tl::unexpected(criu_.error());
    TRY_ASSIGN(const Pidfd process, launch_criu(criu_->command, criu_->preload.get(), how));
    TRY_ASSIGN(Fd pidfd, duplicate(process.get()));
    Answer done{Started{process.pid(), 0}, {}};
    done.descriptors.push_back(std::move(pidfd));
    return done;
}

Result<Starter::Answer> Starter::start(const OpenFile& asked, const std::vector<int>& fds) {
    Answer done{Done{}, {}};
    for (const int pidfd : fds) {
        TRY_ASSIGN(const Inside process, process_inside(pidfd));
        TRY_ASSIGN(Fd own, duplicate(pidfd));
        TRY_ASSIGN(Fd file, open_process_file(Pidfd(std::move(own), process.here), asked.file));
        done.descriptors.push_back(std::move(file));
    }
    return done;
}

Result<Starter::Answer> Starter::start(const OpenNetwork&, const std::vector<int>& fds) {
    TRY(check_capsule(fds[0]));
    TRY_ASSIGN(JobInside inside, open_job_inside(fds[0]));
    Answer done{Done{}, {}};
    for (Fd* fd : {&inside.route, &inside.packets, &inside.orphans, &inside.spoken})
        done.descriptors.push_back(std::move(*fd));
    return done;
}

// A connection of a job, or what souk-init keeps of the mount of its files. No file of a job: to
// close it may wait for who serves it.
Result<Starter::Answer> Starter::start(const TakeDescriptor& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const Inside process, process_inside(fds[0]));
    TRY_ASSIGN(Fd own, duplicate(fds[0]));
    const int number = static_cast<int>(asked.number);
    TRY_ASSIGN(Fd taken, take_descriptor(Pidfd(std::move(own), process.here), number));
    if (process.inside != 1) {
        TRY(check_kind(taken.get(), S_IFSOCK, "what is taken from a job"));
    } else if (number == SOUK_FILES_FD) {
        TRY(check_fuse(taken.get()));
    } else if (number != SOUK_FILES_FD + 1) {
        return fail("souk-init keeps that to itself");
    }
    Answer done{Done{}, {}};
    done.descriptors.push_back(std::move(taken));
    return done;
}

Result<Starter::Answer> Starter::start(const SettleSockets& asked, const std::vector<int>& fds) {
    TRY(check_own_directory(fds[0], "the directory of an image"));
    TRY(settle_sockets(fds[0], asked.runs));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const PutStatus& asked, const std::vector<int>&) const {
    if (status_file_.empty()) return fail("the configuration names no status file");
    TRY(put_status_file(status_file_, asked.text));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const OpenDirectory& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const Pidfd init, check_capsule(fds[0]));
    Answer done{Done{}, {}};
    TRY_ASSIGN(Fd opened, open_capsule_directory(init, asked.which));
    done.descriptors.push_back(std::move(opened));
    return done;
}

Result<Starter::Answer> Starter::start(const LookInside& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const Pidfd init, check_capsule(fds[0]));
    TRY_ASSIGN(const auto look, look_inside(init, asked.pids, asked.what));
    TRY_ASSIGN(Fd file, memory_file("souk-look", encode_look(look)));
    Answer done{Done{}, {}};
    done.descriptors.push_back(std::move(file));
    return done;
}

Result<Starter::Answer> Starter::start(const FitRestored& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const Pidfd init, check_capsule(fds[0]));
    TRY_ASSIGN(const ino_t capsule, namespace_of(init.pid()));
    RestoredJob job{{asked.uid, asked.gid, asked.groups}, {}, {}};
    for (const pid_t pid : asked.pids) {
        TRY_ASSIGN(const ino_t its, namespace_of(pid));
        if (its != 0 && its != capsule) return fail("no process of that capsule");
        if (its != 0) job.pids.push_back(pid);
    }
    job.limits.insert(asked.limits.begin(), asked.limits.end());
    TRY(fit_restored(init, job));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const AskWaits&, const std::vector<int>& fds) {
    TRY_ASSIGN(const Pidfd init, check_capsule(fds[0]));
    TRY_ASSIGN(const bool waits, restored_waits(init));
    return Answer{Done{waits}, {}};
}

Result<Starter::Answer> Starter::start(const EndProcess&, const std::vector<int>& fds) {
    TRY(check_started(fds[0]));
    TRY_ASSIGN(Fd own, duplicate(fds[0]));
    TRY(Pidfd(std::move(own), 0).signal(SIGKILL));
    return Answer{Done{}, {}};
}

Starter::Answer Starter::take(std::string_view packet, const std::vector<Fd>& descriptors) const {
    std::vector<int> fds;
    fds.reserve(descriptors.size());
    for (const Fd& fd : descriptors) fds.push_back(fd.get());
    const auto asked = parse_asked(packet, fds.size());
    auto done = asked ? std::visit([&](const auto& what) { return start(what, fds); }, *asked)
                      : Result<Answer>(tl::unexpected(asked.error()));
    if (done) return std::move(*done);
    return {Refused{done.error().code, done.error().message}, {}};
}

// -------------------------------------------------------------------------------------------------
// the process

Status serve(const Starter& starter, int socket) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (::sigprocmask(SIG_BLOCK, &child, nullptr) != 0) return fail_errno("sigprocmask", errno);
    const Fd ended(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!ended) return fail_errno("signalfd", errno);
    std::string room(packet_bytes_max, '\0');
    for (;;) {
        pollfd ready[2] = {{socket, POLLIN, 0}, {ended.get(), POLLIN, 0}};
        if (::poll(ready, 2, -1) < 0 && errno != EINTR) return fail_errno("poll", errno);
        signalfd_siginfo info{};
        while (::read(ended.get(), &info, sizeof info) > 0) {
        }
        while (::waitpid(-1, nullptr, WNOHANG) > 0) {
        }  // pidfds tell agentd what matters
        if (ready[0].revents == 0) continue;
        TRY_ASSIGN(auto packet, receive_descriptors(socket, room));
        if (!packet) continue;
        if (packet->bytes == 0) return {};
        const std::string_view bytes(room.data(), packet->truncated ? 0 : packet->bytes);
        const Starter::Answer done = starter.take(bytes, packet->descriptors);
        std::vector<int> fds;
        fds.reserve(done.descriptors.size());
        for (const Fd& fd : done.descriptors) fds.push_back(fd.get());
        TRY(send_descriptors(socket, pack(done.told), fds));
    }
}

}  // namespace souk::root
