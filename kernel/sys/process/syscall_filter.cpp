// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/syscall_filter.hpp"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <vector>

namespace souk {
namespace {

using Filter =
    std::unique_ptr<void,
                    decltype([](void* f) { seccomp_release(static_cast<scmp_filter_ctx>(f)); })>;

// A job may not call these: keyrings, BPF and perf, mounts, other namespaces, a new kernel,
// modules.
constexpr int refused_calls[] = {
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(mount),
    SCMP_SYS(umount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(open_tree),
    SCMP_SYS(move_mount),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(setns),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
};
constexpr int io_uring_calls[] = {SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
                                  SCMP_SYS(io_uring_register)};

tl::unexpected<Error> wrong(int code) {
    return fail_errno("make the filter of a job's system calls", -code);
}

Status add(scmp_filter_ctx filter, int error, int call) {
    const int code = seccomp_rule_add(filter, SCMP_ACT_ERRNO(error), call, 0);
    // a call that this library's architecture has not
    return code == 0 || code == -EDOM ? Status{} : Status(wrong(code));
}

// Refuses a call that has a flag in its first argument.
Status add_flag(scmp_filter_ctx filter, int call, uint64_t flag) {
    const scmp_arg_cmp has{0, SCMP_CMP_MASKED_EQ, flag, flag};
    const int code = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), call, 1, &has);
    return code == 0 ? Status{} : Status(wrong(code));
}

#if defined(__x86_64__)
constexpr uint32_t others[] = {SCMP_ARCH_X86};  // programs of 32 bits
#elif defined(__aarch64__)
constexpr uint32_t others[] = {SCMP_ARCH_ARM};
#endif

Status fill(scmp_filter_ctx filter, const SyscallRules& rules) {
    for (const uint32_t arch : others)
        if (const int code = seccomp_arch_add(filter, arch); code != 0) return wrong(code);
    // The calls of an architecture that has no rules here.
    if (const int code = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
        code != 0)
        return wrong(code);
    // A filter costs each call: a tree of comparisons in place of a list.
    (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    for (const int call : refused_calls) TRY(add(filter, EPERM, call));
    if (!rules.io_uring)
        for (const int call : io_uring_calls) TRY(add(filter, ENOSYS, call));
    TRY(add_flag(filter, SCMP_SYS(unshare), CLONE_NEWUSER));
    TRY(add_flag(filter, SCMP_SYS(clone), CLONE_NEWUSER));
    // The flags of clone3(2) lie in memory, where a filter cannot look. The C library takes
    // clone(2) when it is refused.
    return add(filter, ENOSYS, SCMP_SYS(clone3));
}

// Adds a call as programs of that architecture make it, if it has it.
void add_word(std::string& words, uint32_t arch, int call, unsigned flags) {
    char* const name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, call);
    const int number = name != nullptr ? seccomp_syscall_resolve_name_arch(arch, name) : -1;
    std::free(name);
    if (number < 0) return;
    const auto add_number = [&](unsigned n) {
        char word[40];
        std::snprintf(word, sizeof word, "%s%x.%x.%x", words.empty() ? "" : " ", arch, n, flags);
        words += word;
    };
    add_number(static_cast<unsigned>(number));
    // The kernel may take numbers of x32 under the same architecture.
    constexpr unsigned x32 = 0x40000000;
    if (arch == SCMP_ARCH_X86_64) add_number(static_cast<unsigned>(number) | x32);
}

}  // namespace

Result<std::string> refused_call_words() {
    std::vector<uint32_t> archs = {seccomp_arch_native()};
    archs.insert(archs.end(), std::begin(others), std::end(others));
    std::string words;
    for (const uint32_t arch : archs) {
        for (const int call : refused_calls) add_word(words, arch, call, 0);
        for (const int call : {SCMP_SYS(unshare), SCMP_SYS(clone)})
            add_word(words, arch, call, CLONE_NEWUSER);
        add_word(words, arch, SCMP_SYS(clone3), 0);
    }
    return words.empty() ? Result<std::string>(fail("this machine has no filters of calls"))
                         : words;
}

Result<Fd> make_syscall_filter(const SyscallRules& rules) {
    const Filter filter(seccomp_init(SCMP_ACT_ALLOW));
    if (!filter) return fail("make the filter of a job's system calls: no memory");
    TRY(fill(filter.get(), rules));
    TRY_ASSIGN(Fd file, memory_file("souk-filter", {}));
    if (const int code = seccomp_export_bpf(filter.get(), file.get()); code != 0)
        return wrong(code);
    TRY(seal(file.get()));
    return file;
}

}  // namespace souk
