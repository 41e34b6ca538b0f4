// SPDX-License-Identifier: GPL-2.0-or-later
#include "bpf/shut_in.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/landlock.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bpf/shut_in.h"
#include "bpf/shut_in.skel.h"

namespace souk {
namespace {

// The initial namespace of processes (PROC_PID_INIT_INO): the kernel's numbers are of that one.
constexpr ino_t init_pid_namespace = 0xEFFFFFFC;

int say_nothing(libbpf_print_level, const char*, va_list) { return 0; }

Result<std::vector<shut_in_thread>> threads_told_by(int program) {
    const Fd all(std::max(bpf_iter_create(program), -1));
    if (!all) return fail_errno("read who is shut in", errno);
    std::vector<shut_in_thread> threads;
    for (shut_in_thread some[256];;) {
        const ssize_t n = ::read(all.get(), some, sizeof some);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return fail_errno("read who is shut in", errno);
        if (n == 0) return threads;
        threads.insert(threads.end(), some, some + static_cast<size_t>(n) / sizeof *some);
    }
}

std::optional<uint32_t> words_set_of(const std::vector<shut_in_thread>& threads, pid_t thread) {
    for (const shut_in_thread& t : threads)
        if (static_cast<pid_t>(t.thread) == thread) return t.set;
    return std::nullopt;
}

// A thread of this process that is about to shut itself in, looks at itself before and after, and
// ends.
struct Trial {
    int program = -1;
    std::optional<uint32_t> before, after;
};

void* shut_self_in(void* of) {
    auto& trial = *static_cast<Trial*>(of);
    const auto look = [&trial]() -> std::optional<uint32_t> {
        const auto all = threads_told_by(trial.program);
        return all ? words_set_of(*all, static_cast<pid_t>(::syscall(SYS_gettid))) : std::nullopt;
    };
    trial.before = look();
    landlock_ruleset_attr rules{};
    rules.handled_access_fs = LANDLOCK_ACCESS_FS_EXECUTE;
    const auto fd =
        static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0));
    if (fd < 0) return nullptr;
    const Fd ruleset(fd);
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        ::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) == 0)
        trial.after = look();
    return nullptr;
}

// The word that is Landlock's is the first that is set then.
Result<unsigned> find_word(int program) {
    Trial trial;
    trial.program = program;
    pthread_t thread;
    if (const int error = ::pthread_create(&thread, nullptr, shut_self_in, &trial); error != 0)
        return fail_errno("try Landlock", error);
    ::pthread_join(thread, nullptr);
    const uint32_t set = trial.after.value_or(0) & ~trial.before.value_or(~0U);
    if (set == 0) return fail("this kernel has no Landlock, or does not tell");
    return static_cast<unsigned>(std::countr_zero(set));
}

}  // namespace

Result<ShutIn> ShutIn::open() {
    struct stat st {};
    if (::stat("/proc/self/ns/pid", &st) != 0 || st.st_ino != init_pid_namespace)
        return fail("not in the machine's first namespace of processes");
    libbpf_set_print(say_nothing);
    const std::unique_ptr<shut_in_bpf, void (*)(shut_in_bpf*)> skeleton(shut_in_bpf__open(),
                                                                        shut_in_bpf__destroy);
    if (!skeleton) return fail_errno("open the program that tells who is shut in", errno);
    if (const int error = shut_in_bpf__load(skeleton.get()); error != 0)
        return fail_errno("load the program that tells who is shut in", -error);
    const std::unique_ptr<bpf_link, int (*)(bpf_link*)> link(
        bpf_program__attach_iter(skeleton->progs.on_thread, nullptr), bpf_link__destroy);
    if (!link) return fail_errno("attach the program that tells who is shut in", errno);
    TRY_ASSIGN(Fd program, duplicate(bpf_link__fd(link.get())));
    TRY_ASSIGN(const unsigned word, find_word(program.get()));
    return ShutIn(std::move(program), word);
}

Result<std::set<pid_t>> ShutIn::processes() const {
    TRY_ASSIGN(const auto threads, threads_told_by(program_.get()));
    std::set<pid_t> found;
    for (const shut_in_thread& t : threads)
        if ((t.set >> word_ & 1) != 0) found.insert(static_cast<pid_t>(t.process));
    return found;
}

}  // namespace souk
