// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/launch.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "checkpoint/kept_locks.h"
#include "kernel/base/check.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/syscall_filter.hpp"

namespace souk {
namespace {

constexpr const char* facts_name = "criu.kdat";
constexpr size_t facts_bytes_max = 64 << 10;

// Runs in the new process, which is already in the capsule's pid namespace and in the cgroups:
// enters the other namespaces, sets the fds, and execs. It makes system calls only. CRIU must hold
// nothing but its own end of the socket, or it would never notice that agentd is gone.
struct CriuExec {
    int capsule, socket, images;
    int preload, locks;
    int ended;  // -1 for a restore
    const int* ends;
    size_t end_count;
    const int* cgroup_v1;
    size_t cgroup_count;
    char* const* argv;
    char* user;   // SOUK_AS
    char* calls;  // SOUK_CALLS (criu_filters.c); null: any
};

// The number of this process's network.
ino_t network() {
    struct stat st {};
    return ::stat("/proc/self/ns/net", &st) == 0 ? st.st_ino : 0;
}

void become_criu(const CriuExec& e) {
    for (size_t i = 0; i < e.cgroup_count; ++i)
        if (::write(e.cgroup_v1[i], "0", 1) != 1) ::_exit(126);
    const ino_t nodes = network();
    constexpr int others = CLONE_NEWNS | CLONE_NEWNET;  // a kernel without control groups has these
    if (::setns(e.capsule, others | CLONE_NEWCGROUP) != 0 && ::setns(e.capsule, others) != 0)
        ::_exit(126);
    const ino_t capsules = network();
    const bool own_network = nodes != 0 && capsules != 0 && capsules != nodes;
    constexpr int high = 400;  // out of the way of the final numbers
    const int socket = ::fcntl(e.socket, F_DUPFD, high), images = ::fcntl(e.images, F_DUPFD, high);
    const int preload = ::fcntl(e.preload, F_DUPFD, high),
              locks = e.locks < 0 ? -1 : ::fcntl(e.locks, F_DUPFD, high),
              ended = e.ended < 0 ? -1 : ::fcntl(e.ended, F_DUPFD, high);
    int ends[criu_ends_max];
    for (size_t i = 0; i < e.end_count; ++i) ends[i] = ::fcntl(e.ends[i], F_DUPFD, high);
    const int null = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
    if (::dup2(socket, criu_fds::socket) < 0 || ::dup2(images, criu_fds::images) < 0) ::_exit(126);
    if (::dup2(locks < 0 ? null : locks, criu_fds::locks) < 0 ||
        ::dup2(preload < 0 ? null : preload, criu_fds::preload) < 0 ||
        ::dup2(ended < 0 ? null : ended, criu_fds::ended) < 0)
        ::_exit(126);
    for (size_t i = 0; i < e.end_count; ++i)
        if (::dup2(ends[i], criu_fds::first_end + static_cast<int>(i)) < 0) ::_exit(126);
    ::syscall(SYS_close_range, 4U, static_cast<unsigned>(criu_fds::locks - 1), 0U);
    ::syscall(SYS_close_range,
              static_cast<unsigned>(criu_fds::first_end) + static_cast<unsigned>(e.end_count), ~0U,
              0U);
    ::setsid();
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int ignored : {SIGPIPE, SIGHUP}) ::signal(ignored, SIG_DFL);
    // a sixth of its start, and it never speaks TLS here
    char no_tls[] = "GNUTLS_NO_IMPLICIT_INIT=1";
    static_assert(criu_fds::preload == 198 && criu_fds::locks == int{souk_locks_fd});
    char preloaded[] = "LD_PRELOAD=/proc/self/fd/198";  // what cannot load it goes without
    char dumps[] = "SOUK_DUMP=1";                       // see criu_ptys.c
    char network_of_its_own[] = "SOUK_NETWORK=own";
    char* environment[] = {no_tls,  preloaded, e.ended < 0 ? e.user : dumps,
                           nullptr, nullptr,   nullptr};
    size_t at = 3;
    if (own_network) environment[at++] = network_of_its_own;
    if (e.calls != nullptr) environment[at++] = e.calls;
    ::execve(e.argv[0], e.argv, environment);
    ::_exit(127);
}

// A child of ours inside the capsule's pid namespace: children go where the pid namespace of the
// moment is set.
Result<Pidfd> clone_into(int capsule, int cgroup, const CriuExec& exec) {
    TRY_ASSIGN(const Fd own, open_at(AT_FDCWD, "/proc/self/ns/pid", O_RDONLY));
    if (::setns(capsule, CLONE_NEWPID) != 0) return fail_errno("enter the capsule", errno);
    int pidfd = -1;
    clone_args args{};
    args.flags = CLONE_PIDFD;
    args.pidfd = reinterpret_cast<uint64_t>(&pidfd);
    args.exit_signal = SIGCHLD;
    if (cgroup >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = static_cast<uint64_t>(cgroup);
    }
    const long pid = ::syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) become_criu(exec);
    const int code = errno;
    MUST(::setns(own.get(), CLONE_NEWPID) == 0);
    if (pid < 0) return fail_errno("start CRIU: clone3", code);
    return Pidfd(Fd(pidfd), static_cast<pid_t>(pid));
}

}  // namespace

