// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/sandbox.hpp"

#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>

namespace souk {
namespace {

constexpr const char* own_user = "_souk-net";
constexpr uid_t nobody = 65534;
constexpr rlim_t memory_max = rlim_t{1} << 30;

Status limit(__rlimit_resource what, rlim_t most) {
    const rlimit both{most, most};
    if (::setrlimit(what, &both) != 0) return fail_errno("setrlimit", errno);
    return {};
}

Status limit_all() {
    struct rlimit files {};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
    TRY(limit(RLIMIT_CORE, 0));
    TRY(limit(RLIMIT_FSIZE, 0));
    return sandbox_is_wide ? Status{} : limit(RLIMIT_AS, memory_max);
}

Status leave_files() {
    if (::unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0)
        return fail_errno("namespaces of its own", errno);
    constexpr const char* room = "/proc";  // is on every machine
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("souk", room, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY,
                "mode=0555,size=4k") != 0)
        return fail_errno("an empty root directory", errno);
    if (::chdir(room) != 0 || ::chroot(".") != 0 || ::chdir("/") != 0)
        return fail_errno("chroot", errno);
    return {};
}

Status become(uid_t uid, gid_t gid) {
    for (int cap = 0; cap <= 63; ++cap)
        if (::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0 && errno != EINVAL)
            return fail_errno("drop a capability", errno);
    if (::setgroups(0, nullptr) != 0 || ::setresgid(gid, gid, gid) != 0 ||
        ::setresuid(uid, uid, uid) != 0)
        return fail_errno("become user " + std::to_string(uid), errno);
    const __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[2] = {};
    if (::syscall(SYS_capset, &head, none) != 0) return fail_errno("capset", errno);
    return {};
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const bool sandbox_is_wide = true;
#else
const bool sandbox_is_wide = false;
#endif

Status enter_sandbox(int parent, std::span<const int> calls) {
    uid_t uid = nobody;
    gid_t gid = nobody;
    if (const passwd* user = ::getpwnam(own_user); user && user->pw_uid != 0) {
        uid = user->pw_uid;
        gid = user->pw_gid;
    }
    TRY(limit_all());
    if (::geteuid() == 0) {
        TRY(leave_files());
        TRY(become(uid, gid));
    }
    // This comes after the change of user, which takes it away.
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return fail_errno("prctl", errno);
    if (::getppid() != parent) return fail("agentd is gone");
    if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail_errno("prctl", errno);
    return allow_calls(calls);
}

Status allow_calls(std::span<const int> calls) {
    if (sandbox_is_wide) return {};
    const std::unique_ptr<void, decltype([](void* f) { seccomp_release(f); })> filter(
        seccomp_init(SCMP_ACT_KILL_PROCESS));
    if (!filter) return fail("a filter of system calls: no memory");
    for (const int call : calls) {
        const int code = seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 0);
        if (code != 0 && code != -EDOM) return fail_errno("a filter of system calls", -code);
    }
    const int code = seccomp_load(filter.get());
    return code == 0 ? Status{} : Status(fail_errno("a filter of system calls", -code));
}

}  // namespace souk
