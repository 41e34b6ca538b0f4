// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/own_rights.hpp"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <memory>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/sandbox.hpp"

namespace souk {
namespace {

constexpr int given_up[] = {CAP_SETUID,          CAP_SETGID,
                            CAP_SETPCAP,         CAP_SETFCAP,
                            CAP_SYS_CHROOT,      CAP_SYS_TIME,
                            CAP_SYS_MODULE,      CAP_SYS_RAWIO,
                            CAP_SYS_BOOT,        CAP_SYS_PACCT,
                            CAP_MKNOD,           CAP_AUDIT_CONTROL,
                            CAP_MAC_ADMIN,       CAP_MAC_OVERRIDE,
                            CAP_SYSLOG,          CAP_IPC_OWNER,
                            CAP_LEASE,           CAP_AUDIT_READ,
                            CAP_WAKE_ALARM,      CAP_SYS_TTY_CONFIG,
                            CAP_AUDIT_WRITE,     CAP_SYS_ADMIN,
                            CAP_DAC_OVERRIDE,    CAP_CHOWN,
                            CAP_FOWNER,          CAP_FSETID,
                            CAP_LINUX_IMMUTABLE, CAP_NET_BROADCAST,
                            CAP_BLOCK_SUSPEND,   CAP_SYS_PTRACE,
                            CAP_DAC_READ_SEARCH, CAP_KILL,
                            CAP_SYS_RESOURCE,    CAP_CHECKPOINT_RESTORE,
                            CAP_NET_RAW};

constexpr int refused[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(unshare),
    SCMP_SYS(ptrace),
    SCMP_SYS(setns),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(open_tree),
    SCMP_SYS(move_mount),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(setuid),
    SCMP_SYS(setgid),
    SCMP_SYS(setreuid),
    SCMP_SYS(setregid),
    SCMP_SYS(setresuid),
    SCMP_SYS(setresgid),
    SCMP_SYS(setgroups),
    SCMP_SYS(setfsuid),
    SCMP_SYS(setfsgid),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(reboot),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(acct),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
};

Status outcome(int code) {
    // a call that this library's architecture has not
    return code == 0 || code == -EDOM ? Status{} : Status(fail_errno("its own calls", -code));
}

Status drop_calls() {
    using Filter = std::unique_ptr<void, decltype([](void* f) { seccomp_release(f); })>;
    const Filter filter(seccomp_init(SCMP_ACT_ALLOW));
    if (!filter) return fail("its own calls: no memory");
    TRY(outcome(seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1)));
    (void)seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
    // Calls of another architecture are refused, because there the numbers mean other calls.
    TRY(outcome(seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS))));
    constexpr uint32_t no = SCMP_ACT_ERRNO(EPERM);
    for (const int call : refused) TRY(outcome(seccomp_rule_add(filter.get(), no, call, 0)));
    const scmp_arg_cmp process{0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0};
    TRY(outcome(seccomp_rule_add_array(filter.get(), no, SCMP_SYS(clone), 1, &process)));
    // The flags of clone3(2) lie in memory, where a filter cannot look. The C library takes
    // clone(2) when it is refused.
    TRY(outcome(seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0)));
    return outcome(seccomp_load(filter.get()));
}

// give_up_measuring() gives these up. Programs that this process runs never get them.
constexpr int measuring[] = {CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN};

using Capabilities = __user_cap_data_struct[2];

bool has(const Capabilities& own, int cap) {
    return (own[cap / 32].effective & 1U << (cap % 32)) != 0;
}

// An older kernel, or a container that grants less, has a wide one in place of narrow ones.
bool stands_in(const Capabilities& own, int cap) {
    return cap == CAP_SYS_ADMIN && (!has(own, CAP_BPF) || !has(own, CAP_PERFMON));
}

struct Rights {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    Capabilities left = {};
};

Status bound(int cap) {
    if (::prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1 && ::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0)
        return fail_errno("drop a capability", errno);
    return {};
}

void leave_out(Rights& rights, int cap) {
    const uint32_t bit = ~(1U << (cap % 32));
    auto& word = rights.left[cap / 32];
    word.effective &= bit;
    word.permitted &= bit;
    word.inheritable &= bit;
}

// A kernel without the check of 5.19 lets nobody without rights use a map, unless it lets everybody
// load programs (kernel/bpf/syscall.c).
bool maps_are_free() {
    const auto everybody = read_file(AT_FDCWD, "/proc/sys/kernel/unprivileged_bpf_disabled");
    if (everybody && everybody->starts_with('0')) return true;
    utsname names{};
    int major = 0, minor = 0;
    return ::uname(&names) == 0 && std::sscanf(names.release, "%d.%d", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 19));
}

// Returns the rights that are left. No program that is run can bring others back.
Result<Rights> bound_capabilities() {
    Rights rights;
    Capabilities own = {};
    if (::syscall(SYS_capget, &rights.head, own) != 0) return fail_errno("capget", errno);
    std::copy(std::begin(own), std::end(own), std::begin(rights.left));
    for (const int cap : given_up) {
        if (!stands_in(own, cap)) leave_out(rights, cap);
        TRY(bound(cap));
    }
    for (const int cap : measuring) TRY(bound(cap));
    return rights;
}

Status keep(Rights& rights) {
    if (::syscall(SYS_capset, &rights.head, rights.left) != 0) return fail_errno("capset", errno);
    return {};
}

}  // namespace

Status become_user(uint32_t uid, uint32_t gid) {
    TRY_ASSIGN(Rights rights, bound_capabilities());
    // With this the permitted capabilities outlive the change of user. keep() puts them into effect
    // again.
    if (::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return fail_errno("keep capabilities", errno);
    if (::setgroups(0, nullptr) != 0 || ::setresgid(gid, gid, gid) != 0 ||
        ::setresuid(uid, uid, uid) != 0)
        return fail_errno("become user " + std::to_string(uid), errno);
    TRY(keep(rights));
    (void)::prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
    return {};
}

Status give_up_measuring() {
    const bool all = maps_are_free();
    Rights rights;
    Capabilities own = {};
    if (::syscall(SYS_capget, &rights.head, own) != 0) return fail_errno("capget", errno);
    std::copy(std::begin(own), std::end(own), std::begin(rights.left));
    leave_out(rights, CAP_NET_ADMIN);
    for (const int cap : {CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN})
        if (all) leave_out(rights, cap);
    TRY(keep(rights));
    return all ? Status{}
               : Status(fail("this kernel lets nobody without them use a map of a BPF program "
                             "(before 5.19)"));
}

Status give_up_starting() {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail_errno("no new privileges", errno);
    TRY_ASSIGN(Rights rights, bound_capabilities());
    TRY(keep(rights));
    return sandbox_is_wide ? Status{} : drop_calls();
}

}  // namespace souk