// A job of root's may have laid something else there.
Status lay_out_run(const Pidfd& init, bool restores, std::string_view facts) {
    constexpr int anew = O_EXCL | O_NOFOLLOW;
    TRY_ASSIGN(const Fd run, open_capsule_directory(init, CapsuleDirectory::run));
    // PID 1 has the node's root until it has made its own.
    struct stat its {
    }, nodes{};
    if (::fstat(run.get(), &its) != 0 || ::stat("/run", &nodes) != 0)
        return fail_errno("look at the /run of a capsule", errno);
    if (its.st_dev == nodes.st_dev && its.st_ino == nodes.st_ino)
        return fail_errno("the capsule has no /run of its own yet", EAGAIN);
    // Without facts CRIU looks at the kernel itself.
    if (!facts.empty() && ::faccessat(run.get(), facts_name, F_OK, 0) != 0 &&
        !create_file(run.get(), facts_name, facts, anew))
        ::unlinkat(run.get(), facts_name, 0);
    const char* const path = restores ? criu_served_config : criu_lazy_config;
    const char* const name = path + sizeof "/run";
    const std::string text = restores ? "file-validation filesize\n"
                                      : "ps-socket " + std::to_string(criu_fds::ended) + "\n";
    ::unlinkat(run.get(), name, 0);
    return create_file(run.get(), name, text, anew);
}

Result<std::string> read_criu_facts(const Pidfd& init) {
    TRY_ASSIGN(const Fd run, open_capsule_directory(init, CapsuleDirectory::run));
    return read_file(run.get(), facts_name, facts_bytes_max);
}

Result<Pidfd> launch_criu(const std::vector<std::string>& command, int preload,
                          const CriuLaunch& how) {
    if (how.job_ends.size() > criu_ends_max) return fail("start CRIU: too many ends of its job");
    std::vector<std::string> words = command;
    words.insert(words.end(), {"swrk", std::to_string(criu_fds::socket)});
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::string user = criu_user_words(how.user), calls;
    if (how.user.limited && how.ended < 0) {
        TRY_ASSIGN(calls, refused_call_words());
        calls.insert(0, "SOUK_CALLS=");
    }
    const CriuExec exec{how.capsule,
                        how.socket,
                        how.images,
                        preload,
                        how.locks,
                        how.ended,
                        how.job_ends.data(),
                        how.job_ends.size(),
                        how.cgroup_v1.data(),
                        how.cgroup_v1.size(),
                        argv.data(),
                        user.data(),
                        calls.empty() ? nullptr : calls.data()};
    return clone_into(how.capsule, how.cgroup, exec);
}

}  // namespace souk
