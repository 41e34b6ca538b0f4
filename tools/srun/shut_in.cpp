// SPDX-License-Identifier: GPL-2.0-or-later
// A kernel from 6.4 on tells a tracer of PR_SET_SYSCALL_USER_DISPATCH. About Landlock none says
// anything. But a thread that is shut in may not look into this process, and may
// otherwise, if both have the same ids and rights: it is had to ask for our list of robust futexes,
// as a dump does it (checkpoint/criu_landlock.c).
#include "tools/srun/shut_in.hpp"

#include <linux/landlock.h>

#include <cerrno>

#include "kernel/base/cause.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/call_at.h"

namespace souk::tools {
namespace {

#ifdef __x86_64__
std::string ids_and_rights(const std::string& process) {
    std::string found;
    const auto status = read_file(AT_FDCWD, "/proc/" + process + "/status");
    for (const char* key : {"\nUid:", "\nGid:", "\nCapPrm:"}) {
        const size_t at = status ? status->find(key) : std::string::npos;
        if (at == std::string::npos) return {};
        found += status->substr(at, status->find('\n', at + 1) - at);
    }
    return found;
}

bool makes_calls_itself(pid_t thread) {
    constexpr long get_config = 0x4211;  // PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG
    struct {
        uint64_t mode, selector, offset, length;
    } config{};
    return ::syscall(SYS_ptrace, get_config, thread, sizeof config, &config) == 0 &&
           config.mode != 0;
}

// Returns what a dump would refuse; empty: nothing.
std::string_view found_closely(pid_t thread, bool knows_landlock) {
    int status = 0;
    if (traces(PTRACE_SEIZE, thread, 0, nullptr) != 0) return {};
    long said = 0;
    bool dispatches = false;
    if (traces(PTRACE_INTERRUPT, thread, 0, nullptr) == 0 &&
        ::waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status)) {
        const long ask[7] = {SYS_get_robust_list, ::getpid()};
        const unsigned long place = place_of_call(thread);
        // Another signal came before the stop: it is given back, and this one says nothing.
        const bool interrupted = status >> 16 == PTRACE_EVENT_STOP;
        dispatches = makes_calls_itself(thread);
        if (knows_landlock && place != 0 && interrupted && !dispatches)
            said = call_at(thread, place, ask);
        const long signal = interrupted ? 0 : WSTOPSIG(status);
        (void)::syscall(SYS_ptrace, PTRACE_DETACH, thread, nullptr, signal);
    }
    if (dispatches)
        return " makes its system calls by its own code (PR_SET_SYSCALL_USER_DISPATCH), which "
               "nobody could tell a kernel elsewhere";
    return said == -EPERM ? " has shut itself in with Landlock, which would be open elsewhere" : "";
}
#endif

}  // namespace

Status look_closely(pid_t root) {
#ifdef __x86_64__
    const bool knows_landlock =
        ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 0;
    const std::string ours = ids_and_rights("self");
    std::vector<std::string> tree{std::to_string(root)};
    for (size_t i = 0; i < tree.size(); ++i) {
        const std::string process = tree[i], tasks = "/proc/" + process + "/task";
        const auto threads = list_dir(AT_FDCWD, tasks);
        if (!threads || ids_and_rights(process) != ours) continue;
        for (const std::string& thread : *threads) {
            const auto number = whole_number<pid_t>(thread);
            const std::string_view what =
                number ? found_closely(*number, knows_landlock) : std::string_view();
            if (!what.empty())
                return fail_because(
                    CauseCode::dump_refused,
                    {{"text", "cannot move: process " + process + std::string(what)}});
            const auto text = read_file(AT_FDCWD, tasks + "/" + thread + "/children");
            for (size_t at = 0; text && at < text->size();) {
                const size_t end = std::min(text->find(' ', at), text->size());
                if (end > at) tree.push_back(text->substr(at, end - at));
                at = end + 1;
            }
        }
    }
#else
    (void)root;
#endif
    return {};
}

}  // namespace souk::tools
